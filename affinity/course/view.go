package course

import (
	"cmp"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
	"vitrine/affinity/message"
)

// A view is a transaction with the labels, causes and critical path that its course needs.
// It is reused.
type view struct {
	steps     []viewed
	order     []int32 // the messages in the order of the course, as indexes into steps
	listed    []int32 // the same messages in the order of a call flow
	hops      []flow.Hop
	paths     flow.Paths
	key       uint64
	nth       map[string]int
	local     map[int32]int32   // labels of the functions of this transaction
	arrived   map[arrival]int32 // the last message that was not passed on yet, from 1; 0: none
	got       map[int32]int32   // by function: the last message that it received, or in cross the next one, from 1
	crossings map[crossing]*tally
	inboxes   map[int32]int32 // by label: the last message received that somebody waits for, from 1
	served    map[int32]int32 // by function: the last message that it received, answers excepted
	asked     map[pair]asking
	stack     []int32
	habits    map[habit]*tally
	seed      maphash.Seed
	hash      maphash.Hash
}

// A viewed is a message of a view. Indexes are into view.steps, and -1 means none.
type viewed struct {
	*correlate.Step
	from, to int32 // labels
	interim  bool  // a provisional answer: the final answer follows
	async    bool
	critical bool

	settled int32 // index of the final answer; the number of steps: none
	passes  int32 // index of the message that its sender passes on with it
	cause   int32 // index of the step that made its sender send it
	earlier int32 // the message of the same arrival before, from 1; 0: none
	prior   int32 // index of the message that its receiver got before
	later   int32 // index of the message that its receiver got after it

	caused int32 // index of the first step that it caused
	next   int32 // index of the next step of the same cause
	place  int32 // in view.order
	size   int32 // number of steps that follow from it, itself included

	after   int32 // index of the step that its sender waited for
	level   int32 // messages of the chain that it ends; 0: nobody waits for it
	before  int32 // index of the message that its receiver got before and somebody waits for
	deepest int32 // index of the last message of the longest chain that its receiver got up to now

	root    bool  // it begins a tail
	trigger int32 // the name of the message that made its sender begin the tail
	returns bool  // the tail that it begins comes back to the function that began the transaction
	tail    int32 // the first step of the tail that it is in
	outer   int32 // the same of the tail around the one that it begins
}

// A crossing identifies the requests with one name that a function sends, and the messages
// with one name that it receives.
type crossing struct{ from, sent, got int32 }

// An arrival identifies messages that a function may pass on: those that it has received
// with one name and, if they are answers, because of one request.
type arrival struct{ function, name, request int32 }

// set fills the view from a transaction.
func (v *view) set(e *correlate.Event, l *labels, n Names) {
	v.learn(e, l, n)
	v.sort()
	v.chain()
	v.list()
	v.sign()
}

// learn reads the messages of a transaction and marks those that nobody waits for. It counts
// the habits of the functions.
func (v *view) learn(e *correlate.Event, l *labels, n Names) {
	if v.local == nil {
		v.nth, v.local, v.served, v.asked = map[string]int{}, map[int32]int32{}, map[int32]int32{}, map[pair]asking{}
		v.habits, v.arrived, v.inboxes = map[habit]*tally{}, map[arrival]int32{}, map[int32]int32{}
		v.got, v.crossings = map[int32]int32{}, map[crossing]*tally{}
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
		name := n.Name(s.Name)
		v.steps = append(v.steps, viewed{Step: s, from: label(s.From), to: label(s.To), interim: interim(s, name),
			async: interim(s, name) && strings.HasPrefix(name, trying), settled: int32(len(e.Steps)), caused: -1, next: -1, size: 1, after: -1, outer: -1})
		if at := &v.steps[i]; s.Request >= 0 && !at.interim {
			at = &v.steps[s.Request]
			at.settled = min(at.settled, int32(i))
		}
	}
	v.causes()
	v.tails()
}

// trying is the status of an answer that a SIP server sends for one hop only (RFC 3261
// section 17.2.1), so that nothing waits for it.
const trying = "100"

