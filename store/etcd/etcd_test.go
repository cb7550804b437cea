package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/etcd"
	"vitrine/store/storetest"
)

// serve starts an etcd for this test.
func serve(t *testing.T) string {
	t.Helper()
	return storetest.Etcd(t, 1)[0].Endpoint
}

func open(t *testing.T, c etcd.Config) *etcd.Engine {
	t.Helper()
	c.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	c.Sweep, c.Dial = 10*time.Millisecond, 20*time.Second
	e, err := etcd.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func TestSuite(t *testing.T) {
	t.Parallel()
	endpoint := serve(t)
	storetest.Run(t, func(t *testing.T, clock *storetest.Clock) store.Engine {
		return open(t, etcd.Config{Endpoints: []string{endpoint}, Prefix: t.Name() + "/", Now: clock.Now, Unchecked: true})
	})
}

// TestManyExpire checks that many records all expire, and none early. It is not parallel, because
// the suite measures the heap.
func TestManyExpire(t *testing.T) {
	endpoint := storetest.Etcd(t, 1, "--quota-backend-bytes", "8589934592")[0].Endpoint // the largest quota that etcd recommends
	clock := storetest.NewClock()
	storetest.Expire(t, open(t, etcd.Config{Endpoints: []string{endpoint}, Now: clock.Now, Unchecked: true}), clock, 20_000)
}

// TestFull checks that puts beyond the quota are refused, and that the gauges then say so. Records must still
// expire, and be deleted.
func TestFull(t *testing.T) {
	t.Parallel()
	endpoint := storetest.Etcd(t, 1, "--quota-backend-bytes", "4194304")[0].Endpoint
	clock := storetest.NewClock()
	e := open(t, etcd.Config{Endpoints: []string{endpoint}, Now: clock.Now, Unchecked: true})
	err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "mortal", Expires: clock.Now().Add(time.Second)},
		store.Op{Action: store.Put, Name: "asked for", Expires: clock.Now().Add(time.Second)})
	for i := 0; i < 1000 && err == nil; i++ {
		err = e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: fmt.Sprint(i), Value: make([]byte, 64<<10)})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("got %v, want ErrFull", err)
	}
	g, err := e.Gauges(t.Context())
	if err != nil || !g.Full || g.Waiting != -1 {
		t.Errorf("got gauges %+v, error %v, want a full store, and -1 writes that wait: unknown", g, err)
	}
	clock.Advance(2 * time.Second)
	for _, name := range []string{"asked for", "0"} {
		if err := e.Write(t.Context(), "s", store.Op{Action: store.Delete, Name: name}); err != nil {
			t.Errorf("delete %q in a full store: %v", name, err)
		}
	}
	hosttest.Until(t, 20*time.Second, "the expired records are removed", func() bool {
		left, err := e.Gauges(t.Context())
		return err == nil && left.Records <= g.Records-3
	})
}

