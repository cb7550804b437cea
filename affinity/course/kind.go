package course

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
	"vitrine/affinity/message"
)

// A kind aggregates the transactions of one type.
type kind struct {
	name       string
	count      int
	messages   int
	repeats    int
	unanswered int
	givenUp    int
	duration   timed
	begins     map[edge]int
	ends       map[edge]int
	failures   map[edge]int
	hops       map[edge]*hop
	processing map[process]*timed
	does       map[int32]*doing
	courses    map[uint64]*course
	dropped    Rare
	bytes      int  // of its courses
	floor      int  // the rank of the course that was dropped last
	beyond     int  // messages of hops that are not kept
	room       *int // hops and processing steps that all types may still add
}

// An edge is a kind of message between two labels.
type edge struct{ from, to, name int32 }

type hop struct {
	count  int
	way    timed
	answer timed
}

type process struct{ function, in, out int32 }

// A doing counts what a function does.
type doing struct{ receives, sends, passes, asks, decides, absorbs int }

func newKind(name string, room *int) *kind {
	return &kind{name: name, begins: map[edge]int{}, ends: map[edge]int{}, failures: map[edge]int{}, hops: map[edge]*hop{},
		processing: map[process]*timed{}, does: map[int32]*doing{}, courses: map[uint64]*course{}, room: room}
}

// add adds a transaction.
func (k *kind) add(v *view, e *correlate.Event) {
	k.count++
	k.messages += len(e.Steps)
	k.repeats += e.Repeats
	for i := range v.steps {
		k.step(v, i)
	}
	increment(k.begins, v.steps[0].edge())
	if e.GivenUp {
		k.givenUp++
		return
	}
	k.unanswered += e.Unanswered // not of those given up: their answers may come later
	end := v.end()
	increment(k.ends, v.steps[end].edge())
	k.duration.add(v.steps[end].At() - e.Begin)
	k.course(v, e)
}

func (s *viewed) edge() edge { return edge{s.from, s.to, s.Name} }

// end returns the index of the last message that a function waits for.
func (v *view) end() int {
	for i := len(v.steps) - 1; i > 0; i-- {
		if !v.steps[i].async {
			return i
		}
	}
	return 0
}

func increment[K comparable](counts map[K]int, key K) {
	if _, known := counts[key]; known || len(counts) < maxDetails {
		counts[key]++
	}
}

// step adds one message.
func (k *kind) step(v *view, i int) {
	s := &v.steps[i]
	if s.Failed {
		increment(k.failures, s.edge())
	}
	from, to := k.doing(s.from), k.doing(s.to)
	from.sends++
	to.receives++
	to.absorbs += int(s.Repeats)
	if s.cause >= 0 {
		k.process(&v.steps[s.cause], s)
	}
	switch {
	case s.passes >= 0:
		from.passes++
		from.absorbs -= int(min(s.Repeats, v.steps[s.passes].Repeats)) // it passed on these retransmissions too
	case s.Kind == message.Answer:
		from.decides++
	default:
		from.asks++
	}
	if s.Request >= 0 {
		r := &v.steps[s.Request]
		if h := k.hop(r.edge()); h != nil && !s.async && !s.interim {
			h.answer.add(s.At() - r.Time)
		}
	}
	if h := k.hop(s.edge()); h != nil {
		h.count++
		if s.Arrived > 0 {
			h.way.add(s.Arrived - s.Time)
		}
	} else {
		k.beyond++
	}
}

func (k *kind) process(cause, s *viewed) {
	key := process{s.from, cause.Name, s.Name}
	p := k.processing[key]
	if p == nil {
		if len(k.processing) == maxDetails || *k.room == 0 {
			return
		}
		*k.room--
		p = &timed{}
		k.processing[key] = p
	}
	p.add(s.Time - cause.At())
}

