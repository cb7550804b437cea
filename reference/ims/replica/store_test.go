package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/hosttest"
)

// patience limits every wait of these tests. Reaching it is a failure.
const patience = 30 * time.Second

// A cluster is a set of Stores connected over loopback.
type cluster struct {
	t      *testing.T
	addrs  []netip.AddrPort
	config Config
	stores []*Store
	stops  []func()
	mu     sync.Mutex
	fired  map[string][]int // timer -> instances on which it fired
}

func newCluster(t *testing.T, n int, config Config) *cluster {
	t.Helper()
	c := &cluster{t: t, config: config, stores: make([]*Store, n), stops: make([]func(), n), fired: map[string][]int{}}
	listeners := make([]net.Listener, n)
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners[i] = l
		c.addrs = append(c.addrs, l.Addr().(*net.TCPAddr).AddrPort())
	}
	for i := range n {
		c.start(i, listeners[i])
	}
	c.await("the instances see each other", func() bool {
		for _, s := range c.stores {
			if s.Living() != n {
				return false
			}
		}
		return true
	})
	return c
}

func (c *cluster) start(i int, l net.Listener) {
	config := c.config
	config.Self, config.Peers, config.Ask = c.addrs[i], c.addrs, 5*time.Second
	config.Log, config.Metrics = slog.New(slog.NewTextHandler(io.Discard, nil)), prometheus.NewRegistry()
	config.OnTimer = func(_ context.Context, key string, value []byte) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if string(value) != "value of "+key {
			c.t.Errorf("timer %s has the wrong value %q", key, value)
		}
		c.fired[key] = append(c.fired[key], i)
	}
	s := New(config)
	c.stores[i] = s
	c.stops[i] = hosttest.Run(c.t, patience, fmt.Sprint("instance ", i), func(ctx context.Context) error { return s.Run(ctx, l) })
}

// restart starts a stopped instance again, with an empty table.
func (c *cluster) restart(i int) {
	c.t.Helper()
	l, err := net.Listen("tcp", c.addrs[i].String())
	if err != nil {
		c.t.Fatal(err)
	}
	c.start(i, l)
}

func (c *cluster) await(what string, ok func() bool) {
	c.t.Helper()
	hosttest.Until(c.t, patience, what, ok)
}

