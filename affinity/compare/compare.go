package compare

import (
	"cmp"
	"math"
	"slices"

	"vitrine"
	"vitrine/affinity"
	"vitrine/affinity/course"
	"vitrine/affinity/flow"
)

// A Side is an analysis with its name.
type Side struct {
	Name string
	*affinity.Analysis
}

// Compare returns the changes from a to b. It cannot compare analyses without a common
// function, or with pseudonyms of different keys.
func Compare(a, b Side) (*Comparison, error) {
	if keyOf(a) != keyOf(b) {
		return nil, &vitrine.BadInput{File: b.Name, Found: "its pseudonyms are not of the key of " + a.Name, Want: "analyse both with one --pseudonymise FILE, or both without"}
	}
	if len(a.Types) > 0 && len(b.Types) > 0 && !meet(a, b) {
		return nil, &vitrine.BadInput{File: b.Name, Found: "it has no function of " + a.Name, Want: "give functions of both the same names: --names FILE"}
	}
	c := &comparer{a: a, b: b}
	c.run() // the first run only counts the intervals
	c.sure = Doubt / sure(max(1, c.intervals))
	return c.run(), nil
}

func keyOf(s Side) string {
	if s.Captured == nil {
		return ""
	}
	return s.Captured.Pseudonyms
}

// meet reports whether two analyses have a common function. Outside functions do not count,
// because every capture has UEs.
func meet(a, b Side) bool {
	functions := func(s Side) map[string]bool {
		all := map[string]bool{}
		for _, t := range s.Types {
			for _, p := range t.Pairs {
				all[p.A], all[p.B] = true, true
			}
		}
		for _, outside := range []string{"UE", "eNodeB", "gNodeB", "client"} {
			delete(all, outside)
		}
		return all
	}
	of := functions(a)
	for name := range functions(b) {
		if of[name] {
			return true
		}
	}
	return false
}

// A comparer makes a Comparison.
type comparer struct {
	a, b      Side
	sure      sure // of each interval; 0: only count intervals
	intervals int
}

func (c *comparer) run() *Comparison {
	c.intervals = 0
	out := &Comparison{A: c.a.Name, B: c.b.Name, Doubt: Doubt, Types: []Type{}}
	totals := [2]int{total(c.a), total(c.b)}
	for i := range c.b.Types {
		b := &c.b.Types[i]
		out.Types = append(out.Types, c.one(typed(c.a, b.Type), b, totals))
	}
	for i := range c.a.Types {
		if a := &c.a.Types[i]; typed(c.b, a.Type) == nil {
			out.Types = append(out.Types, c.one(a, nil, totals))
		}
	}
	out.Intervals = c.intervals
	for i := range out.Types {
		out.Changes += out.Types[i].changes()
	}
	return out
}

func typed(s Side, name string) *affinity.Type {
	at := slices.IndexFunc(s.Types, func(t affinity.Type) bool { return t.Type == name })
	if at < 0 {
		return nil
	}
	return &s.Types[at]
}

// total returns the number of measured transactions in an analysis.
func total(s Side) int {
	n := 0
	for _, t := range s.Types {
		n += count(&t)
	}
	return n
}

func count(t *affinity.Type) int {
	if t == nil || t.Measured == nil {
		return 0
	}
	return max(0, t.Measured.Transactions)
}

// one compares a type. a or b is nil if its side has no such transaction.
func (c *comparer) one(a, b *affinity.Type, totals [2]int) Type {
	out := Type{Messages: []Message{}, Times: []Time{}, Count: [2]int{count(a), count(b)}}
	if b != nil {
		out.Type = b.Type
	} else {
		out.Type = a.Type
	}
	if totals[0] > 0 && totals[1] > 0 {
		if share, ok := c.interval(func() Interval { return c.sure.shares(out.Count[0], totals[0], out.Count[1], totals[1]) }); ok {
			out.Share = share
		}
	}
	if a == nil || b == nil {
		return out
	}
	out.Path = c.path(a, b, out.Count)
	out.Aggregate = c.aggregate(a, b, out.Count)
	if out.Count[0] == 0 || out.Count[1] == 0 {
		out.Structural = true
		out.Messages = structural(a, b)
		return out
	}
	c.messages(&out, a.Measured, b.Measured)
	c.times(&out, a.Measured, b.Measured)
	return out
}

