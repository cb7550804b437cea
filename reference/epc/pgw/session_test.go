package pgw

import (
	"net/netip"
	"testing"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// testServer returns a server without sessions, and the key of a session.
func testServer(t *testing.T) (*server, sessionKey) {
	t.Helper()
	addresses, ok := newPool(netip.MustParsePrefix("10.45.0.0/29"))
	if !ok {
		t.Fatal("the prefix was refused")
	}
	imsi, ok := identity.MakeDigits("001010000000001")
	if !ok {
		t.Fatal("invalid IMSI")
	}
	return &server{sessions: gtp.NewTable[*session](10, gtp.Prefix{}), keys: map[sessionKey]*session{}, pool: addresses}, sessionKey{imsi, 5}
}

// TestCommandsDoNotFindAnIncompleteSession looks for a session before and after the
// PCRF has answered.
func TestCommandsDoNotFindAnIncompleteSession(t *testing.T) {
	s, key := testServer(t)
	made, _, err := s.open(key, gtp.Peer{})
	if err != nil {
		t.Fatal(err)
	}
	if found, _ := s.get(made.teid); found != nil {
		t.Errorf("found a session without bearers: %+v", found)
	}
	if !s.settle(made, "gx;1", gtpc.Bearer{EBI: 5}) {
		t.Fatal("the session was not set up")
	}
	if found, _ := s.get(made.teid); found != made {
		t.Errorf("got %+v, want %+v", found, made)
	}
}

// TestRestartedSGWHasTwoAddresses has an S-GW restart that uses the IPv6 address of its F-TEID.
func TestRestartedSGWHasTwoAddresses(t *testing.T) {
	s, key := testServer(t)
	sgw := gtpc.Endpoint{TEID: 1, V4: netip.MustParseAddr("192.0.2.1"), V6: netip.MustParseAddr("2001:db8::1")}
	made, _, err := s.open(key, gtp.Peer{Endpoint: sgw})
	if err != nil {
		t.Fatal(err)
	}
	if lost := s.restarted(sgw.V6); len(lost) != 1 || lost[0] != made {
		t.Errorf("got %+v, want the session of the S-GW", lost)
	}
}

// TestSettleLeavesARemovedSession creates a session again before the PCRF has
// answered about the first one. The first one's creator has to end its own Gx session.
func TestSettleLeavesARemovedSession(t *testing.T) {
	s, key := testServer(t)
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

// TestIdentityOfAReleasedBearerIsUsedAgain has the MME assign an identity twice. The P-GW
// still has the first bearer, because the MME did not tell the P-GW of the release.
func TestIdentityOfAReleasedBearerIsUsedAgain(t *testing.T) {
	s, key := testServer(t)
	made, _, err := s.open(key, gtp.Peer{})
	if err != nil {
		t.Fatal(err)
	}
	if !s.settle(made, "gx;1", gtpc.Bearer{EBI: 5}) {
		t.Fatal("the session was not set up")
	}
	for _, rule := range []string{"call", "video"} {
		if err := s.attach(made, bearer{rule: rule, Bearer: gtpc.Bearer{EBI: 6}}); err != nil {
			t.Errorf("bearer of rule %s: %v", rule, err)
		}
	}
	if of := made.find(6); len(made.bearers) != 2 || of == nil || of.rule != "video" {
		t.Errorf("got bearers %+v", made.bearers)
	}
	if err := s.attach(made, bearer{rule: "call", Bearer: gtpc.Bearer{EBI: 5}}); err == nil {
		t.Error("a dedicated bearer got the identity of the default bearer")
	}
}
