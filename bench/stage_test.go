package main

import (
	"context"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/hosttest"
	"vitrine/wire/sip"
)

// TestRequestsAreAsPromised checks that the corpus matches its description: Call-IDs, ports,
// header forms, and the shares and sizes of the methods.
func TestRequestsAreAsPromised(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	all := requests(random, nil)
	keys, from, first, compact := map[string]bool{}, map[int]bool{}, map[string]int{}, 0
	methods, sizes := map[string]int{}, map[string][2]int{}
	for _, m := range all {
		data := m.bytes(m.length(), "", random)
		var parsed sip.Message
		if _, err := parsed.Parse(data); err != nil {
			t.Fatalf("%v: %q", err, data)
		}
		method := string(parsed.Method)
		methods[method]++
		size, known := sizes[method]
		if !known {
			size[0] = len(data)
		}
		sizes[method] = [2]int{min(size[0], len(data)), max(size[1], len(data))}
		keys[string(parsed.CallID)], from[m.source()] = true, true
		name, _, _ := strings.Cut(string(parsed.Header), ":")
		first[name]++
		if strings.Contains(string(data), "\r\ni: ") {
			compact++
		}
	}
	if len(keys) != callIDs || len(from) != clients.count || len(first) < 9 || compact < len(all)/20 || compact > len(all)/5 {
		t.Errorf("%d Call-IDs from %d ports, %d headers come first, %d of %d Call-IDs are compact", len(keys), len(from), len(first), compact, len(all))
	}
	for method, want := range map[string]struct{ count, least, most int }{ // as in the captures
		"REGISTER": {18, 420, 720}, "INVITE": {27, 780, 1120}, "ACK": {23, 320, 450}, "CANCEL": {11, 340, 430}, "OPTIONS": {8, 330, 450}, "BYE": {4, 330, 450},
	} {
		if share := 91 * methods[method] / len(all); share < want.count-3 || share > want.count+3 {
			t.Errorf("%s are %d of 91 requests, want %d", method, share, want.count)
		}
		if got := sizes[method]; got[0] < want.least || got[1] > want.most {
			t.Errorf("%s have %d to %d bytes, want %d to %d", method, got[0], got[1], want.least, want.most)
		}
	}
}

func TestBurstsAreOfOnePortAndLoseNothing(t *testing.T) {
	var all []message
	for i := range 100 {
		all = append(all, sipMessage{port: i % 7})
	}
	n := 0
	for _, b := range bursts(all, 8) {
		if len(b) > 8 || slices.ContainsFunc(b, func(m message) bool { return m.source() != b[0].source() }) {
			t.Errorf("a burst of %v", b)
		}
		n += len(b)
	}
	if n != len(all) {
		t.Errorf("%d of %d messages are in bursts", n, len(all))
	}
}

// TestForwarderUnderLoadInNetns runs load.c and forwarder.c at a rate that any host can hold. All
// messages must arrive, and the samples must have latencies.
func TestForwarderUnderLoadInNetns(t *testing.T) {
	s := testStage(t)
	all := requests(rand.New(rand.NewPCG(1, 1)), nil)[:4000]
	for _, stamps := range []bool{false, true} {
		f, err := s.plan(t.Context(), "corpus", floodPlan{messages: all, key: sipKey, sources: clients, sinks: instances}, stamps)
		if err != nil {
			t.Fatal(err)
		}
		err = s.with(t.Context(), bareForwarder(instances), func() error {
			got, err := s.pass(t.Context(), f, 100)
			if err != nil {
				return err
			}
			for i, a := range got {
				if want, _ := sipKey(all[i].bytes(all[i].length(), "", rand.New(rand.NewPCG(1, 1)))); !sameKey(a.data, want) {
					t.Errorf("message %d arrived as %q", i, a.data)
				}
			}
			l, err := s.drive(t.Context(), devicePort, f.sources, f.sinks, f.corpus)
			if err != nil {
				return err
			}
			send := map[bool]func(float64, time.Duration) (flood, error){false: l.send, true: l.sample}[stamps]
			sent, err := send(1000, time.Second)
			if err != nil {
				return err
			}
			if sent.arrived != sent.sent || sent.sent < 1 {
				t.Errorf("stamps %v: of %v messages %v arrived", stamps, sent.sent, sent.arrived)
			}
			if stamps && (sent.samples < 50 || sent.latency[0] <= 0 || sent.latency[0] > sent.latency[4]) {
				t.Errorf("latencies %+v", sent)
			}
			return l.close()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStalledDeviceIsWaitedForInNetns checks that a message that a stalled device forwards late
// counts for the round in which it was sent.
func TestStalledDeviceIsWaitedForInNetns(t *testing.T) {
	s := testStage(t)
	f, err := s.plan(t.Context(), "corpus", floodPlan{messages: requests(rand.New(rand.NewPCG(1, 1)), nil)[:4000], key: sipKey, sources: clients, sinks: instances}, false)
	if err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	stalled := bareForwarder(instances)
	start := stalled.command
	stalled.command = func(ctx context.Context, s *stage) (_ *exec.Cmd, err error) {
		cmd, err = start(ctx, s)
		return cmd, err
	}
	err = s.with(t.Context(), stalled, func() error {
		if _, err := s.pass(t.Context(), f, 1); err != nil { // wait until it is ready
			return err
		}
		l, err := s.drive(t.Context(), devicePort, f.sources, f.sinks, f.corpus)
		if err != nil {
			return err
		}
		if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
			return err
		}
		goOn := time.AfterFunc(time.Second, func() { _ = cmd.Process.Signal(unix.SIGCONT) })
		defer goOn.Stop()
		for round := range 2 {
			got, err := l.send(2000, 200*time.Millisecond)
			if err != nil {
				return err
			}
			if got.arrived != got.sent || got.sent < 1 {
				t.Errorf("round %d: of %v messages %v arrived", round, got.sent, got.arrived)
			}
		}
		return l.close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestKamailioIsAProxy checks that the peer proxies requests.
func TestKamailioIsAProxy(t *testing.T) {
	s := testStage(t)
	version, err := kamailioVersion(t.Context())
	hosttest.Need(t, err)
	for _, d := range []device{kamailio(version), roomyKamailio(version)} {
		f := floodPlan{messages: requests(rand.New(rand.NewPCG(1, 1)), nil), key: sipKey, sources: clients, sinks: instances}
		if err := s.prove(t.Context(), d, f); err != nil {
			t.Error(err)
		}
	}
}

func sameKey(data []byte, want string) bool {
	key, err := sipKey(data)
	return err == nil && key == want
}

func testStage(t *testing.T) *stage {
	t.Helper()
	s, err := newStage(context.WithoutCancel(t.Context()))
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	hosttest.Need(t, err)
	return s
}