// interval computes an interval, and reports whether it shows a change.
func (c *comparer) interval(of func() Interval) (*Interval, bool) {
	c.intervals++
	if c.sure == 0 {
		return nil, false
	}
	i := of()
	return &i, i.changed()
}

// aggregate compares the members of aggregates. A function that rarely takes part may be
// missing in one capture by chance, and then is a member on one side only. So a difference
// counts only if the share of measured transactions with the function changed, or if the
// function takes part in most transactions of both sides.
func (c *comparer) aggregate(a, b *affinity.Type, count [2]int) *Members {
	changed := false
	for _, list := range [][2][]string{{a.Members, b.Members}, {b.Members, a.Members}} {
		for _, name := range list[0] {
			if slices.Contains(list[1], name) {
				continue
			}
			if count[0] == 0 || count[1] == 0 {
				return &Members{a.Members, b.Members}
			}
			takesPart := func(f *affinity.Flow) bool { return slices.Contains(f.Functions, name) }
			x, y, moved := c.shares(a, b, count, takesPart)
			changed = changed || moved || 2*x > count[0] && 2*y > count[1]
		}
	}
	if !changed {
		return nil
	}
	return &Members{a.Members, b.Members}
}

// shares returns how many of the count transactions of each side have a listed course for which is
// returns true, and whether their share changed. Transactions in other courses may count too, so the
// interval is that of the two nearest shares that are possible.
func (c *comparer) shares(a, b *affinity.Type, count [2]int, is func(*affinity.Flow) bool) (x, y int, changed bool) {
	x, y = transactions(a, count[0], is), transactions(b, count[1], is)
	_, changed = c.interval(func() Interval {
		return c.sure.shares(nearest(a, x, count[0], float64(y)/float64(count[1])), count[0],
			nearest(b, y, count[1], float64(x)/float64(count[0])), count[1])
	})
	return x, y, changed
}

// nearest returns how many of n transactions come nearest to a share: at least those in listed courses,
// and any number of those in other courses.
func nearest(t *affinity.Type, listed, n int, share float64) int {
	others := n - transactions(t, n, func(*affinity.Flow) bool { return true })
	return max(listed, min(listed+others, int(share*float64(n))))
}

// transactions returns how many of n transactions have a course for which is returns true.
func transactions(t *affinity.Type, n int, is func(*affinity.Flow) bool) (count int) {
	for i := range t.Flows {
		if is(&t.Flows[i]) {
			count = min(n, count+min(n, max(0, t.Flows[i].Count)))
		}
	}
	return count
}

// path compares the critical paths of the most frequent courses. Which course is the most
// frequent may be chance. So a difference counts only if the share of measured transactions
// that take one of both paths changed.
func (c *comparer) path(a, b *affinity.Type, count [2]int) *Path {
	before, after := firstPath(a), firstPath(b)
	if slices.Equal(before, after) {
		return nil
	}
	changed := count[0] == 0 || count[1] == 0
	if !changed {
		for _, path := range [][]course.Message{before, after} {
			takes := func(f *affinity.Flow) bool { return slices.Equal(critical(f), path) }
			_, _, moved := c.shares(a, b, count, takes)
			changed = changed || moved
		}
	}
	if !changed {
		return nil
	}
	return &Path{Length: [2]int{len(before), len(after)}, New: beyond(after, before), Gone: beyond(before, after)}
}

// firstPath returns the critical path of the most frequent course.
func firstPath(t *affinity.Type) []course.Message {
	if len(t.Flows) == 0 {
		return nil
	}
	return critical(&t.Flows[0])
}

func critical(f *affinity.Flow) (path []course.Message) {
	for _, s := range f.Messages {
		if s.Critical {
			path = append(path, messageOf(s.Message))
		}
	}
	return path
}

func messageOf(m flow.Message) course.Message {
	return course.Message{From: m.From, To: m.To, Name: m.Name}
}

