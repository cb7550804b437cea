package pgw

import (
	"net/netip"
	"testing"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// TestSettleLeavesARemovedSession creates a session again before the PCRF has
// answered about the first one. The first one's creator has to end its own Gx session.
func TestSettleLeavesARemovedSession(t *testing.T) {
	addresses, err := newPool(netip.MustParsePrefix("10.45.0.0/29"))
	if err != nil {
		t.Fatal(err)
	}
	s := &server{sessions: gtp.NewTable[*session](10, gtp.Prefix{}), keys: map[sessionKey]*session{}, pool: addresses}
	imsi, ok := identity.MakeDigits("001010000000001")
	if !ok {
		t.Fatal("invalid IMSI")
	}
	key := sessionKey{imsi, 5}
	first, _, err := s.open(key, gtp.Peer{})
	if err != nil {
		t.Fatal(err)
	}
	second, over, err := s.open(key, gtp.Peer{})
	if err != nil || over != first {
		t.Fatalf("got %+v as ended, want %+v; error %v", over, first, err)
	}
	if s.settle(first, "gx;1", gtpc.Bearer{EBI: 5}) || first.gx != "" || first.bearers != nil {
		t.Errorf("the removed session was set up: %+v", first)
	}
	if !s.settle(second, "gx;2", gtpc.Bearer{EBI: 5}) || second.gx != "gx;2" || len(second.bearers) != 1 {
		t.Errorf("the session was not set up: %+v", second)
	}
}
