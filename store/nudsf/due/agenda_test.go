package due

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/storetest"
)

// TestUnusedSpacesAreForgotten fills the registry. Later only the space that still has a due record
// must count against the limit, for this agenda and for one that starts then.
func TestUnusedSpacesAreForgotten(t *testing.T) {
	clock := storetest.NewClock()
	engine, err := embedded.Open(embedded.Config{Dir: t.TempDir(), Now: clock.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() }) // the test is over
	a := New(Config{Engine: engine, Clock: clock.Now, Spaces: 3})
	register := func(a *Agenda, space string) error { return a.Register(t.Context(), space) }
	for _, space := range []string{"used", "unused", "renewed"} {
		if err := register(a, space); err != nil {
			t.Fatal(err)
		}
	}
	if err := engine.Write(t.Context(), "used", store.Op{Action: store.Put, Name: "t/1", Tags: []store.Tag{At(clock.Now().Add(24 * time.Hour))}}); err != nil {
		t.Fatal(err)
	}
	if err := register(a, "more"); !errors.Is(err, ErrSpaces) {
		t.Errorf("a fourth space: %v, want that there are too many", err)
	}
	visitAll := func(a *Agenda) {
		a.lookAgain()
		a.round(t.Context(), false)
	}
	visitAll(a)
	if err := register(a, "more"); !errors.Is(err, ErrSpaces) {
		t.Errorf("a fourth space at once: %v, want that there are too many", err)
	}
	clock.Advance(forgetAfter + time.Second)
	if err := register(a, "renewed"); err != nil {
		t.Fatal(err)
	}
	visitAll(a)
	if err := register(a, "more"); err != nil {
		t.Errorf("a space after another one was forgotten: %v", err)
	}
	want := []string{"more", "renewed", "used"}
	if got := registered(t, engine); !slices.Equal(got, want) {
		t.Errorf("the registry has %q, want %q", got, want)
	}
	other := New(Config{Engine: engine, Clock: clock.Now, Spaces: 3})
	if err := other.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.Advance(forgetAfter + time.Second)
	visitAll(other)
	if got := registered(t, engine); !slices.Equal(got, []string{"used"}) {
		t.Errorf("much later the registry has %q, want the space with a due record", got)
	}
	// The first agenda has not noticed. It must register a space that it knows again.
	if err := register(a, "renewed"); err != nil {
		t.Fatal(err)
	}
	if got := registered(t, engine); !slices.Equal(got, []string{"renewed", "used"}) {
		t.Errorf("after another registration the registry has %q", got)
	}
}

func registered(t *testing.T, engine store.Engine) (names []string) {
	t.Helper()
	for r, err := range engine.Scan(context.WithoutCancel(t.Context()), store.Query{Space: registry}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Key.Name)
	}
	return names
}

// A remote engine has its records on another host: each scan takes a millisecond. A space has one
// record or none.
type remote struct {
	store.Engine
	spaces []string

	mu  sync.Mutex
	due map[string]time.Time // by space
}

func (e *remote) Promises() store.Promises { return store.Promises{Shared: true} }

func (e *remote) Scan(_ context.Context, q store.Query) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		time.Sleep(time.Millisecond)
		if q.Space == registry {
			for _, space := range e.spaces {
				if !yield(&store.Record{Key: store.Key{Space: registry, Name: space}, Meta: []byte(stamp(time.Now()))}, nil) {
					return
				}
			}
			return
		}
		var r store.Record
		if e.Get(context.Background(), store.Key{Space: q.Space, Name: "t/1"}, &r) != nil {
			return
		}
		if later := r.Tags[0].Value > q.Match.Value; later == (q.Match.Op == store.Greater) {
			yield(&r, nil)
		}
	}
}

func (e *remote) Get(_ context.Context, key store.Key, r *store.Record) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.due[key.Space]
	if !ok {
		return store.ErrNotFound
	}
	*r = store.Record{Key: key, Version: 1, Tags: []store.Tag{At(at)}}
	return nil
}

// remove removes a space's record and returns when it was due.
func (e *remote) remove(space string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.due[space]
	delete(e.due, space)
	return at
}

// TestPollingDelaysNoTimers checks that the timers of some spaces are handled in time while the
// agenda also polls many other spaces over a shared engine.
func TestPollingDelaysNoTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const spaces, timers = 3000, 30
		began := time.Now()
		e := &remote{due: map[string]time.Time{}}
		for i := range spaces {
			space := fmt.Sprint("s/", i)
			e.spaces = append(e.spaces, space)
			if i < timers {
				e.due[space] = began.Add(2*time.Second + time.Duration(i)*100*time.Millisecond)
			}
		}
		a := New(Config{Engine: e, Clock: time.Now})
		late := make(chan time.Duration)
		a.Handle("s", "t/", func(_ context.Context, space string, _ *store.Record) error {
			late <- time.Since(e.remove(space))
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = a.Run(ctx) })
		for range timers {
			select {
			case by := <-late:
				if by < 0 || by > time.Second {
					t.Errorf("a timer was handled %s after its time", by)
				}
			case <-time.After(time.Minute):
				t.Fatal("a timer was not handled")
			}
		}
		cancel()
		running.Wait()
	})
}
