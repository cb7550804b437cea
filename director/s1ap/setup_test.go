package s1ap

import (
	"testing"

	"vitrine/wire/s1ap"
)

// TestSetupOfEachKindOfENodeB sets up eNodeBs of all kinds with the same number. Each must be an eNodeB of
// its own.
func TestSetupOfEachKindOfENodeB(t *testing.T) {
	s := newSite(t, false, []*instance{newInstance(t, attachType, 1)})
	kinds := []s1ap.ENBKind{s1ap.MacroENB, s1ap.HomeENB, s1ap.ShortMacroENB, s1ap.LongMacroENB}
	keys := map[uint64]bool{}
	for _, kind := range kinds {
		e := s.connect(5)
		e.ID.Kind = kind
		e.send(e.AppendSetup(nil))
		e.expect(s1ap.Successful, s1ap.S1Setup)
		keys[keyOf(e.ID)] = true
	}
	if c := s.server.Counters(); c.ENodeBs != len(kinds) || len(keys) != len(kinds) {
		t.Errorf("got %d eNodeBs with %d keys, want %d of each", c.ENodeBs, len(keys), len(kinds))
	}
}
