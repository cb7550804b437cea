package storetest

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"vitrine/internal/hosttest"
	"vitrine/store"
)

func tags(pairs ...string) []store.Tag {
	var all []store.Tag
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, store.Tag{Name: pairs[i], Value: pairs[i+1]})
	}
	return all
}

func testMatch(t *testing.T, s *suite) {
	for name, of := range map[string][]store.Tag{
		"u1": tags("ue", "001", "cell", "a"),
		"u2": tags("ue", "002", "cell", "a"),
		"u3": tags("ue", "003", "ue", "005"),
		"v4": tags("ue", "00"),
		"v5": tags("uex", "002"),
		"v6": nil,
	} {
		s.write(t, store.Op{Action: store.Put, Name: name, Tags: of, Value: []byte(name)})
	}
	for _, c := range []struct {
		m    store.Match
		q    store.Query
		want string
	}{
		{m: store.Match{Tag: "ue", Op: store.Equal, Value: "002"}, want: "u2"},
		{m: store.Match{Tag: "cell", Op: store.Equal, Value: "a"}, want: "u1 u2"},
		{m: store.Match{Tag: "ue", Op: store.NotEqual, Value: "002"}, want: "v4 u1 u3 u3"},
		{m: store.Match{Tag: "ue", Op: store.Greater, Value: "002"}, want: "u3 u3"},
		{m: store.Match{Tag: "ue", Op: store.Greater, Value: "00"}, want: "u1 u2 u3 u3"},
		{m: store.Match{Tag: "ue", Op: store.GreaterOrEqual, Value: "002"}, want: "u2 u3 u3"},
		{m: store.Match{Tag: "ue", Op: store.Less, Value: "002"}, want: "v4 u1"},
		{m: store.Match{Tag: "ue", Op: store.LessOrEqual, Value: "002"}, want: "v4 u1 u2"},
		{m: store.Match{Tag: "ue", Op: store.LessOrEqual, Value: "002"}, q: store.Query{Prefix: "u"}, want: "u1 u2"},
		{m: store.Match{Tag: "ue", Op: store.GreaterOrEqual, Value: ""}, q: store.Query{Limit: 2}, want: "v4 u1"},
		{m: store.Match{Tag: "none", Op: store.GreaterOrEqual, Value: ""}, want: ""},
	} {
		c.q.Match = &c.m
		if got := s.names(t, c.q); got != c.want {
			t.Errorf("%+v %+v: %q, want %q", c.m, c.q, got, c.want)
		}
	}
	q := store.Query{Space: "s", Match: &store.Match{Tag: "ue", Op: store.Equal, Value: "001"}}
	for r, err := range s.Scan(t.Context(), q) {
		if err != nil || string(r.Value) != "u1" || len(r.Tags) != 2 {
			t.Errorf("match gives %+v, %v", r, err)
		}
	}
	var invalid *store.Invalid
	if err := ReadError(t, s.Scan(t.Context(), store.Query{Space: "s", Match: &store.Match{Tag: "ue"}})); !errors.As(err, &invalid) {
		t.Errorf("a match without comparison: %v", err)
	}
}

func testReindex(t *testing.T, s *suite) {
	by := func(value string) string {
		return s.names(t, store.Query{Match: &store.Match{Tag: "t", Op: store.Equal, Value: value}})
	}
	put := func(of ...store.Tag) {
		s.write(t, store.Op{Action: store.Put, Name: "r", Tags: of})
	}
	put(tags("t", "1", "t", "2")...)
	put(tags("t", "2", "t", "3")...)
	if got := by("1") + "|" + by("2") + "|" + by("3"); got != "|r|r" {
		t.Errorf("after other tags: %q", got)
	}
	put()
	if got := by("2") + by("3"); got != "" {
		t.Errorf("after no tags: %q", got)
	}
	put(tags("t", "4")...)
	s.write(t, store.Op{Action: store.Delete, Name: "r"})
	if got := by("4"); got != "" {
		t.Errorf("after delete: %q", got)
	}
	s.write(t, store.Op{Action: store.Put, Name: "r", Tags: tags("t", "5"), Expires: s.clock.Now().Add(time.Second)})
	s.clock.Advance(time.Second)
	if got := by("5"); got != "" {
		t.Errorf("after expiry: %q", got)
	}
	put(tags("t", "6")...)
	if got := by("5") + "|" + by("6"); got != "|r" {
		t.Errorf("made again over an expired record: %q", got)
	}
}

// testScanBytes scans records of 1 MiB. However many there are, the engine may hold a few at a time.
func testScanBytes(t *testing.T, s *suite) {
	const records, most = 48, 24 << 20
	value := make([]byte, store.MaxValue)
	for i := range records {
		s.write(t, store.Op{Action: store.Put, Name: fmt.Sprintf("%02d", i), Value: value, Tags: tags("t", "v")})
	}
	for _, m := range []*store.Match{nil, {Tag: "t", Op: store.Equal, Value: "v"}} {
		before, n := heap(), 0
		for r, err := range s.Scan(t.Context(), store.Query{Space: "s", Match: m}) {
			if err != nil || len(r.Value) != store.MaxValue || r.Key.Name != fmt.Sprintf("%02d", n) {
				t.Fatalf("record %d: %s of %d bytes, %v", n, r.Key.Name, len(r.Value), err)
			}
			if n++; n == 1 { // the engine may still work on the writes in the background
				what := fmt.Sprintf("match %v: at most %d MiB are held at the first record", m, most>>20)
				hosttest.Until(t, 20*time.Second, what, func() bool { return heap()-before <= most })
			}
		}
		if n != records {
			t.Errorf("match %v: %d records of %d", m, n, records)
		}
	}
}

// heap returns the bytes in use after a garbage collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
