package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"vitrine/store"
)

// A watcher pulls events one by one.
type watcher struct {
	next func() (*store.Event, error, bool)
	stop func()
	from uint64
}

func (s *suite) watch(t *testing.T, prefix string, from uint64) *watcher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	w := &watcher{}
	w.next, w.stop = iter.Pull2(s.Watch(ctx, "s", prefix, from))
	t.Cleanup(func() { cancel(); w.stop() })
	v, err, ok := w.next()
	if !ok || err != nil || v.Change != store.Started {
		t.Fatalf("watch begins with %+v, %v, %v", v, err, ok)
	}
	w.from = v.Record.Version
	return w
}

// expect takes one event for each text "change name value existed" and compares them.
func (w *watcher) expect(t *testing.T, want ...string) *store.Event {
	t.Helper()
	var last *store.Event
	for _, text := range want {
		v, err, ok := w.next()
		if !ok || err != nil {
			t.Fatalf("watch ended: %v; want %q", err, text)
		}
		if got := describe(v); got != text {
			t.Fatalf("event %q, want %q", got, text)
		}
		if last != nil && v.Record.Version < last.Record.Version {
			t.Fatalf("version %d after %d", v.Record.Version, last.Record.Version)
		}
		last = v
	}
	return last
}

// expectTogether takes events that may come in any order. A sweep that runs while the clock jumps
// may find one record expired before another.
func (w *watcher) expectTogether(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for range want {
		v, err, ok := w.next()
		if !ok || err != nil {
			t.Fatalf("watch ended: %v; want %q", err, want)
		}
		got = append(got, describe(v))
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Fatalf("events %q, want %q", got, want)
	}
}

func describe(v *store.Event) string {
	return fmt.Sprintf("%s %s %s %v", changes[v.Change], v.Record.Key.Name, v.Record.Value, v.Existed)
}

var changes = map[store.Change]string{store.Written: "written", store.Deleted: "deleted", store.Expired: "expired"}

func testWatch(t *testing.T, s *suite) {
	s.put(t, "a/before", "x")
	w := s.watch(t, "a/", 0)
	s.put(t, "a/1", "one")
	s.put(t, "b/1", "other prefix")
	if err := s.Write(t.Context(), "elsewhere", store.Op{Action: store.Put, Name: "a/1"}); err != nil {
		t.Fatal(err)
	}
	version := s.put(t, "a/1", "two")
	s.write(t, store.Op{Action: store.Delete, Name: "a/1"}, store.Op{Action: store.Delete, Name: "a/none"})
	s.write(t, store.Op{Action: store.Put, Name: "a/2", Value: []byte("2")}, store.Op{Action: store.Put, Name: "a/3", Value: []byte("3")})
	last := w.expect(t, "written a/1 one false", "written a/1 two true")
	if last.Record.Version != version {
		t.Errorf("event of version %d, written as %d", last.Record.Version, version)
	}
	w.expect(t, "deleted a/1 two true", "written a/2 2 false", "written a/3 3 false")
}

func testWatchFrom(t *testing.T, s *suite) {
	s.put(t, "a", "1")
	from := s.put(t, "a", "2")
	s.put(t, "b", "3")
	s.write(t, store.Op{Action: store.Delete, Name: "a"})
	w := s.watch(t, "", from)
	if w.from != from {
		t.Errorf("starts beyond %d, want %d", w.from, from)
	}
	w.expect(t, "written b 3 false", "deleted a 2 true")
	s.put(t, "c", "4")
	last := w.expect(t, "written c 4 false")
	w = s.watch(t, "", last.Record.Version)
	s.put(t, "d", "5")
	w.expect(t, "written d 5 false")
}

// testWatchFromNothing watches a space that nobody has written to, and goes on from there later.
func testWatchFromNothing(t *testing.T, s *suite) {
	from := s.watch(t, "", 0).from
	s.put(t, "a", "1")
	s.put(t, "b", "2")
	w := s.watch(t, "", from)
	w.expect(t, "written a 1 false", "written b 2 false")
}

