// Package storetest is the conformance suite for engines. An engine's test passes a function that
// opens the engine to Run. Run skips what the engine does not promise.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"vitrine/store"
)

// A Clock is a clock that expires records. Tests move it.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that stands at a whole second.
func NewClock() *Clock { return &Clock{at: time.Unix(1_800_000_000, 0)} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance moves the clock forward, or back if d is negative.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// Open opens an engine without records and registers a Cleanup that closes it. Parallel tests call
// it.
type Open func(t *testing.T, clock *Clock) store.Engine

// Run runs the suite on the engine. It skips what the engine does not promise.
func Run(t *testing.T, open Open) {
	promises := open(t, NewClock()).Promises()
	// Before the parallel tests, because it measures the heap.
	t.Run("scan within bytes", func(t *testing.T) {
		clock := NewClock()
		testScanBytes(t, &suite{Engine: open(t, clock), clock: clock})
	})
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *suite)
		not  bool // skip: not promised
	}{
		{name: "records", test: testRecords},
		{name: "whole record kept", test: testWhole},
		{name: "conditions", test: testConditions},
		{name: "batch all or none", test: testBatch, not: !promises.AtomicBatch},
		{name: "limits", test: testLimits},
		{name: "scan", test: testScan},
		{name: "match", test: testMatch},
		{name: "match follows changes", test: testReindex},
		{name: "expiry", test: testExpiry},
		{name: "expiry within a millisecond", test: testNotEarly},
		{name: "expired is absent", test: testExpired},
		{name: "clock jumps", test: testClockJumps},
		{name: "watch", test: testWatch},
		{name: "watch from a version", test: testWatchFrom},
		{name: "watch from before the first write", test: testWatchFromNothing},
		{name: "watch ends", test: testWatchEnds},
		{name: "spaces are apart", test: testSpaces},
		{name: "contended counter", test: testCounter},
		{name: "batches seen whole", test: testWholeBatches, not: !promises.AtomicBatch || !promises.SnapshotScan},
		{name: "linearizable", test: testLinearizable, not: !promises.Linearizable},
	} {
		if c.not {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			c.test(t, &suite{Engine: open(t, clock), clock: clock})
		})
	}
}

type suite struct {
	store.Engine
	clock *Clock
}

func (s *suite) write(t *testing.T, ops ...store.Op) []store.Op {
	t.Helper()
	if err := s.Write(t.Context(), "s", ops...); err != nil {
		t.Fatalf("write: %v", err)
	}
	return ops
}

func (s *suite) put(t *testing.T, name, value string) uint64 {
	t.Helper()
	return s.write(t, store.Op{Action: store.Put, Name: name, Value: []byte(value)})[0].Version
}

func (s *suite) get(t *testing.T, name string) (store.Record, error) {
	t.Helper()
	var r store.Record
	err := s.Get(t.Context(), store.Key{Space: "s", Name: name}, &r)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("get %s: %v", name, err)
	}
	return r, err
}

func (s *suite) names(t *testing.T, q store.Query) string {
	t.Helper()
	if q.Space == "" {
		q.Space = "s"
	}
	var names []string
	for r, err := range s.Scan(t.Context(), q) {
		if err != nil {
			t.Fatalf("scan %+v: %v", q, err)
		}
		names = append(names, r.Key.Name)
	}
	return strings.Join(names, " ")
}

// ReadError reads a Scan or a Watch that must yield an error and nothing else. It returns the error.
func ReadError[T any](t testing.TB, items iter.Seq2[T, error]) (failed error) {
	t.Helper()
	for item, err := range items {
		if err == nil || failed != nil {
			t.Fatalf("got %+v, error %v, after error %v; want one error alone", item, err, failed)
		}
		failed = err
	}
	if failed == nil {
		t.Fatal("got nothing, want an error")
	}
	return failed
}