// TestTwoStores checks that two stores over one etcd each report an expiry once.
func TestTwoStores(t *testing.T) {
	t.Parallel()
	endpoint := serve(t)
	clock := storetest.NewClock()
	one := open(t, etcd.Config{Endpoints: []string{endpoint}, Now: clock.Now, Unchecked: true})
	two := open(t, etcd.Config{Endpoints: []string{endpoint}, Now: clock.Now, Unchecked: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const records, marker = 20, "marker"
	for _, e := range []*etcd.Engine{one, two} {
		write := func(name string, expires time.Time) {
			t.Helper()
			if err := e.Write(ctx, "s", store.Op{Action: store.Put, Name: name, Expires: expires}); err != nil {
				t.Fatal(err)
			}
		}
		seen := map[string]int{}
		for v, err := range e.Watch(ctx, "s", "", 0) {
			if err != nil {
				t.Fatal(err)
			}
			switch v.Change {
			case store.Started:
				for i := range records {
					write(fmt.Sprint(i), clock.Now().Add(time.Second))
				}
				clock.Advance(2 * time.Second)
			case store.Expired:
				seen[v.Record.Key.Name]++
				if len(seen) == records && seen[v.Record.Key.Name] == 1 { // the loop ends at the marker, after any repeat
					write(marker, time.Time{})
				}
			}
			if v.Change == store.Written && v.Record.Key.Name == marker {
				break
			}
		}
		if len(seen) != records {
			t.Errorf("%d records expired, want %d", len(seen), records)
		}
		for name, n := range seen {
			if n != 1 {
				t.Errorf("%s expired %d times", name, n)
			}
		}
	}
}

// TestCompacted checks that a watch from before the compacted revision gets Behind.
func TestCompacted(t *testing.T) {
	t.Parallel()
	endpoint := serve(t)
	e := open(t, etcd.Config{Endpoints: []string{endpoint}, Now: time.Now})
	var ops []store.Op
	for range 10 {
		ops = []store.Op{{Action: store.Put, Name: "a"}}
		if err := e.Write(t.Context(), "s", ops...); err != nil {
			t.Fatal(err)
		}
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Compact(t.Context(), int64(ops[0].Version)); err != nil {
		t.Fatal(err)
	}
	var behind *store.Behind
	if err := storetest.ReadError(t, e.Watch(t.Context(), "s", "", 2)); !errors.As(err, &behind) {
		t.Fatalf("watch from version 2 of %d: got %v, want a Behind error", ops[0].Version, err)
	}
}

// TestSlowWatcher checks that a receiver that does not read gets Behind. Its queue must be bounded
// in events and bytes.
func TestSlowWatcher(t *testing.T) {
	t.Parallel()
	endpoint := serve(t)
	for name, c := range map[string]etcd.Config{"events": {Behind: 16}, "bytes": {Bytes: 17 << 10}} {
		t.Run(name, func(t *testing.T) {
			c.Endpoints, c.Prefix, c.Now = []string{endpoint}, name+"/", time.Now
			if taken := takeNothing(t, open(t, c)); taken > 17 {
				t.Errorf("kept %d events for a receiver that may be 16 behind", taken)
			}
		})
	}
}

// takeNothing opens a watch and writes records of 1 KiB without reading from the watch. It returns
// the number of events before Behind.
func takeNothing(t *testing.T, e *etcd.Engine) (taken int) {
	t.Helper()
	value := make([]byte, 1<<10)
	for v, err := range e.Watch(t.Context(), "s", "", 0) {
		if err != nil {
			if _, ok := errors.AsType[*store.Behind](err); !ok {
				t.Fatal(err)
			}
			break
		}
		if v.Change == store.Started {
			for range 200 {
				if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "a", Value: value}); err != nil {
					t.Fatal(err)
				}
			}
			continue
		}
		taken++
	}
	return taken
}

// TestUndecodable checks that a watch ends with an error at a record that cannot be decoded, after
// the changes before that record. A watch of other names must not end.
func TestUndecodable(t *testing.T) {
	t.Parallel()
	endpoint := serve(t)
	e := open(t, etcd.Config{Endpoints: []string{endpoint}, Now: time.Now})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	first := []store.Op{{Action: store.Put, Name: "a1"}}
	if err := e.Write(t.Context(), "s", first...); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), "vitrine/s/s\x00ra2", "\xffof another version"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a3", "b"} {
		if err := e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	follow := func(prefix string) (names []string, err error) {
		for v, err := range e.Watch(t.Context(), "s", prefix, first[0].Version-1) {
			switch {
			case err != nil:
				return names, err
			case v.Change != store.Started:
				names = append(names, v.Record.Key.Name)
				if v.Record.Key.Name > "a2" {
					return names, nil
				}
			}
		}
		return names, nil
	}
	if names, err := follow("a"); err == nil || !strings.Contains(err.Error(), `"a2"`) || len(names) != 1 {
		t.Errorf("watch of a record that cannot be decoded: got %q, error %v", names, err)
	}
	if names, err := follow("b"); err != nil || len(names) != 1 {
		t.Errorf("watch of other names: got %q, error %v", names, err)
	}
}
