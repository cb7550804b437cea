package course

import "vitrine/affinity/message"

// A habit identifies the messages with one name that a function sends.
type habit struct{ from, name int32 }

// A tally counts how often a function sent a message, and how often it waited for none: it
// answered the triggering request before the message was answered (a habit), or it sent the
// message before it received another one (a crossing).
type tally struct{ all, unwaited int }

// A pair is a function that asks, and the function that it asks.
type pair struct{ from, to int32 }

// An asking has the names of the messages that made one function ask another: the name of
// the earliest one, and whether there are several.
type asking struct {
	trigger int32
	several bool
}

// tails marks the messages that no function waits for. A tail begins with a request or
// notice of a function that answers its trigger without waiting, and includes all that
// follows from it. There are two exceptions. A function that asks the same function several
// times in one transaction keeps a session there, in which each request waits for the
// answer to the one before (RFC 6733 section 8.2). And the function that began the
// transaction waits for what it receives, and continues with what it sends.
func (v *view) tails() {
	v.begin()
	v.sessions()
	for i := range v.steps {
		s := &v.steps[i]
		s.tail = v.follows(s)
		if s.root {
			s.outer, s.tail = s.tail, int32(i)
		}
		if s.To != v.steps[0].From {
			continue
		}
		for t := s.tail; t >= 0 && !v.steps[t].returns; t = v.steps[t].outer {
			v.steps[t].returns = true
		}
	}
	for i := range v.steps {
		s := &v.steps[i]
		s.async = s.async || s.tail >= 0 && !v.steps[s.tail].returns
	}
}

// begin marks the messages with which a tail may begin, and notes the names of their
// triggers.
func (v *view) begin() {
	clear(v.served)
	for i := range v.steps {
		s := &v.steps[i]
		if s.Kind == message.Answer {
			continue
		}
		if trigger, ok := v.served[s.From]; ok && s.From != v.steps[0].From && v.unwaited(trigger, int32(i)) {
			s.root, s.trigger = true, v.steps[trigger].Name
		}
		v.served[s.To] = int32(i)
	}
}

// sessions begins no tail with a request of a session: its function asks the same function
// again later because of another message, as at the beginning and the end of a call. Serving
// the same request twice is no session. The last request of a session begins a tail, because
// nothing waits for it.
func (v *view) sessions() {
	clear(v.asked)
	for i := len(v.steps) - 1; i >= 0; i-- {
		s := &v.steps[i]
		if !s.root {
			continue
		}
		later, again := v.asked[pair{s.From, s.To}]
		other := again && (later.several || later.trigger != s.trigger)
		s.root = !other
		if s.Kind == message.Request {
			v.asked[pair{s.From, s.To}] = asking{s.trigger, other}
		}
	}
}

// unwaited reports whether a function usually answers a trigger without waiting for the
// message that it sends because of it. It counts over all transactions, because the order
// in one may mislead: a function may send a late message while it serves the user's next
// request, which then looks like the trigger.
func (v *view) unwaited(trigger, asked int32) bool {
	a := &v.steps[asked]
	until := asked
	if a.Kind == message.Request {
		until = a.settled
	}
	here := v.steps[trigger].Kind == message.Request && v.steps[trigger].settled < until
	of := habit{a.from, a.Name}
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

// follows returns the first step of the tail that a message is in because it follows from a
// message of that tail, or -1. What the function that began the tail sends after an answer
// does not follow.
func (v *view) follows(s *viewed) int32 {
	if s.Request >= 0 && v.steps[s.Request].tail >= 0 {
		return v.steps[s.Request].tail
	}
	if s.cause < 0 {
		return -1
	}
	t := v.steps[s.cause].tail
	for t >= 0 && v.steps[t].From == s.From {
		t = v.steps[t].outer
	}
	return t
}