// interim reports whether a step is a provisional answer of SIP.
func interim(s *correlate.Step, name string) bool {
	return s.Protocol == message.SIP && s.Kind == message.Answer && strings.HasPrefix(name, "1")
}

// causes finds for each message the message that made its sender send it: the one that it
// passes on, or else the last one that its sender received.
func (v *view) causes() {
	clear(v.arrived)
	clear(v.got)
	for i := range v.steps {
		s := &v.steps[i]
		s.passes = v.pass(arrival{s.From, s.Name, s.Request}, int32(i))
		switch {
		case s.passes >= 0:
			s.cause = s.passes
		case s.Kind == message.Request:
			s.cause = v.asks(s)
		default:
			s.cause = s.Cause
		}
		at := arrival{s.To, s.Name, -1}
		if s.Request >= 0 {
			at.request = v.steps[s.Request].passes
		}
		s.earlier, v.arrived[at] = v.arrived[at], int32(i)+1
		s.prior, v.got[s.To] = v.got[s.To]-1, int32(i)+1
	}
	v.cross()
}

// asks returns the cause of a request that its sender does not pass on: the last message that
// the sender had received, except those that cross such requests.
func (v *view) asks(s *viewed) int32 {
	cause := s.Cause
	for cause >= 0 && v.crosses(s, &v.steps[cause]) {
		cause = v.steps[cause].prior
	}
	return cause
}

// crosses reports whether a function sends a request, in a tenth of all cases or more, before
// it receives a message that the request did not lead to. So it does not wait for the
// message when that comes first, as on a busy host.
func (v *view) crosses(sent, got *viewed) bool {
	t := v.crossings[crossing{sent.from, sent.Name, got.Name}]
	return t != nil && 10*t.unwaited >= t.all
}

// cross counts which messages cross the requests that functions do not pass on: the message
// that its sender received last before each of them, and the first that it receives
// afterwards although the request did not lead to it. If both have one name, it is not known
// which of them would cross.
func (v *view) cross() {
	const nearby = 4 // messages that the sender receives after the request
	clear(v.got)
	for i := len(v.steps) - 1; i >= 0; i-- {
		s := &v.steps[i]
		if s.Kind == message.Request && s.passes < 0 {
			last := int32(-1) // no name
			if s.Cause >= 0 {
				last = v.steps[s.Cause].Name
				v.count(crossing{s.from, s.Name, last}, 0)
			}
			k := v.got[s.From] - 1
			for n := 0; n < nearby && k >= 0 && v.leads(int32(i), k); n++ {
				k = v.steps[k].later
			}
			if k >= 0 && v.steps[k].Name != last && !v.leads(int32(i), k) {
				v.count(crossing{s.from, s.Name, v.steps[k].Name}, 1)
			}
		}
		s.later, v.got[s.To] = v.got[s.To]-1, int32(i)+1
	}
}

func (v *view) count(of crossing, unwaited int) {
	t := v.crossings[of]
	if t == nil {
		if len(v.crossings) == maxHabits {
			return
		}
		t = &tally{}
		v.crossings[of] = t
	}
	t.all++
	t.unwaited += unwaited
}

// leads reports whether a message led to a later one, by the causes or by a request to its
// answer.
func (v *view) leads(i, to int32) bool {
	for to > i {
		if s := &v.steps[to]; s.Request >= i {
			to = s.Request
		} else {
			to = s.cause
		}
	}
	return to == i
}

// pass returns the last message of an arrival that was not passed on before. This need not be
// the last one that the function received, because messages cross. A function does not pass
// on a request that it has answered, such as the first INVITE of a dialog when it sends one
// itself. It passes on an answer only if it passed on the request.
func (v *view) pass(at arrival, now int32) int32 {
	for k := v.arrived[at]; k > 0; k = v.arrived[at] {
		m := &v.steps[k-1]
		v.arrived[at] = m.earlier
		if m.settled > now {
			return k - 1
		}
	}
	return -1
}

