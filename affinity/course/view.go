package course

import (
	"cmp"
	"hash/maphash"
	"slices"

	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
	"vitrine/affinity/message"
)

// A view is a transaction with the labels, causes and critical path that its course needs.
// It is reused.
type view struct {
	steps           []viewed
	order           []int32 // the messages in the order of the course, as indexes into steps
	listed          []int32 // the same messages in the order of a call flow
	hops            []flow.Hop
	paths           flow.Paths
	depth           map[int32]int32 // by label: length of the longest chain that it has received
	key             uint64
	nth             map[string]int
	local           map[int32]int32 // labels of the functions of this transaction
	served          map[int32]int32 // by function: the last message that it received, answers excepted
	stack, tailed   []int32
	roots, triggers []int32 // the first step of each tail, and the step that triggered it
	habits          map[habit]*tally
	seed            maphash.Seed
	hash            maphash.Hash
}

// A viewed is a message of a view.
type viewed struct {
	*correlate.Step
	from, to int32 // labels
	async    bool
	passed   bool
	critical bool
	depth    int32 // messages of the longest chain that it ends; 0: nobody waits for it
	cause    int32 // index of the step that made its sender send it; -1: none
	caused   int32 // index of the first step that it caused; -1: none
	next     int32 // index of the next step of the same cause; -1: none
	tail     int32 // the root of the tail that it is in, from 1; 0: none
}

// A habit identifies the messages with one name that a function sends.
type habit struct{ from, name int32 }

// A tally counts how often a function sent the message of a habit, and how often it
// answered the triggering request without waiting for the message.
type tally struct{ all, unwaited int }

// set fills the view from a transaction.
func (v *view) set(e *correlate.Event, l *labels, n Names) {
	v.learn(e, l, n)
	v.sort()
	v.list()
	v.sign()
}

// learn reads the messages of a transaction and marks those that nobody waits for. It counts
// the habits of the functions.
func (v *view) learn(e *correlate.Event, l *labels, n Names) {
	if v.local == nil {
		v.nth, v.local, v.served = map[string]int{}, map[int32]int32{}, map[int32]int32{}
		v.habits, v.depth = map[habit]*tally{}, map[int32]int32{}
		v.seed = maphash.MakeSeed()
		v.hash.SetSeed(v.seed)
	}
	clear(v.nth)
	clear(v.local)
	v.steps = v.steps[:0]
	named := func(name string) bool {
		return slices.ContainsFunc(e.Steps, func(s correlate.Step) bool { return n.Function(s.From) == name || n.Function(s.To) == name })
	}
	label := func(function int32) int32 {
		at, ok := v.local[function]
		if !ok {
			at = l.of(function, func(what string) int { v.nth[what]++; return v.nth[what] - 1 }, named)
			v.local[function] = at
		}
		return at
	}
	for i := range e.Steps {
		s := &e.Steps[i]
		v.steps = append(v.steps, viewed{Step: s, from: label(s.From), to: label(s.To), async: provisional(s, n.Name(s.Name)), caused: -1, next: -1})
	}
	v.causes()
	v.tails()
}

// causes finds for each message the message that made its sender send it. This need not be
// the last one that the sender received, because messages cross. A received message with
// the same name that was not passed on yet takes precedence.
func (v *view) causes() {
	for i := range v.steps {
		s := &v.steps[i]
		s.cause = s.Cause
		for k := i - 1; k >= 0; k-- {
			before := &v.steps[k]
			if before.To == s.From && before.Name == s.Name && !before.passed && (s.Kind != message.Answer || before.Kind == message.Answer) {
				before.passed = true
				s.cause = int32(k)
				break
			}
		}
	}
}

// tails marks the messages that no function waits for. A tail begins with a request or
// notice of a function that answers its trigger without waiting, and includes all that
// follows from it. There are two exceptions. A function that asks the same function several
// times in one transaction keeps a session there, in which each request waits for the
// answer to the one before (RFC 6733 section 8.2). And the function that began the
// transaction waits for what it receives, and continues with what it sends.
func (v *view) tails() {
	clear(v.served)
	v.roots, v.triggers = v.roots[:0], v.triggers[:0]
	for i := range v.steps {
		s := &v.steps[i]
		if s.Kind == message.Answer {
			continue
		}
		if trigger, ok := v.served[s.From]; ok && s.From != v.steps[0].From && v.unwaited(trigger, int32(i)) {
			v.roots, v.triggers = append(v.roots, int32(i)), append(v.triggers, trigger)
		}
		v.served[s.To] = int32(i)
	}
	for k, root := range v.roots {
		if !v.session(k) {
			v.tail(root)
		}
	}
}

// unwaited reports whether a function usually answers a trigger without waiting for the
// message that it sends because of it. It counts over all transactions, because the order
// in one may mislead: a function may send a late message while it serves the user's next
// request, which then looks like the trigger.
func (v *view) unwaited(trigger, asked int32) bool {
	here := v.answered(trigger, v.settled(asked))
	of := habit{v.steps[asked].from, v.steps[asked].Name}
	t := v.habits[of]
	if t == nil {
		if len(v.habits) == maxHabits {
			return here
		}
		t = &tally{}
		v.habits[of] = t
	}
	t.all++
	if here {
		t.unwaited++
	}
	return 2*t.unwaited >= t.all
}

// settled returns the index of the final answer to a request. For any other message it
// returns the index of the message, and for an unanswered request the number of steps.
func (v *view) settled(request int32) int32 {
	if v.steps[request].Kind != message.Request {
		return request
	}
	for i := request + 1; i < int32(len(v.steps)); i++ {
		if v.steps[i].Request == request && !v.steps[i].async {
			return i
		}
	}
	return int32(len(v.steps))
}