func (k *kind) hop(e edge) *hop {
	h := k.hops[e]
	if h == nil && len(k.hops) < maxDetails && *k.room > 0 {
		*k.room--
		h = &hop{}
		k.hops[e] = h
	}
	return h
}

func (k *kind) doing(label int32) *doing {
	d := k.does[label]
	if d == nil {
		d = &doing{}
		k.does[label] = d
	}
	return d
}

// result returns the frequent courses and the measurements.
func (k *kind) result(l *labels, n Names, database func(string) bool) ([]*flow.Transaction, *Measured) {
	list := slices.SortedFunc(maps.Values(k.courses), func(a, b *course) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.first, b.first))
	})
	m := &Measured{Type: k.name, Transactions: k.count, Messages: float64(k.messages) / float64(max(1, k.count)), Duration: k.duration.times(),
		Repeats: k.repeats, Unanswered: k.unanswered, GivenUp: k.givenUp, Rare: k.dropped, Beyond: k.beyond,
		Failures: []Failure{}, Path: []Segment{}, Functions: []Function{}, Hops: []Hop{}, Processing: []Process{}}
	var flows []*flow.Transaction
	for i, c := range list {
		if len(flows) == maxListed || i > 0 && c.count*rarely < k.count {
			m.Rare.Courses++
			m.Rare.Transactions += c.count
			continue
		}
		t := c.flow(k.name, l, n, database)
		t.Title = fmt.Sprintf("%s, course %d", k.name, i+1)
		t.Source = fmt.Sprintf("capture/%s-%d", k.name, i+1)
		if len(t.Messages) > 0 {
			flows = append(flows, t)
		}
	}
	text := func(e edge) Message { return Message{l.list[e.from], l.list[e.to], n.Name(e.name)} }
	m.Begins = text(byCount(k.begins)[0])
	if ends := byCount(k.ends); len(ends) > 0 {
		m.Ends = text(ends[0])
	}
	for _, e := range byCount(k.failures) {
		m.Failures = append(m.Failures, Failure{text(e), k.failures[e]})
	}
	if len(list) > 0 {
		m.Path = list[0].path(l, n)
	}
	k.functions(m, l)
	k.details(m, l, n)
	return flows, m
}

// functions adds what each function does.
func (k *kind) functions(m *Measured, l *labels) {
	mean := func(n int) float64 { return float64(n) / float64(k.count) }
	for _, label := range slices.Sorted(maps.Keys(k.does)) {
		d := k.does[label]
		f := Function{Name: l.list[label], Receives: mean(d.receives), Sends: mean(d.sends), Passes: mean(d.passes), Asks: mean(d.asks),
			Decides: mean(d.decides), Absorbs: mean(d.absorbs), Outside: l.isOutside(label)}
		for _, s := range m.Path {
			if s.Function == f.Name {
				f.Time = round(f.Time + s.Mean)
				f.Share += s.Share
			}
		}
		m.Functions = append(m.Functions, f)
	}
}

// details adds hops and processing steps, the most frequent first.
func (k *kind) details(m *Measured, l *labels, n Names) {
	hops := map[edge]int{}
	for e, h := range k.hops {
		if h.count > 0 {
			hops[e] = h.count
		}
	}
	for _, e := range byCount(hops) {
		h := k.hops[e]
		m.Hops = append(m.Hops, Hop{Message{l.list[e.from], l.list[e.to], n.Name(e.name)}, h.count, h.way.times(), h.answer.times()})
	}
	for p, s := range k.processing {
		m.Processing = append(m.Processing, Process{l.list[p.function], n.Name(p.in), n.Name(p.out), int(s.count), s.times()})
	}
	slices.SortFunc(m.Processing, func(a, b Process) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Function, b.Function), cmp.Compare(a.In, b.In), cmp.Compare(a.Out, b.Out))
	})
}

// byCount returns the keys of counts, the largest count first.
func byCount(counts map[edge]int) []edge {
	return slices.SortedFunc(maps.Keys(counts), func(a, b edge) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.name, b.name))
	})
}