func testRecords(t *testing.T, s *suite) {
	if _, err := s.get(t, "a"); err == nil {
		t.Fatal("a record before any was written")
	}
	ops := s.write(t, store.Op{Action: store.Put, Name: "a", Value: []byte("1")})
	first := ops[0].Version
	if first == 0 || ops[0].Existed {
		t.Fatalf("first put: %+v", ops[0])
	}
	ops = s.write(t, store.Op{Action: store.Put, Name: "a", Value: []byte("2")})
	if ops[0].Version <= first || !ops[0].Existed {
		t.Fatalf("second put: %+v after version %d", ops[0], first)
	}
	r, err := s.get(t, "a")
	if err != nil || string(r.Value) != "2" || r.Version != ops[0].Version {
		t.Fatalf("get: %+v, %v; want value 2 of version %d", r, err, ops[0].Version)
	}
	ops = s.write(t, store.Op{Action: store.Delete, Name: "a"})
	if !ops[0].Existed || ops[0].Version <= r.Version {
		t.Fatalf("delete: %+v", ops[0])
	}
	if _, err := s.get(t, "a"); err == nil {
		t.Fatal("there after delete")
	}
	ops = s.write(t, store.Op{Action: store.Delete, Name: "a"})
	if ops[0].Existed || ops[0].Version != 0 {
		t.Fatalf("delete of nothing: %+v", ops[0])
	}
	if again := s.put(t, "a", "3"); again <= r.Version {
		t.Fatalf("version %d after %d: a deleted record's version came back", again, r.Version)
	}
}

func testWhole(t *testing.T, s *suite) {
	want := store.Record{
		Key:     store.Key{Space: "s", Name: "näme/with ü\x01\xff"},
		Value:   []byte("v\x00\xff\r\n"),
		Meta:    []byte{0, 1, 2},
		Tags:    []store.Tag{{Name: "a", Value: ""}, {Name: "a", Value: "2"}, {Name: "b", Value: "\xff"}},
		Expires: s.clock.Now().Add(90 * time.Minute),
	}
	o := store.Op{Action: store.Put, Name: want.Key.Name, Value: want.Value, Meta: want.Meta, Tags: want.Tags, Expires: want.Expires}
	want.Version = s.write(t, o)[0].Version
	equal := []cmp.Option{cmpopts.IgnoreUnexported(store.Record{}), cmpopts.EquateEmpty()}
	got, err := s.get(t, want.Key.Name)
	if d := cmp.Diff(want, got, equal...); err != nil || d != "" {
		t.Errorf("get: %v (-want +got)\n%s", err, d)
	}
	for r, err := range s.Scan(t.Context(), store.Query{Space: "s"}) {
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, *r, equal...); d != "" {
			t.Errorf("scan (-want +got)\n%s", d)
		}
	}
	s.put(t, "empty", "")
	if r, err := s.get(t, "empty"); err != nil || len(r.Value)+len(r.Meta)+len(r.Tags) != 0 || !r.Expires.IsZero() {
		t.Errorf("an empty record: %+v, %v", r, err)
	}
	large := strings.Repeat("x", store.MaxValue)
	s.put(t, "large", large)
	if r, err := s.get(t, "large"); err != nil || string(r.Value) != large {
		t.Errorf("the largest record: %d bytes, %v", len(r.Value), err)
	}
}

func testConditions(t *testing.T, s *suite) {
	version := s.put(t, "there", "1")
	for _, c := range []struct {
		name string
		If   store.Condition
		ok   bool
	}{
		{"there", store.Condition{Absent: true}, false},
		{"none", store.Condition{Absent: true}, true},
		{"there", store.Condition{Present: true}, true},
		{"none", store.Condition{Present: true}, false},
		{"there", store.Condition{Version: version}, true},
		{"there", store.Condition{Version: version + 1}, false},
		{"none", store.Condition{Version: version}, false},
	} {
		check := store.Op{Action: store.Check, Name: c.name, If: c.If}
		err := s.Write(t.Context(), "s", check)
		var conflict *store.Conflict
		if c.ok && err != nil || !c.ok && !errors.As(err, &conflict) {
			t.Errorf("%s %+v: %v", c.name, c.If, err)
		}
		if conflict != nil && (conflict.Version == version) != (c.name == "there") {
			t.Errorf("%s %+v: the conflict tells version %d", c.name, c.If, conflict.Version)
		}
	}
	for _, action := range []store.Action{store.Put, store.Delete} {
		err := s.Write(t.Context(), "s", store.Op{Action: action, Name: "there", If: store.Condition{Version: version + 1}})
		if r, _ := s.get(t, "there"); err == nil || r.Version != version {
			t.Errorf("action %d under a condition that does not hold: %v, then version %d", action, err, r.Version)
		}
	}
	s.write(t, store.Op{Action: store.Delete, Name: "there", If: store.Condition{Version: version}})
	if _, err := s.get(t, "there"); err == nil {
		t.Error("a record was found after a conditional delete")
	}
}

