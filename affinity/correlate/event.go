package correlate

import (
	"time"
	"unsafe"

	"vitrine/affinity/message"
)

// MaxSteps bounds the messages that are kept of one transaction. An attach has a few dozen.
const MaxSteps = 2000

// maxSpare bounds the ended transactions that are kept for reuse. They do not count towards
// Options.MaxMemory.
const maxSpare = 1 << 10

// An Event is a transaction: the messages of one network event.
type Event struct {
	ID         uint64
	Begin, End int64 // ns since 1970: of the first and the last message
	Steps      []Step
	Unanswered int    // requests without an answer
	Failures   int    // answers that report failure
	Repeats    int    // retransmissions
	Users      bool   // a message names a user or a session of a user
	Reason     Reason // Begins, Ambiguous, KeepAlive or Late
	GivenUp    bool   // closed because memory was full

	kind     string // the type, so far
	parts    []part
	ids      []*identity
	anchors  [maxAnchors]*identity // the ids that name users
	anchored int8
	several  bool // it has several users
	call     bool // an INVITE was accepted, and no BYE was seen
	rings    bool // a provisional answer to an INVITE was seen, and no BYE
	touched  int64
	state
	prev, next *Event
}

// A Step is a message of an Event.
type Step struct {
	Message       uint64 // its ID
	Time, Arrived int64  // as in message.Message
	From, To      int32  // functions: see Correlator.Function
	Name          int32  // see Correlator.Name
	Bytes         int32
	Request       int32 // index of the step that it answers; -1: none
	Cause         int32 // index of the last step that its sender had received before; -1: none
	Repeats       int32 // number of retransmissions
	Protocol      message.Protocol
	Kind          message.Kind
	Failed        bool
	Answered      bool  // a request with a final answer
	Confidence    uint8 // percent
	Reason        Reason
}

// At returns the time of the message at the last place that captured it.
func (s *Step) At() int64 { return max(s.Time, s.Arrived) }

// A part is the role of a function in a transaction.
type part struct {
	function   int32
	unanswered int32 // requests that it has to answer
	waiting    int32 // its own requests that are not answered
	lastIn     int32 // the last step that it received; -1: none
	busyAt     int32 // in place.busy
	answered   bool  // it answered a request
	challenged bool  // it was asked for credentials and has not sent a request since
	in         [4]*identity
	ins        int8
}

// Type returns the name of the transaction's type.
func (e *Event) Type() string { return e.kind }

// Initiator returns the function that begins the transaction.
func (e *Event) Initiator() int32 { return e.Steps[0].From }

// part returns the part of a function, and adds one if there is none. The next call
// invalidates the pointer.
func (e *Event) part(function int32) *part {
	if p := e.find(function); p != nil {
		return p
	}
	e.parts = append(e.parts, part{function: function, lastIn: -1, busyAt: -1})
	return &e.parts[len(e.parts)-1]
}

func (e *Event) find(function int32) *part {
	for i := range e.parts {
		if e.parts[i].function == function {
			return &e.parts[i]
		}
	}
	return nil
}

// moment returns the moment at which a function has received a step last.
func (e *Event) moment(step int32) moment { return moment{e.Steps[step].Name, e.Steps[0].Name} }

// repeat counts a retransmission. If it is the first transmission that two places captured, those before
// were lost between them, and the message was on the way since the first of them.
func (e *Event) repeat(at int32, m *message.Message) {
	s := &e.Steps[at]
	e.Repeats++
	s.Repeats++
	if s.Arrived == 0 && m.Arrived > 0 && !e.reacted(at) {
		s.Arrived = m.Arrived
	}
	e.End = max(e.End, m.Time, m.Arrived)
}

// reacted reports whether the receiver of a step has answered it, or sent anything since. Then the receiver
// got the step, although only one place captured it.
func (e *Event) reacted(at int32) bool {
	s := &e.Steps[at]
	for i := int(at) + 1; i < len(e.Steps); i++ {
		if e.Steps[i].From == s.To {
			return true
		}
	}
	return s.Answered
}

func (e *Event) size() int {
	return int(unsafe.Sizeof(*e)) + cap(e.Steps)*int(unsafe.Sizeof(Step{})) + cap(e.parts)*int(unsafe.Sizeof(part{})) + cap(e.ids)*8
}

// A state is what a transaction waits for. It sets how long a silent transaction stays
// open.
type state int

