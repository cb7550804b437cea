package s1ap

import (
	"net/netip"
	"testing"

	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// TestRefusedSetupEndsTheConnections repeats S1 Setup with another network, and with the identity of another
// host. The eNodeB has lost its UEs, so the director must not keep them, and it must end the association if no
// other S1 Setup follows.
func TestRefusedSetupEndsTheConnections(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"network": func(b *bench) { b.cell.TAI.PLMN, _ = identity.MakePLMN("262", "01") },
		"identity": func(b *bench) {
			b.cell.ID.ID++
			b.server.enodebs[b.cell.ID] = &enodeb{association: &association{peer: netip.MustParseAddrPort("192.0.2.9:1")}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			change(b)
			b.e.last = -setupPause
			request := b.cell.AppendSetup(nil)
			b.begin()
			defer b.done()
			b.uplink(b.e, frame.Append(nil, frame.Common, request), request)
			var m s1ap.Message
			if got := b.take(b.e.association); len(got) != 1 || m.Parse(got[0]) != nil || m.Procedure != s1ap.S1Setup || m.Kind != s1ap.Unsuccessful {
				t.Fatalf("the eNodeB got %x, want an S1 Setup Failure", got)
			}
			if ues := b.server.ues.Load(); ues != 0 || b.e.state != down || b.e.until <= b.now || !b.links[0].gone {
				t.Errorf("%d connections are left in state %d, until %v; link ended: %t", ues, b.e.state, b.e.until, b.links[0].gone)
			}
		})
	}
}

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
