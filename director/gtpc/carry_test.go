package gtpc

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"vitrine/wire/gtpc"
)

// carrying returns a server without sockets that can carry its memory.
func carrying(at ...netip.AddrPort) *Server {
	return &Server{config: Config{Addresses: at, Now: func() time.Duration { return time.Second }}, exchanges: newExchanges(64, time.Minute, 1),
		sessions: newLearned(ways, time.Hour), peers: newLearned(ways, time.Hour)}
}

// TestListenersCarried checks that an exchange stays with its listener if the next process has the
// listeners in another order. An exchange whose listener is gone must be dropped.
func TestListenersCarried(t *testing.T) {
	one, two, three := netip.MustParseAddrPort("192.0.2.1:2123"), netip.MustParseAddrPort("192.0.2.2:2123"), netip.MustParseAddrPort("[2001:db8::3]:2123")
	old, next := carrying(one, two, three), carrying(three, two)
	var numbers []uint32
	for i := range uint8(3) {
		numbers = append(numbers, old.exchanges.add(time.Second, exchange{from: placeOf(somebody), to: placeOf(somebody), listener: i, sequence: uint32(i), kind: gtpc.ModifyBearerRequest}))
	}
	var carried bytes.Buffer
	if err := old.Carry(&carried); err != nil {
		t.Fatal(err)
	}
	whole := carried.Bytes()
	if n, err := next.TakeOver(bytes.NewReader(whole), nil); n != 2 || err != nil {
		t.Fatalf("took over %d exchanges, want 2: %v", n, err)
	}
	for i, want := range []int{-1, 1, 0} {
		e, _, ok := next.exchanges.answer(time.Second, numbers[i], somebody)
		if ok != (want >= 0) || ok && int(e.listener) != want {
			t.Errorf("exchange of listener %d: got listener %d, found %v, want %d", i, e.listener, ok, want)
		}
	}
	for cut := range len(whole) {
		if _, err := carrying(one).TakeOver(bytes.NewReader(whole[:cut]), nil); err == nil {
			t.Errorf("TakeOver accepted %d of %d octets", cut, len(whole))
		}
	}
}

// TestClaimsCarried checks that a hand-over carries the claims of open requests and the learned
// TEIDs.
func TestClaimsCarried(t *testing.T) {
	here := netip.MustParseAddrPort("192.0.2.1:2123")
	old, next := carrying(here), carrying(here)
	at := instance{1, 7}
	waiting, accepted := claim{placeOf(somebody), 1, 0xa11a5}, claim{placeOf(here), 2, 2}
	old.peers.claim(time.Second, waiting, at)
	old.peers.accept(time.Second, accepted, at)
	old.peers.end(time.Second, accepted.alias, at)
	number := old.exchanges.add(time.Second, exchange{from: placeOf(somebody), to: placeOf(here), sequence: 5, kind: gtpc.ModifyBearerRequest, key: 3, hasKey: true, linked: true, claim: waiting, receiver: at, teid: 9})
	var carried bytes.Buffer
	if err := old.Carry(&carried); err != nil {
		t.Fatal(err)
	}
	if n, err := next.TakeOver(&carried, nil); n != 3 || err != nil || carried.Len() != 0 {
		t.Fatalf("took over %d entries, and %d octets are left: %v", n, carried.Len(), err)
	}
	b, _ := next.peers.bucket(accepted.alias)
	if e := next.peers.entry(b, 1, accepted.alias); e == nil || !e.ended {
		t.Error("the end of a session was forgotten")
	}
	was, _ := old.exchanges.get(time.Second, number)
	if e, ok := next.exchanges.get(time.Second, number); !ok || e != was {
		t.Errorf("got exchange %+v, want %+v", e, was)
	}
	if o, ok := next.peers.find(time.Second, 2); !ok || o.given != 2 || o.address != accepted.address || o.instance != at {
		t.Errorf("learned TEID: got %+v, found %v", o, ok)
	}
	if _, ok := next.peers.find(time.Second, waiting.alias); ok {
		t.Error("a claimed TEID became a learned one")
	}
	if next.peers.claim(time.Second, claim{placeOf(here), 1, waiting.alias}, at) {
		t.Error("another peer could claim a TEID that is already claimed")
	}
}

// TestRenumber checks that exchanges and learned TEIDs follow their types to other numbers. Those of
// a type that is gone are forgotten, except the TEIDs of peers.
func TestRenumber(t *testing.T) {
	stays, gone, moved := instance{2, 7}, instance{0, 7}, instance{1, 7}
	here := placeOf(somebody)
	old, s := carrying(here.addrPort()), carrying(here.addrPort())
	var numbers []uint32
	for _, e := range []exchange{{receiver: stays}, {sender: stays}, {receiver: gone}, {receiver: stays, sender: gone}} {
		e.from, e.to = here, here
		numbers = append(numbers, old.exchanges.add(time.Second, e))
	}
	old.sessions.put(time.Second, 1, owner{instance: stays})
	old.sessions.put(time.Second, 2, owner{instance: gone})
	old.peers.accept(time.Second, claim{here, 3, 3}, gone)
	var carried bytes.Buffer
	if err := old.Carry(&carried); err != nil {
		t.Fatal(err)
	}
	if n, err := s.TakeOver(&carried, []int{-1, 0, 1}); n != 4 || err != nil {
		t.Fatalf("took over %d entries, want 4: %v", n, err)
	}
	for i, want := range []exchange{{receiver: moved}, {sender: moved}, {}, {}} {
		e, ok := s.exchanges.get(time.Second, numbers[i])
		if ok != (i < 2) || e.receiver != want.receiver || e.sender != want.sender {
			t.Errorf("exchange %d: got %+v, found %v", i, e, ok)
		}
	}
	if o, ok := s.sessions.find(time.Second, 1); !ok || o.instance != moved {
		t.Errorf("learned TEID: got %+v, found %v", o, ok)
	}
	if o, ok := s.sessions.find(time.Second, 2); ok {
		t.Errorf("the TEID of a type that is gone belongs to %+v", o)
	}
	if o, ok := s.peers.find(time.Second, 3); !ok || o.instance != (instance{}) || o.address != here {
		t.Errorf("TEID of a peer: got %+v, found %v", o, ok)
	}
}
