package gtpc

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"vitrine/wire/gtpc"
)

// TestListenersCarried checks that an exchange stays with its listener if the next
// process has its listeners in another order. It is dropped if the listener is gone.
func TestListenersCarried(t *testing.T) {
	one, two, three := netip.MustParseAddrPort("192.0.2.1:2123"), netip.MustParseAddrPort("192.0.2.2:2123"), netip.MustParseAddrPort("[2001:db8::3]:2123")
	listening := func(at ...netip.AddrPort) *Server {
		return &Server{config: Config{Addresses: at, Now: func() time.Duration { return time.Second }}, exchanges: newExchanges(64, time.Minute, 1),
			sessions: newLearned(ways, time.Hour), peers: newLearned(ways, time.Hour)}
	}
	old, next := listening(one, two, three), listening(three, two)
	var numbers []uint32
	for i := range uint8(3) {
		numbers = append(numbers, old.exchanges.add(time.Second, exchange{from: placeOf(somebody), to: placeOf(somebody), listener: i, sequence: uint32(i), kind: gtpc.ModifyBearerRequest}))
	}
	var carried bytes.Buffer
	if err := old.Carry(&carried); err != nil {
		t.Fatal(err)
	}
	whole := carried.Bytes()
	if n, err := next.TakeOver(bytes.NewReader(whole)); n != 2 || err != nil {
		t.Fatalf("%d exchanges were taken over, want 2: %v", n, err)
	}
	for i, want := range []int{-1, 1, 0} {
		e, _, ok := next.exchanges.answer(time.Second, numbers[i], somebody)
		if ok != (want >= 0) || ok && int(e.listener) != want {
			t.Errorf("the exchange of listener %d has %d now, %v, want %d", i, e.listener, ok, want)
		}
	}
	for cut := range len(whole) {
		if _, err := listening(one).TakeOver(bytes.NewReader(whole[:cut])); err == nil {
			t.Errorf("%d octets of %d are enough", cut, len(whole))
		}
	}
}