func testWatchEnds(t *testing.T, s *suite) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	started := make(chan struct{}, 2)
	follow := func(ctx context.Context) {
		for v, err := range s.Watch(ctx, "s", "", 0) {
			if err != nil {
				ended <- err
				return
			}
			if v.Change == store.Started {
				started <- struct{}{}
			}
		}
		ended <- nil
	}
	go follow(ctx)
	<-started
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a watch whose context ended: %v", err)
	}
	go follow(t.Context())
	<-started
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, store.ErrClosed) {
		t.Errorf("a watch on an engine that was closed: %v", err)
	}
	var r store.Record
	if err := s.Get(t.Context(), store.Key{Space: "s", Name: "a"}, &r); !errors.Is(err, store.ErrClosed) {
		t.Errorf("get after close: %v", err)
	}
	if err := s.Write(t.Context(), "s", store.Op{Action: store.Put, Name: "a"}); !errors.Is(err, store.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

func testExpiry(t *testing.T, s *suite) {
	w := s.watch(t, "", 0)
	in := func(d time.Duration) time.Time { return s.clock.Now().Add(d) }
	s.write(t, store.Op{Action: store.Put, Name: "soon", Value: []byte("1"), Expires: in(time.Second), Tags: tags("t", "v")})
	s.write(t, store.Op{Action: store.Put, Name: "later", Value: []byte("2"), Expires: in(time.Hour)})
	s.write(t, store.Op{Action: store.Put, Name: "longer", Value: []byte("3"), Expires: in(time.Second)})
	s.write(t, store.Op{Action: store.Put, Name: "longer", Value: []byte("3"), Expires: in(time.Hour)})
	s.write(t, store.Op{Action: store.Put, Name: "never", Value: []byte("4"), Expires: in(time.Second)})
	s.write(t, store.Op{Action: store.Put, Name: "never", Value: []byte("4")})
	w.expect(t, "written soon 1 false", "written later 2 false", "written longer 3 false",
		"written longer 3 true", "written never 4 false", "written never 4 true")
	s.clock.Advance(time.Second)
	if _, err := s.get(t, "soon"); err == nil {
		t.Error("an expired record was found")
	}
	v := w.expect(t, "expired soon 1 true")
	if len(v.Record.Tags) != 1 || v.Record.Expires.IsZero() {
		t.Errorf("the event holds %+v: not the whole record", v.Record)
	}
	if got := s.names(t, store.Query{}); got != "later longer never" {
		t.Errorf("left: %q", got)
	}
	s.clock.Advance(time.Hour)
	if got := s.names(t, store.Query{}); got != "never" {
		t.Errorf("left: %q", got)
	}
	w.expect(t, "expired later 2 true", "expired longer 3 true")
}

// testNotEarly moves the clock to between two milliseconds. The sweep that removes an expired record
// must leave the record that expires at the next millisecond.
func testNotEarly(t *testing.T, s *suite) {
	w := s.watch(t, "", 0)
	for i, name := range []string{"first", "second"} {
		s.write(t, store.Op{Action: store.Put, Name: name, Expires: s.clock.Now().Add(time.Duration(1+i) * time.Millisecond)})
	}
	w.expect(t, "written first  false", "written second  false")
	s.clock.Advance(3 * time.Millisecond / 2)
	w.expect(t, "expired first  true")
	if _, err := s.get(t, "second"); err != nil {
		t.Error("a record was removed half a millisecond before its time")
	}
}

func testExpired(t *testing.T, s *suite) {
	w := s.watch(t, "", 0)
	s.write(t, store.Op{Action: store.Put, Name: "a", Value: []byte("1"), Expires: s.clock.Now().Add(time.Second)})
	s.clock.Advance(2 * time.Second)
	// The record is absent, whether or not the sweeper has deleted it already.
	ops := s.write(t, store.Op{Action: store.Put, Name: "a", Value: []byte("2"), If: store.Condition{Absent: true}})
	if ops[0].Existed {
		t.Error("an expired record existed")
	}
	w.expect(t, "written a 1 false", "expired a 1 true", "written a 2 false")
	if r, err := s.get(t, "a"); err != nil || string(r.Value) != "2" {
		t.Errorf("get: %+v, %v", r, err)
	}
	s.write(t, store.Op{Action: store.Put, Name: "b", Expires: s.clock.Now().Add(-time.Second)})
	if _, err := s.get(t, "b"); err == nil {
		t.Error("a record put with an expiry in the past was found")
	}
}

// testClockJumps moves the clock back and forward by years. Expired records stay expired, other
// records stay, and new records expire at their time.
func testClockJumps(t *testing.T, s *suite) {
	const year = 365 * 24 * time.Hour
	w := s.watch(t, "", 0)
	put := func(name string, in time.Duration) {
		t.Helper()
		s.write(t, store.Op{Action: store.Put, Name: name, Expires: s.clock.Now().Add(in), Tags: tags("t", "v")})
	}
	left := func(want string) {
		t.Helper()
		m := &store.Match{Tag: "t", Op: store.Equal, Value: "v"}
		if got, matched := s.names(t, store.Query{}), s.names(t, store.Query{Match: m}); got != want || matched != want {
			t.Errorf("%q are left, %q by their tag, want %q", got, matched, want)
		}
	}
	put("hour", time.Hour)
	put("years", 20*year)
	w.expect(t, "written hour  false", "written years  false")
	s.clock.Advance(-10 * year)
	left("hour years")
	put("minute", time.Minute)
	w.expect(t, "written minute  false")
	s.clock.Advance(2 * time.Minute)
	w.expect(t, "expired minute  true")
	left("hour years")
	s.clock.Advance(10*year + time.Hour)
	w.expect(t, "expired hour  true")
	left("years")
	s.clock.Advance(-15 * year)
	left("years")
	put("hour", time.Hour)
	w.expect(t, "written hour  false")
	s.clock.Advance(50 * year)
	w.expectTogether(t, "expired hour  true", "expired years  true")
	left("")
	s.clock.Advance(-50 * year)
	left("")
	put("minute", time.Minute)
	w.expect(t, "written minute  false")
	s.clock.Advance(time.Hour)
	w.expect(t, "expired minute  true")
	left("")
}

func testSpaces(t *testing.T, s *suite) {
	for _, space := range []string{"s", "s/2", "s2", "t"} {
		o := store.Op{Action: store.Put, Name: "n", Value: []byte(space), Tags: tags("t", "v"), If: store.Condition{Absent: true}}
		if err := s.Write(t.Context(), space, o); err != nil {
			t.Fatal(err)
		}
	}
	for _, space := range []string{"s", "s/2", "s2", "t"} {
		var r store.Record
		if err := s.Get(t.Context(), store.Key{Space: space, Name: "n"}, &r); err != nil || string(r.Value) != space {
			t.Errorf("%s: %+v, %v", space, r, err)
		}
		m := &store.Match{Tag: "t", Op: store.Equal, Value: "v"}
		if got := s.names(t, store.Query{Space: space}) + s.names(t, store.Query{Space: space, Match: m}); got != "nn" {
			t.Errorf("%s: scans give %q", space, got)
		}
	}
}