func testBatch(t *testing.T, s *suite) {
	version := s.put(t, "a", "1")
	err := s.Write(t.Context(), "s",
		store.Op{Action: store.Put, Name: "a", Value: []byte("2"), If: store.Condition{Version: version}},
		store.Op{Action: store.Put, Name: "b", Value: []byte("2"), If: store.Condition{Present: true}})
	if conflict, ok := errors.AsType[*store.Conflict](err); !ok || conflict.Op != 1 || conflict.Version != 0 {
		t.Fatalf("want a conflict of op 1, got %v", err)
	}
	if r, _ := s.get(t, "a"); string(r.Value) != "1" || r.Version != version {
		t.Fatalf("half of a batch was done: %+v", r)
	}
	ops := make([]store.Op, store.MaxOps)
	for i := range ops {
		ops[i] = store.Op{Action: store.Put, Name: fmt.Sprintf("n%02d", i), Value: []byte{byte(i)}}
	}
	ops[0] = store.Op{Action: store.Delete, Name: "a"}
	s.write(t, ops...)
	for i := 1; i < len(ops); i++ {
		if r, err := s.get(t, ops[i].Name); err != nil || r.Version != ops[i].Version {
			t.Fatalf("%s: %v, version %d, written as %d", ops[i].Name, err, r.Version, ops[i].Version)
		}
	}
	if _, err := s.get(t, "a"); err == nil {
		t.Fatal("the delete of a batch was not done")
	}
}

func testLimits(t *testing.T, s *suite) {
	put := func(o store.Op) store.Op { o.Action = store.Put; return o }
	many := make([]store.Op, store.MaxOps+1)
	for i := range many {
		many[i] = put(store.Op{Name: fmt.Sprint(i)})
	}
	for what, ops := range map[string][]store.Op{
		"long name":   {put(store.Op{Name: strings.Repeat("n", store.MaxName+1)})},
		"large value": {put(store.Op{Name: "n", Value: make([]byte, store.MaxValue), Meta: []byte{1}})},
		"many tags":   {put(store.Op{Name: "n", Tags: make([]store.Tag, store.MaxTags+1)})},
		"long tag":    {put(store.Op{Name: "n", Tags: []store.Tag{{Name: "n", Value: strings.Repeat("v", store.MaxTag)}}})},
		"many ops":    many,
	} {
		var large *store.TooLarge
		if err := s.Write(t.Context(), "s", ops...); !errors.As(err, &large) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, ops := range map[string][]store.Op{
		"no name": {put(store.Op{})}, "NUL": {put(store.Op{Name: "a\x00b"})},
		"no ops": nil, "twice": {put(store.Op{Name: "a"}), put(store.Op{Name: "a"})}, "no action": {{Name: "a"}},
	} {
		var invalid *store.Invalid
		if err := s.Write(t.Context(), "s", ops...); !errors.As(err, &invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := s.names(t, store.Query{}); got != "" {
		t.Errorf("rejected writes left %q", got)
	}
}

func testScan(t *testing.T, s *suite) {
	for _, n := range []string{"b", "a/2", "a", "a/1", "a0", "\xff", "a/10"} {
		s.put(t, n, "value of "+n)
	}
	for _, c := range []struct {
		q    store.Query
		want string
	}{
		{store.Query{}, "a a/1 a/10 a/2 a0 b \xff"},
		{store.Query{Prefix: "a/"}, "a/1 a/10 a/2"},
		{store.Query{Prefix: "a/", After: "a/1"}, "a/10 a/2"},
		{store.Query{Prefix: "a/", After: "a"}, "a/1 a/10 a/2"},
		{store.Query{After: "a/2", Limit: 2}, "a0 b"},
		{store.Query{Prefix: "\xff"}, "\xff"},
		{store.Query{Prefix: "a/", After: "b"}, ""},
		{store.Query{Prefix: "c"}, ""},
	} {
		if got := s.names(t, c.q); got != c.want {
			t.Errorf("%+v: %q, want %q", c.q, got, c.want)
		}
	}
	for r, err := range s.Scan(t.Context(), store.Query{Space: "s"}) {
		if err != nil || string(r.Value) != "value of "+r.Key.Name || r.Version == 0 {
			t.Fatalf("scan: %+v, %v", r, err)
		}
		break // leaves the rest unread
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := ReadError(t, s.Scan(ctx, store.Query{Space: "s"})); !errors.Is(err, context.Canceled) {
		t.Fatalf("a scan whose context had ended: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range s.Scan(ctx, store.Query{Space: "s"}) {
		if n++; (err != nil) != (n == 2) {
			t.Fatalf("item %d of a scan whose context ended at the first: %v", n, err)
		}
		cancel()
	}
	if n != 2 {
		t.Fatalf("%d items of a scan whose context ended at the first; want one, and an error", n)
	}
}
