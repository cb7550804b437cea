package gtp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/wire/gtpc"
)

// TestQueuesCarryMessages sends a request between two endpoints of one process.
func TestQueuesCarryMessages(t *testing.T) {
	var queues Queues
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	listen := func(host byte, handle func(context.Context, *Request)) *Endpoint {
		e, err := Listen(ctx, Config{
			Listen: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, host}), Port), Queues: &queues, Handle: handle, Registry: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		go func() { ended <- e.Serve(ctx) }()
		return e
	}
	asks := listen(1, nil)
	answers := listen(2, func(_ context.Context, r *Request) {
		r.Answer(7, &gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: gtpc.Result{Cause: gtpc.RequestAccepted}})
	})
	for range 1000 {
		var answer gtpc.Answer
		if err := asks.Do(ctx, answers.Addr(), 1, &gtpc.ReleaseAccessBearers{}, &answer); err != nil || answer.Result.Cause != gtpc.RequestAccepted {
			t.Fatalf("got error %v, cause %d", err, answer.Result.Cause)
		}
	}
	if _, err := Listen(ctx, Config{Listen: answers.Addr(), Queues: &queues, Registry: prometheus.NewRegistry()}); err == nil {
		t.Error("two endpoints have the same address")
	}
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestReachUsesTheFamilyOfTheEndpoint checks where requests to an F-TEID with two addresses go.
func TestReachUsesTheFamilyOfTheEndpoint(t *testing.T) {
	both := gtpc.Endpoint{TEID: 1, V4: netip.MustParseAddr("192.0.2.1"), V6: netip.MustParseAddr("2001:db8::1")}
	for own, want := range map[string]netip.Addr{"192.0.2.9:2123": both.V4, "[2001:db8::9]:2123": both.V6} {
		e, err := Listen(t.Context(), Config{Listen: netip.MustParseAddrPort(own), Queues: new(Queues), Registry: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		if to := e.Reach(both); to != netip.AddrPortFrom(want, Port) {
			t.Errorf("%s sends to %v, want %v", own, to, want)
		}
	}
}

// TestFullQueueLosesMessages fills a queue that nobody reads.
func TestFullQueueLosesMessages(t *testing.T) {
	var queues Queues
	var ends [2]*queue
	for i := range ends {
		end, err := queues.listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i)}), Port))
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = end
	}
	message := []byte{1, 2, 3}
	for range queueLength {
		if _, err := ends[0].WriteToUDPAddrPort(message, ends[1].own); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ends[0].WriteToUDPAddrPort(message, ends[1].own); err == nil {
		t.Error("a full queue accepted a message")
	}
	message[0] = 9 // the queue has copies
	b := make([]byte, 10)
	if n, from, err := ends[1].ReadFromUDPAddrPort(b); err != nil || n != 3 || b[0] != 1 || from != ends[0].own {
		t.Errorf("got % x from %v, error %v", b[:n], from, err)
	}
	if err := ends[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ends[0].ReadFromUDPAddrPort(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read from a closed queue: got %v", err)
	}
	if _, err := ends[1].WriteToUDPAddrPort(message, ends[0].own); err == nil {
		t.Error("a closed queue accepted a message")
	}
}