// beyond returns the messages that list has more often than other.
func beyond(list, other []course.Message) []course.Message {
	left := map[course.Message]int{}
	for _, m := range other {
		left[m]++
	}
	out := []course.Message{}
	for _, m := range list {
		if left[m]--; left[m] < 0 {
			out = append(out, m)
		}
	}
	return out
}

// structural compares the sets of messages in the courses.
func structural(a, b *affinity.Type) []Message {
	of := func(t *affinity.Type) (list []course.Message) {
		for _, f := range t.Flows {
			for _, s := range f.Messages {
				if m := messageOf(s.Message); !slices.Contains(list, m) {
					list = append(list, m)
				}
			}
		}
		return list
	}
	before, after := of(a), of(b)
	out := []Message{}
	for _, m := range beyond(after, before) {
		out = append(out, Message{Message: m, What: New})
	}
	for _, m := range beyond(before, after) {
		out = append(out, Message{Message: m, What: Vanished})
	}
	return out
}

// messages compares how often messages are sent in a transaction.
func (c *comparer) messages(out *Type, a, b *course.Measured) {
	counts := [2]map[course.Message]int{{}, {}}
	var order []course.Message
	for side, m := range []*course.Measured{b, a} {
		of := counts[1-side]
		for _, h := range m.Hops {
			if counts[0][h.Message]+counts[1][h.Message] == 0 && h.Count > 0 {
				order = append(order, h.Message)
			}
			of[h.Message] = max(0, h.Count)
		}
	}
	for _, m := range order {
		x, y := counts[0][m], counts[1][m]
		if x == 0 && a.Beyond > 0 || y == 0 && b.Beyond > 0 { // perhaps it was not kept
			out.TooFew++
			continue
		}
		rate, ok := c.interval(func() Interval { return c.sure.rates(x, a.Transactions, y, b.Transactions) })
		what := ""
		switch {
		case x == 0:
			what = New
		case y == 0:
			what = Vanished
		case ok && rate.Least > 0:
			what = More
		case ok:
			what = Fewer
		}
		if ok {
			out.Messages = append(out.Messages, Message{m, what, rate})
		} else if x == 0 || y == 0 {
			out.TooFew++
		}
	}
}

// times compares the duration, hops and processing steps.
func (c *comparer) times(out *Type, a, b *course.Measured) {
	if d := c.median(out, a.Duration, b.Duration); d != nil {
		out.Duration = d
	}
	add := func(t Time, x, y *flow.Times) {
		if i := c.median(out, x, y); i != nil {
			t.Interval = *i
			out.Times = append(out.Times, t)
		}
	}
	hops := map[course.Message]*course.Hop{}
	for i := range a.Hops {
		hops[a.Hops[i].Message] = &a.Hops[i]
	}
	for _, h := range b.Hops {
		if before := hops[h.Message]; before != nil {
			add(Time{Of: Way, Message: h.Message}, before.Way, h.Way)
			add(Time{Of: Answer, Message: h.Message}, before.Answer, h.Answer)
		}
	}
	type step struct{ function, in, out string }
	steps := map[step]*flow.Times{}
	for _, p := range a.Processing {
		steps[step{p.Function, p.In, p.Out}] = p.Times
	}
	for _, p := range b.Processing {
		if before, ok := steps[step{p.Function, p.In, p.Out}]; ok {
			add(Time{Of: Processing, Message: course.Message{From: p.Function, Name: p.Out}, In: p.In}, before, p.Times)
		}
	}
	slices.SortStableFunc(out.Times, func(x, y Time) int { return byChange(x.Interval, y.Interval) })
}

// byChange sorts the largest change first.
func byChange(a, b Interval) int {
	return cmp.Compare(math.Abs(b.B-b.A), math.Abs(a.B-a.A))
}

// median returns the change of a median, or nil if it did not change or there are too few
// batches.
func (c *comparer) median(out *Type, a, b *flow.Times) *Interval {
	if a == nil || b == nil {
		return nil
	}
	if a.Batches < 2 || b.Batches < 2 {
		out.TooFew++
		return nil
	}
	if i, ok := c.interval(func() Interval { return c.sure.medians(a, b) }); ok {
		return i
	}
	return nil
}