// answered reports whether a step is a request with a final answer before another step.
func (v *view) answered(request, before int32) bool {
	if v.steps[request].Kind != message.Request {
		return false
	}
	for i := request + 1; i < before; i++ {
		if v.steps[i].Request == request && v.steps[i].From == v.steps[request].To && !v.steps[i].async {
			return true
		}
	}
	return false
}

// session reports whether the function asks the same function again later because of
// another message, as at the beginning and the end of a call. Serving the same request
// twice is no session. For the last request of a session it returns false, because nothing
// waits for it.
func (v *view) session(k int) bool {
	root, trigger := &v.steps[v.roots[k]], &v.steps[v.triggers[k]]
	for i := k + 1; i < len(v.roots); i++ {
		r := &v.steps[v.roots[i]]
		if r.Kind == message.Request && r.From == root.From && r.To == root.To && v.steps[v.triggers[i]].Name != trigger.Name {
			return true
		}
	}
	return false
}

// tail marks the messages that follow from a step that nobody waits for, unless one of them
// returns to the function that began the transaction.
func (v *view) tail(root int32) {
	v.tailed = append(v.tailed[:0], root)
	v.steps[root].tail = root + 1
	in := func(i int32) bool { return v.steps[i].tail == root+1 }
	begins := v.steps[0].From
	back := v.steps[root].To == begins
	for i := root + 1; i < int32(len(v.steps)) && !back; i++ {
		s := &v.steps[i]
		follows := s.Request >= 0 && in(s.Request) || s.cause >= 0 && in(s.cause) && s.From != v.steps[root].From
		if !follows {
			continue
		}
		v.tailed = append(v.tailed, i)
		s.tail = root + 1
		back = s.To == begins
	}
	if back {
		return
	}
	for _, i := range v.tailed {
		v.steps[i].async = true
	}
}

// sort puts the messages into the order of their course: each message, followed by the
// messages that it caused. So the order does not depend on how independent messages cross.
func (v *view) sort() {
	v.order, v.stack = v.order[:0], v.stack[:0]
	for i := len(v.steps) - 1; i >= 0; i-- { // from the last, so that the lists are in order
		if s := &v.steps[i]; s.cause >= 0 {
			s.next, v.steps[s.cause].caused = v.steps[s.cause].caused, int32(i)
		}
	}
	for i := range v.steps {
		if v.steps[i].cause < 0 {
			v.visit(int32(i))
		}
	}
}

// sign sets key to a hash of all properties that define a course.
func (v *view) sign() {
	v.hash.Reset()
	for _, i := range v.order {
		s := &v.steps[i]
		flags := byte(0)
		if s.async {
			flags |= 1
		}
		if s.critical {
			flags |= 2
		}
		for _, number := range [3]int32{s.from, s.to, s.Name} {
			_, _ = v.hash.Write([]byte{byte(number), byte(number >> 8), byte(number >> 16), byte(number >> 24)})
		}
		_ = v.hash.WriteByte(flags)
	}
	v.key = v.hash.Sum64()
}

// list puts the messages into the order of a call flow, and marks the critical path.
// Messages that a function waits for come first, in order of time but with the end of the
// longest chain last. Messages that nobody waits for follow.
func (v *view) list() {
	end := v.longest()
	v.listed, v.hops = v.listed[:0], v.hops[:0]
	for i := range v.steps {
		if !v.steps[i].async && int32(i) != end {
			v.listed = append(v.listed, int32(i))
		}
	}
	v.listed = append(v.listed, end)
	for i := range v.steps {
		if v.steps[i].async && int32(i) != end {
			v.listed = append(v.listed, int32(i))
		}
	}
	for _, i := range v.listed {
		s := &v.steps[i]
		v.hops = append(v.hops, flow.Hop{From: int(s.from), To: int(s.to), Async: s.async})
	}
	for k, on := range v.paths.Critical(v.hops) {
		v.steps[v.listed[k]].critical = on
	}
}

// longest returns the index of the last message of the longest chain that functions wait
// for. Which of several concurrent chains ends last in time is chance. Nothing waits for
// the end of the longest chain, so it may come last in a list.
func (v *view) longest() (end int32) {
	clear(v.depth)
	for i := range v.steps {
		if s := &v.steps[i]; !s.async {
			s.depth = v.depth[s.from] + 1
			v.depth[s.to] = max(v.depth[s.to], s.depth)
		}
	}
	for _, i := range v.order {
		if v.steps[i].depth >= v.steps[end].depth {
			end = i
		}
	}
	return end
}

// visit appends a message, and what it caused, to the order.
func (v *view) visit(i int32) {
	v.stack = append(v.stack, i)
	for len(v.stack) > 0 {
		at := v.stack[len(v.stack)-1]
		v.stack = v.stack[:len(v.stack)-1]
		v.order = append(v.order, at)
		below := len(v.stack)
		for k := v.steps[at].caused; k >= 0; k = v.steps[k].next {
			v.stack = append(v.stack, k)
		}
		slices.SortStableFunc(v.stack[below:], func(a, b int32) int { // the last comes first
			x, y := &v.steps[a], &v.steps[b]
			return cmp.Or(cmp.Compare(y.rank(), x.rank()), cmp.Compare(y.to, x.to), cmp.Compare(y.Name, x.Name), cmp.Compare(b, a))
		})
	}
}

// rank orders the messages that one message caused: answers first.
func (s *viewed) rank() int {
	if s.Kind == message.Answer {
		return 0
	}
	return 1
}
