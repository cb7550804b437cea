package ovs

import (
	"fmt"
	"maps"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/mirror/mirrortest"
	"vitrine/internal/netns"
)

// counted returns the fabric's counters that are not zero.
func counted(t *testing.T, f *Fabric) map[string]string {
	t.Helper()
	all, err := f.Counters(t.Context())
	mirrortest.Must(t, err)
	found := make(map[string]string)
	for _, c := range all {
		if c.Packets == 0 && c.Bytes == 0 {
			continue
		}
		name := c.From + " to " + c.To
		if c.Hop {
			name += " in the chain"
		}
		found[name] = frames(c.Packets, c.Bytes)
	}
	return found
}

func frames(packets, bytes uint64) string { return fmt.Sprintf("%d packets, %d bytes", packets, bytes) }

// sent returns the counters of n datagrams of size bytes each.
func sent(n, size uint64) string { return frames(n, n*(14+20+8+size)) }

// TestOVSCountersEqualWhatWasSent checks the counters of each pair of instances in both directions.
func TestOVSCountersEqualWhatWasSent(t *testing.T) {
	t.Parallel()
	f := open(t, Config{Rules: RulesFlows})
	p := attach(t, f, "a", "b", "c")
	p[1].Serve(t)
	p[2].Serve(t)
	if got := counted(t, f); len(got) != 0 {
		t.Errorf("got counters %q before any packet was sent", got)
	}
	if got := p[0].Ask(t, p[1].Place, 300, 100) + p[0].Ask(t, p[2].Place, 200, 1000) + p[2].Ask(t, p[1].Place, 50, 18); got != 550 {
		t.Fatalf("got %d of 550 answers", got)
	}
	want := map[string]string{
		"a to b": sent(300, 100), "b to a": sent(300, 100),
		"a to c": sent(200, 1000), "c to a": sent(200, 1000),
		"b to c": sent(50, 18), "c to b": sent(50, 18),
	}
	if got := counted(t, f); !maps.Equal(got, want) {
		t.Errorf("got counters %q, want %q", got, want)
	}
	// Attaching or detaching another instance does not disturb the counters.
	attach(t, f, "d")
	mirrortest.Must(t, f.Detach(t.Context(), "c"))
	maps.DeleteFunc(want, func(pair, _ string) bool { return pair != "a to b" && pair != "b to a" })
	if got := counted(t, f); !maps.Equal(got, want) {
		t.Errorf("got counters %q, want %q", got, want)
	}
}

func TestOVSCountersOfNormalRules(t *testing.T) {
	t.Parallel()
	f := open(t, Config{})
	if c, err := f.Counters(t.Context()); err == nil {
		t.Errorf("counters without counting rules: got %v, want an error", c)
	}
}

// reflect sends back each question that arrives at an instance, as a forwarder does, until the test
// ends. The frames get the instance's own source address and a destination address that nobody has.
// count stops reflect and returns the number of questions.
func (p place) reflect(t *testing.T) (count func() int) {
	t.Helper()
	mirrortest.Must(t, netns.Do(p.NetNS, func() error { // otherwise the kernel would forward the packets, too
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0)
	}))
	fd, index := p.Socket(t, 0)
	mirrortest.Must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}))
	done, stop := make(chan int), make(chan struct{})
	go func() {
		b, n := make([]byte, 2000), 0
		for {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			size, from, err := unix.Recvfrom(fd, b, 0)
			if err != nil || mirrortest.Message(b[:size]) == nil || from.(*unix.SockaddrLinklayer).Pkttype != unix.PACKET_HOST {
				continue
			}
			n++
			copy(b[6:12], b[:6])
			copy(b, []byte{2, 0, 0, 0, 0, 9})
			_ = unix.Sendto(fd, b[:size], 0, &unix.SockaddrLinklayer{Ifindex: index})
		}
	}()
	ended := false
	count = func() int {
		ended = true
		close(stop)
		n := <-done
		_ = unix.Close(fd)
		return n
	}
	t.Cleanup(func() {
		if !ended {
			count()
		}
	})
	return count
}

