package course

import (
	"testing"

	"vitrine/affinity/correlate"
)

// TestCoursesStayWithinTheirMemory: rare courses of a type make room. Its frequent course stays, and so
// does the only course of another type. Messages of hops without room are counted.
func TestCoursesStayWithinTheirMemory(t *testing.T) {
	const frequent, rare, room = 300, 100, 256
	var c *Collector
	correlator := correlate.New(correlate.Options{}, func(e *correlate.Event) {
		if c.Add(e); c.bytes > c.memory {
			t.Errorf("courses take %d bytes, want at most %d", c.bytes, c.memory)
		}
	})
	c = New(correlator, 0)
	c.memory, c.room = 48<<10, room
	all := [][]said{record(false)}
	for range frequent {
		all = append(all, subscribe(false))
	}
	for n := range rare {
		all = append(all, refused(n))
	}
	say(correlator, all...)
	r := c.Result(func(string) bool { return false })
	sum, details := 0, 0
	for _, k := range c.order {
		details += len(k.hops) + len(k.processing)
		for _, one := range k.courses {
			sum += one.bytes
		}
	}
	if sum != c.bytes || len(c.types["SUBSCRIBE"].courses) == maxCourses {
		t.Errorf("%d courses are left, of %d bytes, counted as %d", len(c.types["SUBSCRIBE"].courses), sum, c.bytes)
	}
	m := r.Measured["SUBSCRIBE"]
	messages := m.Beyond
	for _, h := range m.Hops {
		messages += h.Count
	}
	if details != room || m.Beyond == 0 || messages != c.types["SUBSCRIBE"].messages {
		t.Errorf("got %d hops and processing steps, %d messages, %d of them beyond", details, messages, m.Beyond)
	}
	if len(r.Flows) != 2 || r.Flows[1].Count != frequent {
		t.Errorf("got courses %+v", r.Flows)
	}
	if got, want := m.Rare, (Rare{Courses: rare, Transactions: rare}); got != want {
		t.Errorf("got rare courses %+v, want %+v", got, want)
	}
	if got := r.Measured["MESSAGE"].Rare; got != (Rare{}) {
		t.Errorf("got rare courses %+v of the other type, want none", got)
	}
}

// TestASketchCountsItsMemory adds times in both directions of its range.
func TestASketchCountsItsMemory(t *testing.T) {
	var s sketch
	grown := 0
	for _, ns := range []int64{1e6, 1e9, 1e3, 2e6} {
		grown += s.add(ns)
	}
	if grown == 0 || grown != 8*cap(s.buckets) {
		t.Errorf("got %d bytes for %d buckets", grown, cap(s.buckets))
	}
}