const (
	quiet   state = iota // for nothing
	waiting              // for an answer, or for credentials
	ringing              // for the answer to a call that rings
	calling              // for the end of a call
	states  = iota
)

// now computes the state of the transaction.
func (e *Event) now() state {
	switch {
	case e.call:
		return calling
	case e.Unanswered > 0 && e.rings:
		return ringing
	case e.Unanswered > 0:
		return waiting
	}
	for i := range e.parts {
		if e.parts[i].challenged {
			return waiting
		}
	}
	return quiet
}

// A list has the transactions of one state, the longest silent first.
type list struct{ Event }

func (l *list) init()       { l.prev, l.next = &l.Event, &l.Event }
func (l *list) empty() bool { return l.next == &l.Event }

func (e *Event) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (l *list) push(e *Event) {
	e.prev, e.next = l.prev, &l.Event
	e.prev.next, l.prev = e, e
}

// begin begins a transaction. The caller adds the first message with join.
func (c *Correlator) begin(m *message.Message, name int32, why Reason) *Event {
	var e *Event
	if n := len(c.free); n > 0 {
		e, c.free = c.free[n-1], c.free[:n-1]
	} else {
		e = &Event{}
	}
	c.next++
	*e = Event{ID: c.next, Begin: m.Time, End: m.Time, Reason: why, kind: c.names.list[name].kind,
		Steps: e.Steps[:0], parts: e.parts[:0], ids: e.ids[:0]}
	c.counts.Transactions++
	c.memory += e.size()
	c.events[quiet].push(e)
	return e
}

// tick advances c.clock by the time since the last message. It never goes back, so that transactions and
// dialogs expire after a capture's clock was set back. A longer silence than all of them are kept for
// counts as that long, so that a capture whose clock leaps back and forth does not overflow c.clock.
func (c *Correlator) tick(m *message.Message) {
	if m.SetBack {
		c.last = m.Time
	}
	longest := max(c.options.Linger, c.options.Wait, c.options.Ring, c.options.Session) + 1
	c.clock += min(max(m.Time-c.last, 0), int64(longest))
	c.last = max(c.last, m.Time)
}

// touch moves a transaction to the end of the list of its state.
func (c *Correlator) touch(e *Event) {
	e.touched, e.state = c.clock, e.now()
	e.unlink()
	c.events[e.state].push(e)
}

// expire ends the transactions that were silent for longer than their state allows, and
// forgets the dialogs that have been over for long.
func (c *Correlator) expire() {
	c.ids.expire(c.clock - int64(c.options.Wait))
	o := &c.options
	for i, patience := range [states]time.Duration{quiet: o.Linger, waiting: o.Wait, ringing: o.Ring, calling: o.Session} {
		for l := &c.events[i]; !l.empty() && l.next.touched < c.clock-int64(patience); {
			c.end(l.next)
		}
	}
}

// bound frees memory until Options.MaxMemory holds: first the identifiers that are in no
// open transaction, then the transactions that have been silent longest.
func (c *Correlator) bound() {
	for c.held() > c.options.MaxMemory {
		if c.ids.evict() {
			continue
		}
		oldest := c.oldest()
		if oldest == nil {
			return
		}
		c.counts.GivenUp++
		oldest.GivenUp = true
		c.end(oldest)
	}
}

func (c *Correlator) oldest() *Event {
	var oldest *Event
	for i := range c.events {
		if l := &c.events[i]; !l.empty() && (oldest == nil || l.next.touched < oldest.touched) {
			oldest = l.next
		}
	}
	return oldest
}

// end closes a transaction.
func (c *Correlator) end(e *Event) {
	e.unlink()
	if len(e.Steps) > 0 {
		e.kind = final(c, e)
		if x := c.explanation; x != nil && x.event == e.ID {
			x.complete(c, e)
		}
		c.closed(e)
	}
	for i := range e.parts {
		c.release(e, e.parts[i].function)
	}
	for i := range e.Steps {
		delete(c.messages, e.Steps[i].Message)
	}
	for _, id := range e.ids {
		c.ids.leave(id, e, c.clock)
	}
	clear(e.ids)
	c.memory -= e.size()
	if cap(e.Steps) > 128 { // few transactions are this long
		e.Steps = nil
	}
	e.prev, e.next = nil, nil
	if len(c.free) < maxSpare {
		c.free = append(c.free, e)
	}
}
