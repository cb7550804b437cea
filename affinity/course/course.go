package course

import (
	"unsafe"

	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
)

// A course aggregates the transactions that took the same course.
type course struct {
	count    int
	rank     int    // count, and the floor of its type when it was new
	first    uint64 // ID of the first transaction
	last     int    // number of the last transaction, of those of its type
	bytes    int    // its memory
	duration sketch
	steps    []coursed
	listed   []int32 // the steps in the order of a call flow
	critical []int32 // the steps on the critical path
	gaps     []sketch
	ways     []sketch
}

// A coursed is a message of a course.
type coursed struct {
	edge
	async bool
	bytes float64
	after sketch
}

// course adds a transaction to its course.
func (k *kind) course(v *view, e *correlate.Event) {
	c := k.courses[v.key]
	if c == nil {
		if len(k.courses) == maxCourses {
			k.drop()
		}
		c = newCourse(v, e)
		c.rank = k.floor
		k.courses[v.key] = c
		k.bytes += c.bytes
	}
	c.count++
	c.rank++
	c.last = k.count
	grown := c.duration.add(v.steps[v.end()].At() - e.Begin)
	for i, at := range v.order {
		s := &v.steps[at]
		c.steps[i].bytes += float64(s.Bytes)
		grown += c.steps[i].after.add(s.Time - e.Begin)
	}
	before := e.Begin
	for i, at := range c.critical {
		s := &v.steps[v.order[at]]
		grown += c.gaps[i].add(s.Time - before)
		grown += c.ways[i].add(s.At() - s.Time)
		before = s.At()
	}
	c.bytes += grown
	k.bytes += grown
}

// drop forgets the course of the lowest rank, to make room. Of equal ones it forgets the one unseen for
// longest. Its rank is the floor for new courses: each may be one that was dropped and comes back. drop
// looks at all maxCourses courses, which costs less than a new course.
func (k *kind) drop() {
	var key uint64
	var least *course
	for hash, c := range k.courses {
		if least == nil || c.rank < least.rank || c.rank == least.rank && c.last < least.last {
			key, least = hash, c
		}
	}
	delete(k.courses, key)
	k.dropped.Courses++
	k.dropped.Transactions += least.count
	k.bytes -= least.bytes
	k.floor = least.rank
}

func newCourse(v *view, e *correlate.Event) *course {
	c := &course{first: e.ID, steps: make([]coursed, len(v.steps))}
	place := make([]int32, len(v.steps)) // the index in c.steps of each of v.steps
	for i, at := range v.order {
		s := &v.steps[at]
		c.steps[i] = coursed{edge: s.edge(), async: s.async}
		place[at] = int32(i)
	}
	for _, at := range v.listed {
		c.listed = append(c.listed, place[at])
		if v.steps[at].critical {
			c.critical = append(c.critical, place[at])
		}
	}
	c.gaps, c.ways = make([]sketch, len(c.critical)), make([]sketch, len(c.critical))
	c.bytes = int(unsafe.Sizeof(*c)) + len(c.steps)*int(unsafe.Sizeof(coursed{})) + 2*len(c.critical)*int(unsafe.Sizeof(sketch{})) +
		4*(cap(c.listed)+cap(c.critical))
	return c
}

// flow returns the course as the transaction of a call flow.
func (c *course) flow(kind string, l *labels, n Names, database func(string) bool) *flow.Transaction {
	t := &flow.Transaction{Type: kind, Count: c.count, Duration: c.duration.times(), Roles: map[string]flow.Role{}}
	for _, at := range c.listed {
		s := &c.steps[at]
		t.Messages = append(t.Messages, flow.Message{From: l.list[s.from], To: l.list[s.to], Name: n.Name(s.name), Async: s.async,
			Bytes: int(s.bytes/float64(c.count) + 0.5), After: s.after.times()})
		for _, at := range []int32{s.from, s.to} {
			switch {
			case database(l.list[at]):
				t.Roles[l.list[at]] = flow.Database
			case l.isOutside(at):
				t.Roles[l.list[at]] = flow.Outside
			}
		}
	}
	t.Rename(func(name string) string { return name }) // leaves out messages between functions of one name
	return t
}

// path returns the critical path with its times.
func (c *course) path(l *labels, n Names) []Segment {
	whole := 0.0
	for i := range c.gaps {
		whole += c.gaps[i].mean() + c.ways[i].mean()
	}
	list := make([]Segment, 0, len(c.critical))
	in := ""
	for i, at := range c.critical {
		s := &c.steps[at]
		g := Segment{Function: l.list[s.from], In: in, Out: n.Name(s.name), To: l.list[s.to], Mean: c.gaps[i].mean(), Times: c.gaps[i].times(), Way: c.ways[i].mean()}
		if whole > 0 {
			g.Share = (g.Mean + g.Way) / whole
		}
		list = append(list, g)
		in = g.Out
	}
	return list
}