// sort puts the messages into the order of their course: each message, followed by the
// messages that it caused. So the order does not depend on how independent messages cross.
func (v *view) sort() {
	v.order, v.stack = v.order[:0], v.stack[:0]
	for i := len(v.steps) - 1; i >= 0; i-- { // from the last, so that the lists are in order
		if s := &v.steps[i]; s.cause >= 0 {
			cause := &v.steps[s.cause]
			s.next, cause.caused = cause.caused, int32(i)
			cause.size += s.size
		}
	}
	for i := range v.steps {
		if v.steps[i].cause < 0 {
			v.visit(int32(i))
		}
	}
}

// visit appends a message, and what it caused, to the order.
func (v *view) visit(i int32) {
	v.stack = append(v.stack, i)
	for len(v.stack) > 0 {
		at := v.stack[len(v.stack)-1]
		v.stack = v.stack[:len(v.stack)-1]
		v.steps[at].place = int32(len(v.order))
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

// chain finds the message that the sender of each message waited for, and marks the longest
// chain. Of several, it is chance which one ends last.
func (v *view) chain() {
	clear(v.inboxes)
	for i := range v.steps {
		s := &v.steps[i]
		if s.async {
			continue
		}
		s.after, s.level = v.awaited(s), 1
		if s.after >= 0 {
			s.level += v.steps[s.after].level
		}
		s.before, v.inboxes[s.to] = v.inboxes[s.to]-1, int32(i)+1
		s.deepest = int32(i)
		if s.before >= 0 {
			if k := v.steps[s.before].deepest; v.steps[k].level > s.level {
				s.deepest = k
			}
		}
	}
	end := int32(0)
	for _, i := range v.order {
		if v.steps[i].level >= v.steps[end].level {
			end = i
		}
	}
	for ; end >= 0; end = v.steps[end].after {
		v.steps[end].critical = true
	}
}

// awaited returns the message that the sender of a message waited for: of those that it had
// received, the last of those that end the longest chain. A function that passes on or
// answers a message waits only for what follows from that message, because other messages
// of the transaction may arrive meanwhile: a proxy that passes on a 200 does not wait for
// the 180, which the next proxy sends back to it.
func (v *view) awaited(s *viewed) int32 {
	last := v.inboxes[s.from] - 1
	because := max(s.passes, s.Request)
	if because < 0 || v.steps[because].to != s.from { // some answers come from another address
		for last > s.cause {
			last = v.steps[last].before
		}
		if last < 0 {
			return -1
		}
		return v.steps[last].deepest
	}
	best, most := because, v.steps[because].level-1
	for k := last; k > because; k = v.steps[k].before {
		if level := v.steps[k].level; level > most && v.descends(k, because) {
			best, most = k, level
		}
	}
	return best
}

// descends reports whether a message follows from another one. An answer does if its request
// does: a user who calls himself rings after his INVITE has come back, and then hears that.
func (v *view) descends(i, from int32) bool {
	s, first := &v.steps[i], &v.steps[from]
	if s.Request >= 0 {
		s = &v.steps[s.Request]
	}
	return s.place >= first.place && s.place < first.place+first.size
}

// list puts the messages into the order of a call flow, and marks its critical path. There a
// function waits for all that stands above. So the messages of chains side by side stand side
// by side, as if each message took the same time, and that of the longest chain is the last
// of them. Messages that nobody waits for follow.
func (v *view) list() {
	v.listed, v.hops = v.listed[:0], v.hops[:0]
	for i := range v.steps {
		v.listed = append(v.listed, int32(i))
	}
	slices.SortStableFunc(v.listed, func(a, b int32) int { return cmp.Compare(v.row(a), v.row(b)) })
	for _, i := range v.listed {
		s := &v.steps[i]
		v.hops = append(v.hops, flow.Hop{From: int(s.from), To: int(s.to), Async: s.async})
	}
	for k, on := range v.paths.Critical(v.hops) {
		v.steps[v.listed[k]].critical = on
	}
}

// row returns what orders the messages of a call flow.
func (v *view) row(i int32) int32 {
	s := &v.steps[i]
	switch {
	case i == 0: // it begins the transaction
		return 0
	case s.async:
		return math.MaxInt32
	case s.critical:
		return 2*s.level + 1
	}
	return 2 * s.level
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
