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

	"golang.org/x/sync/errgroup"

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
	register := func(space string, want error) {
		t.Helper()
		if err := a.Register(t.Context(), space); !errors.Is(err, want) {
			t.Fatalf("register space %s: got %v, want %v", space, err, want)
		}
	}
	for _, space := range []string{"used", "unused", "renewed"} {
		register(space, nil)
	}
	if err := engine.Write(t.Context(), "used", store.Op{Action: store.Put, Name: "t/1", Tags: []store.Tag{At(clock.Now().Add(24 * time.Hour))}}); err != nil {
		t.Fatal(err)
	}
	register("more", ErrSpaces)
	a.lookAgain(false)
	visitDue(t, a)
	register("more", ErrSpaces)
	clock.Advance(forgetAfter + time.Second)
	register("renewed", nil)
	a.lookAgain(false)
	visitDue(t, a)
	register("more", nil)
	wantRegistered(t, engine, "more", "renewed", "used")
	other := New(Config{Engine: engine, Clock: clock.Now, Spaces: 3})
	if err := other.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	clock.Advance(forgetAfter + time.Second)
	other.lookAgain(false)
	visitDue(t, other)
	wantRegistered(t, engine, "used")
	// The first agenda has not noticed. It must register a space that it knows again.
	register("renewed", nil)
	wantRegistered(t, engine, "renewed", "used")
}

// visitDue makes the visits of one round and waits for their end.
func visitDue(t *testing.T, a *Agenda) {
	t.Helper()
	var group errgroup.Group
	a.round(t.Context(), &group)
	_ = group.Wait() // visits return no errors
}

func wantRegistered(t *testing.T, engine store.Engine, want ...string) {
	t.Helper()
	var names []string
	for r, err := range engine.Scan(context.WithoutCancel(t.Context()), store.Query{Space: registry}) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, r.Key.Name)
	}
	if !slices.Equal(names, want) {
		t.Errorf("the registry has %q, want %q", names, want)
	}
}

// A remote engine has its records on another host: each scan takes a millisecond. A space has one
// record or none.
type remote struct {
	store.Engine
	spaces []string
	alone  bool // no other service uses the records

	mu      sync.Mutex
	due     map[string]time.Time // by space
	lookups int                  // reads of a registration
}

func (e *remote) Promises() store.Promises { return store.Promises{Shared: !e.alone} }

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
		if q.Match == nil || e.Get(context.Background(), store.Key{Space: q.Space, Name: "t/1"}, &r) != nil {
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
	if key.Space == registry {
		e.lookups++
	}
	at, ok := e.due[key.Space]
	if !ok {
		return store.ErrNotFound
	}
	*r = store.Record{Key: key, Version: 1, Tags: []store.Tag{At(at)}}
	return nil
}

// put gives a space a record that is due at a time.
func (e *remote) put(space string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.due[space] = at
}

// remove removes a space's record and returns when it was due.
func (e *remote) remove(space string) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.due[space]
	delete(e.due, space)
	return at
}

// run starts the agenda and returns a function that ends it.
func run(t *testing.T, a *Agenda) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// handleTimers makes the agenda handle each timer by removing it. The channel gets how late that was.
func handleTimers(a *Agenda, e *remote) <-chan time.Duration {
	late := make(chan time.Duration)
	a.Handle("s", "t/", func(_ context.Context, space string, _ *store.Record) error {
		late <- time.Since(e.remove(space))
		return nil
	})
	return late
}

// wantInTime checks that the next timer is handled after its time, but not later than most.
func wantInTime(t *testing.T, late <-chan time.Duration, most time.Duration) {
	t.Helper()
	select {
	case by := <-late:
		if by < 0 || by > most {
			t.Errorf("a timer was handled %s after its time, want at most %s", by, most)
		}
	case <-time.After(time.Minute):
		t.Fatal("a timer was not handled")
	}
}

