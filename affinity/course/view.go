package course

import (
	"cmp"
	"hash/maphash"
	"slices"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

// A view is a transaction as its course sees it. It is reused.
type view struct {
	steps  []viewed
	order  []int32 // of the messages in the course, as indexes into steps
	key    uint64
	nth    map[string]int
	local  map[int32]int32 // labels of the functions of this transaction
	depth  map[int32]int32
	served map[int32]served
	seed   maphash.Seed
	hash   maphash.Hash
}

// A viewed is a message.
type viewed struct {
	*correlate.Step
	from, to int32 // labels
	async    bool
	depth    int32
}

// served is what a function received last that is no answer.
type served struct {
	trigger int32 // the step; -1: nothing
}

// set makes the view of a transaction.
func (v *view) set(e *correlate.Event, l *labels, n Names) {
	if v.local == nil {
		v.nth, v.local, v.depth, v.served = map[string]int{}, map[int32]int32{}, map[int32]int32{}, map[int32]served{}
		v.seed = maphash.MakeSeed()
		v.hash.SetSeed(v.seed)
	}
	clear(v.nth)
	clear(v.local)
	v.steps = v.steps[:0]
	label := func(function int32) int32 {
		at, ok := v.local[function]
		if !ok {
			at = l.of(function, func(what string) int { v.nth[what]++; return v.nth[what] - 1 })
			v.local[function] = at
		}
		return at
	}
	for i := range e.Steps {
		s := &e.Steps[i]
		v.steps = append(v.steps, viewed{Step: s, from: label(s.From), to: label(s.To), async: provisional(s, n.Name(s.Name))})
	}
	v.tails()
	v.sort()
}

// tails marks the messages that nobody waits for: what a function begins after it has
// answered what made it begin that, and what follows from it. But a function that asks
// the same one several times in one transaction keeps a session there, in which each
// request waits for the answer to the one before (RFC 6733 section 8.2); and whoever
// began the transaction waits for what he receives.
func (v *view) tails() {
	clear(v.served)
	var roots []int32
	for i := range v.steps {
		s := &v.steps[i]
		if i > 0 && s.Kind != message.Answer {
			if at, ok := v.served[s.From]; ok && v.answered(at.trigger, int32(i)) && !v.steps[at.trigger].async {
				roots = append(roots, int32(i))
			}
		}
		if s.Kind != message.Answer {
			v.served[s.To] = served{int32(i)}
		}
	}
	for _, root := range roots {
		if !v.session(roots, root) {
			v.tail(root)
		}
	}
}

// answered reports whether a step is a request with a final answer before another step.
func (v *view) answered(request, before int32) bool {
	if v.steps[request].Kind != message.Request {
		return false
	}
	for i := request + 1; i < before; i++ {
		if v.steps[i].Request == request && v.steps[i].From == v.steps[request].To && !v.steps[i].provisional() {
			return true
		}
	}
	return false
}

// provisional reports whether the answer proper follows.
func (s *viewed) provisional() bool { return s.async }

func (v *view) session(roots []int32, root int32) bool {
	for _, r := range roots {
		if r != root && v.steps[r].From == v.steps[root].From && v.steps[r].To == v.steps[root].To && v.steps[r].Kind == message.Request {
			return true
		}
	}
	return false
}

// tail marks what follows from a step that nobody waits for, unless it comes back to
// whoever began the transaction.
func (v *view) tail(root int32) {
	marked := []int32{root}
	in := func(i int32) bool { return slices.Contains(marked, i) }
	begins := v.steps[0].From
	back := v.steps[root].To == begins
	for i := root + 1; i < int32(len(v.steps)) && !back; i++ {
		s := &v.steps[i]
		follows := s.Request >= 0 && in(s.Request) || s.Cause >= 0 && in(s.Cause) && s.From != v.steps[root].From
		if !follows {
			continue
		}
		marked = append(marked, i)
		back = s.To == begins
	}
	if back {
		return
	}
	for _, i := range marked {
		v.steps[i].async = true
	}
}

// sort brings the messages into the order of their course: messages of the same
// functions in the order of time, and those that have no function in common in one that
// does not depend on it (Foata's normal form: by the length of the longest chain that
// leads to a message). Messages that nobody waits for come last.
func (v *view) sort() {
	clear(v.depth)
	v.order = v.order[:0]
	for i := range v.steps {
		s := &v.steps[i]
		v.order = append(v.order, int32(i))
		if s.async {
			continue
		}
		s.depth = 1 + max(v.depth[s.from], v.depth[s.to])
		v.depth[s.from], v.depth[s.to] = s.depth, s.depth
	}
	slices.SortStableFunc(v.order, func(a, b int32) int {
		x, y := &v.steps[a], &v.steps[b]
		if x.async != y.async {
			if x.async {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(x.depth, y.depth), cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to), cmp.Compare(x.Name, y.Name))
	})
	v.hash.Reset()
	for _, i := range v.order {
		s := &v.steps[i]
		async := byte(0)
		if s.async {
			async = 1
		}
		for _, number := range [3]int32{s.from, s.to, s.Name} {
			_, _ = v.hash.Write([]byte{byte(number), byte(number >> 8), byte(number >> 16), byte(number >> 24)})
		}
		_ = v.hash.WriteByte(async)
	}
	v.key = v.hash.Sum64()
}