// TestOVSChain checks that questions pass the forwarders in order and that answers bypass them.
func TestOVSChain(t *testing.T) {
	t.Parallel()
	const n, size = 200, 64
	for _, rules := range []string{RulesNormal, RulesFlows} {
		t.Run(rules, func(t *testing.T) {
			f := open(t, Config{Rules: rules})
			p := attach(t, f, "a", "b", "c", "d")
			p[3].Serve(t)
			b, c := p[1].reflect(t), p[2].reflect(t)
			mirrortest.Must(t, f.Chain(t.Context(), []string{"a", "c", "b", "d"}))
			if got := p[0].Ask(t, p[3].Place, n, size); got != n {
				t.Errorf("got %d of %d answers", got, n)
			}
			want := map[string]string{
				"a to c in the chain": sent(n, size), "c to b in the chain": sent(n, size), "b to d in the chain": sent(n, size),
			}
			if rules == RulesFlows {
				want["d to a"] = sent(n, size)
			}
			if got := counted(t, f); !maps.Equal(got, want) {
				t.Errorf("got counters %q, want %q", got, want)
			}
			mirrortest.Must(t, f.Chain(t.Context(), nil))
			if got := p[0].Ask(t, p[3].Place, n, size); got != n {
				t.Errorf("without the chain: got %d of %d answers", got, n)
			}
			if b, c := b(), c(); b != n || c != n {
				t.Errorf("the chain forwarded %d and %d packets, want %d each", b, c, n)
			}
		})
	}
}

func TestOVSChainRefuses(t *testing.T) {
	t.Parallel()
	f := open(t, Config{})
	attach(t, f, "a", "b")
	for _, path := range [][]string{{"a"}, {"a", "x"}, {"a", "b", "a"}} {
		if err := f.Chain(t.Context(), path); !vitrine.IsBadInput(err) {
			t.Errorf("%q: %v", path, err)
		}
	}
	mirrortest.Must(t, f.Chain(t.Context(), []string{"a", "b"}))
	mirrortest.Must(t, f.Detach(t.Context(), "b"))
	if c, err := f.Counters(t.Context()); err == nil {
		t.Errorf("counters of a chain without its last member: got %v, want an error", c)
	}
}

// TestOVSMirror checks that the listener receives each question and each answer exactly once, and
// that no message is lost.
func TestOVSMirror(t *testing.T) {
	t.Parallel()
	const n = 300
	for _, rules := range []string{RulesNormal, RulesFlows} {
		t.Run(rules, func(t *testing.T) {
			f := open(t, Config{Rules: rules})
			p := attach(t, f, "a", "b", "listener")
			p[1].Serve(t)
			hear := p[2].Hear(t)
			for range 2 { // Mirror is idempotent
				mirrortest.Must(t, f.Mirror(t.Context(), "b", "listener"))
			}
			if got := p[0].Ask(t, p[1].Place, n, 64); got != n {
				t.Errorf("got %d of %d answers", got, n)
			}
			heard := mirrortest.Heard(hear, 2*n) // the switch sends copies one by one
			if !maps.Equal(heard, mirrortest.Messages(n)) {
				t.Errorf("the listener received %d messages, want %d, each once", len(heard), 2*n)
			}
			mirrortest.Must(t, f.Detach(t.Context(), "listener"))
			if got := p[0].Ask(t, p[1].Place, n, 64); got != n {
				t.Errorf("without the listener: got %d of %d answers", got, n)
			}
			if err := f.Mirror(t.Context(), "b", "listener"); err == nil {
				t.Error("Mirror accepted a listener that is not attached")
			}
			if err := f.Mirror(t.Context(), "b", "b"); !vitrine.IsBadInput(err) {
				t.Errorf("mirror to the instance itself: got %v, want BadInput", err)
			}
		})
	}
}