// TestSpacesInUseAreNotLookedUp checks that the visit of a space with later work does not read its
// registration, however old that is. Over a shared engine, each space is visited about once a second.
func TestSpacesInUseAreNotLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &remote{due: map[string]time.Time{"s/1": time.Now().Add(time.Hour)}}
		a := New(Config{Engine: e, Clock: time.Now})
		for _, space := range []string{"s/1", "s/2"} {
			a.addSpace(space, time.Now().Add(-2*forgetAfter))
		}
		visitDue(t, a)
		if _, known := a.spaces["s/1"]; !known || len(a.spaces) != 1 || e.lookups != 1 {
			t.Errorf("after %d reads of registrations the agenda knows %v, want the space in use after 1 read for the other", e.lookups, a.spaces)
		}
	})
}

// TestPlansFollowTheClock checks that a space's next visit is planned by the calendar alone, as records
// fall due. With a monotonic reading the visit would come too late after the clock was set forward. The
// test does not use synctest, because no time in a bubble has such a reading.
func TestPlansFollowTheClock(t *testing.T) {
	e := &remote{due: map[string]time.Time{"s/1": time.Now().Add(24 * time.Hour)}}
	a := New(Config{Engine: e, Clock: time.Now})
	a.addSpace("s/1", time.Now())
	visitDue(t, a)
	next := a.spaces["s/1"].next
	if next.Before(time.Now()) || next != next.Round(0) {
		t.Errorf("the next visit is planned for %s, want a later time without a monotonic reading", next)
	}
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
		late := handleTimers(a, e)
		defer run(t, a)()
		for range timers {
			wantInTime(t, late, time.Second)
		}
	})
}

// TestWritesOfOthersAreFound checks that the agenda finds what another service has planned over a shared
// engine within the polling interval, which is a second.
func TestWritesOfOthersAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &remote{spaces: []string{"s/1"}, due: map[string]time.Time{}}
		a := New(Config{Engine: e, Clock: time.Now})
		late := handleTimers(a, e)
		defer run(t, a)()
		for range 5 {
			time.Sleep(2500 * time.Millisecond)
			e.put("s/1", time.Now())
			wantInTime(t, late, 1100*time.Millisecond)
		}
	})
}

// TestLongVisitDelaysNoOthers has a storage whose due timer takes a minute to handle. Meanwhile the
// timer of another storage must be handled in time, and the long visit must not begin a second time.
// What fell due during the long visit must be handled as soon as that ends.
func TestLongVisitDelaysNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		e := &remote{alone: true, spaces: []string{"s/long", "s/other"}, due: map[string]time.Time{"s/long": began, "s/other": began.Add(2 * time.Second)}}
		a := New(Config{Engine: e, Clock: time.Now})
		type call struct {
			space string
			at    time.Duration
		}
		calls := make(chan call, 10)
		a.Handle("s", "t/", func(_ context.Context, space string, _ *store.Record) error {
			calls <- call{space, time.Since(began)}
			if e.remove(space).After(began) {
				return nil
			}
			next := began.Add(10 * time.Second)
			e.put(space, next)
			a.Planned(space, next)
			a.lookAgain(false)
			time.Sleep(time.Minute)
			return nil
		})
		stop := run(t, a)
		time.Sleep(2 * time.Minute)
		stop()
		close(calls)
		want := []call{{"s/long", 0}, {"s/other", 2 * time.Second}, {"s/long", time.Minute}}
		for got := range calls {
			if len(want) == 0 {
				t.Fatalf("one more timer was handled: %v", got)
			}
			if late := got.at - want[0].at; got.space != want[0].space || late < 0 || late > 100*time.Millisecond {
				t.Errorf("handled a timer of %s after %s, want %s after %s", got.space, got.at, want[0].space, want[0].at)
			}
			want = want[1:]
		}
		if len(want) > 0 {
			t.Errorf("not handled: %v", want)
		}
	})
}