func (c *cluster) put(i int, key, value string, expect uint64) uint64 {
	c.t.Helper()
	v, err := c.stores[i].Put(c.t.Context(), key, Record{Value: []byte(value)}, expect)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

func (c *cluster) get(i int, key string) Record {
	c.t.Helper()
	r, err := c.stores[i].Get(c.t.Context(), key)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func TestEveryInstanceReadsWhatAnyWrote(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for _, level := range []Level{One, Quorum} {
			c := newCluster(t, n, Config{Copies: 2, Read: level})
			for k := range 20 {
				key := fmt.Sprint("key", k)
				if r := c.get(k%n, key); r.Version != 0 {
					t.Fatalf("%s exists before it was written", key)
				}
				v := c.put(k%n, key, "first", 0)
				v = c.put((k+1)%n, key, "second", v)
				for i := range n {
					if r := c.get(i, key); string(r.Value) != "second" || r.Version != v {
						t.Errorf("read from %d of %d: got %q, version %d, want second, %d", i, n, r.Value, r.Version, v)
					}
				}
				held := 0
				for _, s := range c.stores {
					if s.table.get(key, time.Now()).Version == v {
						held++
					}
				}
				if held != min(n, 2) {
					t.Errorf("%s is held by %d of %d instances", key, held, n)
				}
			}
		}
	}
}

func TestConflict(t *testing.T) {
	c := newCluster(t, 3, Config{Copies: 2})
	v := c.put(0, "k", "a", 0)
	for _, stale := range []uint64{0, v - 1} {
		if _, err := c.stores[1].Put(t.Context(), "k", Record{Value: []byte("b")}, stale); !errors.Is(err, ErrConflict) {
			t.Errorf("write with the expected version %d: got %v, want a conflict", stale, err)
		}
	}
	if err := c.stores[2].Delete(t.Context(), "k", v); err != nil {
		t.Fatal(err)
	}
	if r := c.get(0, "k"); r.Value != nil || r.Version <= v {
		t.Errorf("after the deletion: got %q, version %d", r.Value, r.Version)
	}
	c.put(1, "k", "again", 0) // as if the record had never existed
}

// TestCountersAddUp checks that concurrent read-change-write from all instances
// loses no change.
func TestCountersAddUp(t *testing.T) {
	c := newCluster(t, 3, Config{Copies: 2})
	const each = 30
	var wg sync.WaitGroup
	for _, s := range c.stores {
		wg.Go(func() {
			for done := 0; done < each; {
				r, err := s.Get(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				_, _ = fmt.Sscan(string(r.Value), &n)
				_, err = s.Put(t.Context(), "n", Record{Value: fmt.Append(nil, n+1)}, r.Version)
				switch {
				case err == nil:
					done++
				case !errors.Is(err, ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := string(c.get(0, "n").Value); got != fmt.Sprint(3*each) {
		t.Errorf("counter: got %s, want %d", got, 3*each)
	}
}

func TestDerivedRecords(t *testing.T) {
	derive := func(key string) ([]byte, bool) { return []byte("derived " + key), key != "none" }
	c := newCluster(t, 2, Config{Copies: 2, Read: Quorum, Derive: derive})
	if r := c.get(0, "k"); string(r.Value) != "derived k" || r.Version != 1 {
		t.Errorf("got %q, version %d", r.Value, r.Version)
	}
	if r := c.get(0, "none"); r.Version != 0 {
		t.Errorf("got %q for a key that is not derived", r.Value)
	}
	c.put(1, "k", "written", 1)
	if r := c.get(0, "k"); string(r.Value) != "written" {
		t.Errorf("got %q after a write", r.Value)
	}
	if n := c.stores[0].Held(); n != 1 {
		t.Errorf("the instance holds %d records, want only the written one", n)
	}
}

func TestAwayAndBack(t *testing.T) {
	c := newCluster(t, 2, Config{Copies: 2, Read: Quorum})
	versions := map[string]uint64{}
	for k := range 50 {
		key := fmt.Sprint("key", k)
		versions[key] = c.put(k%2, key, "before", 0)
	}
	c.stops[1]()
	c.await("it is noticed", func() bool { return c.stores[0].Living() == 1 })
	for key, v := range versions {
		if r := c.get(0, key); r.Version != v {
			t.Fatalf("record %s was lost", key)
		}
		versions[key] = c.put(0, key, "meanwhile", v)
	}
	c.restart(1)
	c.await("it is brought up to date", func() bool {
		for key, v := range versions {
			if c.stores[1].table.get(key, time.Now()).Version != v {
				return false
			}
		}
		return true
	})
	for key, v := range versions {
		c.put(1, key, "after", v)
	}
}

func TestTimersFireOnce(t *testing.T) {
	c := newCluster(t, 3, Config{Copies: 2})
	const n = 60
	due := time.Now().Add(2 * time.Second) // after all timers are scheduled, even on a slow host
	for k := range n {
		key := fmt.Sprint("timer", k)
		if err := c.stores[k%3].Schedule(t.Context(), key, due, []byte("wrong")); err != nil {
			t.Fatal(err)
		}
		if err := c.stores[(k+1)%3].Schedule(t.Context(), key, due, []byte("value of "+key)); err != nil {
			t.Fatal(err)
		}
		if k%3 == 0 {
			if err := c.stores[(k+2)%3].Cancel(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.await("every timer that was not cancelled has fired", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.fired) >= n-n/3
	})
	// Once every copy of every timer is deleted, no timer can fire again.
	c.await("no timer is left", func() bool {
		for _, s := range c.stores {
			for _, key := range s.table.keys() {
				if r, _ := s.table.held(key); r.Timer && !r.deleted {
					return false
				}
			}
		}
		return true
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	on := map[int]int{}
	for k := range n {
		key := fmt.Sprint("timer", k)
		if got, want := len(c.fired[key]), 1; k%3 == 0 {
			if got != 0 {
				t.Errorf("timer %s fired although it was cancelled", key)
			}
		} else if got != want {
			t.Errorf("timer %s fired on %v", key, c.fired[key])
		} else {
			on[c.fired[key][0]]++
		}
	}
	if len(on) != 3 {
		t.Errorf("timers fired on instances %v, want on all three", on)
	}
}

// TestLongKeyIsNotSent reads a key that a peer would refuse. Clients choose keys, and must
// not be able to end a link.
func TestLongKeyIsNotSent(t *testing.T) {
	c := newCluster(t, 2, Config{Copies: 1})
	key := strings.Repeat("k", maxKey+1)
	for c.stores[0].rank(key) == 0 { // find a key that belongs to the other instance
		key += "k"
	}
	if r := c.get(0, key); r.Version != 0 {
		t.Errorf("got %q", r.Value)
	}
	if _, err := c.stores[0].Put(t.Context(), key, Record{}, 0); err == nil {
		t.Error("wrote a key that is too long")
	}
}

func TestNobodyAnswers(t *testing.T) {
	c := newCluster(t, 3, Config{Copies: 1})
	key := "k"
	for c.stores[0].rank(key) == 0 { // find a key that the first instance does not hold
		key += "k"
	}
	c.put(0, key, "v", 0)
	c.stops[1]()
	c.stops[2]()
	c.await("it is noticed", func() bool { return c.stores[0].Living() == 1 })
	if _, err := c.stores[0].Get(t.Context(), key); err == nil {
		t.Error("read a record that no live instance holds")
	}
	if _, err := c.stores[0].Put(t.Context(), key, Record{}, 0); err == nil {
		t.Error("wrote a record that no live instance holds")
	}
}
