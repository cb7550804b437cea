package redis_test

import (
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"vitrine/internal/hosttest"
	"vitrine/store"
	"vitrine/store/redis"
	"vitrine/store/storetest"
)

// TestManyWatches checks that more watches than connections wait for a connection as long as they need.
func TestManyWatches(t *testing.T) {
	t.Parallel()
	address := storetest.Redis(t)
	e := open(t, redis.Config{Addresses: []string{address}, Now: time.Now, Check: time.Hour})
	const watches = 300
	started, ended := make(chan struct{}, watches), make(chan error, watches)
	for range watches {
		go func() {
			for v, err := range e.Watch(t.Context(), "s", "", 0) {
				if err != nil || v.Change == store.Written {
					ended <- err
					return
				}
				started <- struct{}{}
			}
		}()
	}
	for range watches {
		select {
		case <-started:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	server := goredis.NewClient(&goredis.Options{Addr: address})
	defer server.Close()
	if err := server.ClientPause(t.Context(), 2500*time.Millisecond).Err(); err != nil { // meanwhile no connection becomes free
		t.Fatal(err)
	}
	hosttest.Until(t, patience, "a put is answered", func() bool {
		return e.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "a"}) == nil
	})
	for range watches {
		if err := <-ended; err != nil {
			t.Fatalf("a watch ended: %v", err)
		}
	}
}

// TestLargeChanges checks that a watch yields each change once, in order, although the changes of a page do not all
// fit.
func TestLargeChanges(t *testing.T) {
	t.Parallel()
	e := open(t, redis.Config{Addresses: []string{storetest.Redis(t)}, Now: time.Now})
	first := []store.Op{{Action: store.Put, Name: "first"}}
	if err := e.Write(t.Context(), "s", first...); err != nil {
		t.Fatal(err)
	}
	values := [][]byte{nil, make([]byte, 1000), make([]byte, 200_000), make([]byte, 400_000)}
	const changes = 24
	for i := range changes {
		op := store.Op{Action: store.Put, Name: fmt.Sprint(i), Value: values[i%len(values)]}
		if err := e.Write(t.Context(), "s", op); err != nil {
			t.Fatal(err)
		}
	}
	seen := 0
	for v, err := range e.Watch(t.Context(), "s", "", first[0].Version) {
		if err != nil {
			t.Fatal(err)
		}
		if v.Change == store.Started {
			continue
		}
		if got, want := len(v.Record.Value), len(values[seen%len(values)]); v.Record.Key.Name != fmt.Sprint(seen) || got != want {
			t.Fatalf("got change %s with %d bytes, want %d with %d", v.Record.Key.Name, got, seen, want)
		}
		if seen++; seen == changes {
			break
		}
	}
}
