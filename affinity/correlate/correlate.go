// Package correlate divides a stream of messages into transactions: the messages that
// network functions exchange to handle one network event, across protocols and hops
// (Sheoran et al., "Contain-ed", 2017, section 2). It works in one pass and in bounded
// memory, and reports a reason and a confidence for each message.
//
// A transaction begins with a message that no other message caused. If every request is
// answered and no call is open, it ends after it was silent for Options.Linger; otherwise
// after Options.Wait, Options.Ring or Options.Session. A message belongs to a transaction
// if it answers one of its messages, if it names one of its sessions, or if its sender has
// received a message of the transaction that names the same user. The Correlator learns
// which identifiers belong to the same user.
package correlate

import (
	"cmp"
	"time"
	"unsafe"

	"vitrine/affinity/message"
)

// Options configure a Correlator. The zero value has the defaults.
type Options struct {
	// MaxMemory is how many bytes open transactions and identifiers may take. Zero
	// means 256 MiB.
	MaxMemory int
	// Linger is how long a transaction that waits for nothing stays open. Zero means 2 s.
	Linger time.Duration
	// Wait is how long a request waits for its answer, and a challenge for the
	// credentials. Zero means 40 s: more than the 32 s of a SIP transaction (RFC 3261
	// section 17.1.1.2, timer B). A record that names a dialog is Late for as long after
	// the transactions of the dialog have ended.
	Wait time.Duration
	// Ring is how long a call that rings may be silent. Zero means 200 s: more than the 3
	// minutes that a proxy waits after a provisional answer (RFC 3261 section 16.6, timer C).
	Ring time.Duration
	// Session is how long a call may be silent. Zero means 1 h.
	Session time.Duration
	// Explain is the ID of a message that Explanation explains. Zero: none.
	Explain uint64
}

func (o Options) withDefaults() Options {
	o.MaxMemory = cmp.Or(o.MaxMemory, 256<<20)
	o.Linger = cmp.Or(o.Linger, 2*time.Second)
	o.Wait = cmp.Or(o.Wait, 40*time.Second)
	o.Ring = cmp.Or(o.Ring, 200*time.Second)
	o.Session = cmp.Or(o.Session, time.Hour)
	return o
}

// Counts is what a Correlator counts.
type Counts struct {
	Messages     uint64 `json:"messages"`     // All.
	Transactions uint64 `json:"transactions"` // Begun, with exchanges that belong to none.
	Repeats      uint64 `json:"repeats"`      // Retransmissions.
	Orphans      uint64 `json:"orphans"`      // Answers and retransmissions whose first message is not in the capture.
	Ambiguous    uint64 `json:"ambiguous"`    // Messages that several transactions may have caused, equally likely.
	GivenUp      uint64 `json:"given_up"`     // Transactions that were closed early, because memory was full.
	Truncated    uint64 `json:"truncated"`    // Messages of transactions that have more than are kept.
}

// A Correlator assigns messages to transactions. It is not safe for concurrent use.
type Correlator struct {
	options Options
	closed  func(*Event)
	counts  Counts

	names     names
	functions map[string]int32
	places    []place // by function
	events    [states]list
	free      []*Event // ended transactions, to be used again
	memory    int      // bytes of events
	messages  map[uint64]ref
	ids       identities
	order     orders
	last      int64 // time of the last message
	clock     int64 // see tick
	next      uint64

	found       []candidate // scratch of Add
	over        bool        // scratch of Add: the message names a dialog whose transactions have ended
	explanation *Explanation
}

// A ref is a message of an open transaction.
type ref struct {
	event *Event
	step  int32
}

// A place is a function, and the transactions in which it has requests to answer.
type place struct {
	name string
	busy []*Event
}

// A Link says to which transaction a message belongs.
type Link struct {
	Event      uint64  // the transaction's ID; 0: none
	Type       string  // the transaction's type, as far as it is known
	Confidence float64 // 0 to 1
	Reason     Reason
}

// New returns a Correlator. closed receives each transaction when it is over; the Event
// is valid only during the call.
func New(o Options, closed func(*Event)) *Correlator {
	c := &Correlator{options: o.withDefaults(), closed: closed, functions: map[string]int32{}, messages: map[uint64]ref{}}
	c.names.index = map[nameKey]int32{}
	c.ids.init()
	c.order.init()
	for i := range c.events {
		c.events[i].init()
	}
	return c
}

// Counts returns the counts up to now.
func (c *Correlator) Counts() Counts { return c.counts }

// held returns the bytes of open transactions and identifiers.
func (c *Correlator) held() int {
	return c.memory + c.ids.memory() + len(c.messages)*refSize
}

// refSize is the approximate size of an entry of Correlator.messages, in bytes.
const refSize = 2 * int(unsafe.Sizeof(ref{})+8)

// Add assigns a message to a transaction, or begins one. Callers add messages in order of
// time, which begins again at a message with SetBack.
func (c *Correlator) Add(m *message.Message) Link {
	c.counts.Messages++
	c.tick(m)
	c.expire()
	l, e := c.assign(m)
	if e != nil {
		l.Event, l.Type = e.ID, e.Type()
	}
	if m.ID == c.options.Explain && m.ID != 0 {
		c.explain(m, l, e)
	}
	return l
}

// assign finds the transaction of a message.
func (c *Correlator) assign(m *message.Message) (Link, *Event) {
	first, known := c.messages[m.Answers]
	known = known && m.Answers != 0
	name := c.names.of(m)
	from, to := c.function(m.From), c.function(m.To)
	switch {
	case m.Kind == message.Repeat:
		if !known {
			c.counts.Orphans++
			return Link{Reason: Orphan}, nil
		}
		first.event.repeat(first.step, m)
		c.counts.Repeats++
		c.touch(first.event)
		return Link{Confidence: 1, Reason: Repeats}, first.event
	case known:
		l := Link{Confidence: 1, Reason: Answers}
		c.join(first.event, m, step{name, from, to, first.step}, l)
		return l, first.event
	}
	best, l := c.choose(m, name, from)
	if best != nil {
		c.join(best, m, step{name, from, to, -1}, l)
		return l, best
	}
	if m.Kind == message.Answer {
		c.counts.Orphans++
		return Link{Reason: Orphan}, nil
	}
	if l.Reason == Ambiguous {
		c.counts.Ambiguous++
	}
	e := c.begin(m, name, l.Reason)
	c.join(e, m, step{name, from, to, -1}, l)
	return l, e
}

// A step has the indexes that join needs in addition to the message.
type step struct {
	name, from, to int32
	request        int32
}

// join adds a message to a transaction, and learns from it.
func (c *Correlator) join(e *Event, m *message.Message, s step, l Link) {
	if len(e.Steps) >= MaxSteps {
		c.counts.Truncated++
		c.touch(e)
		return
	}
	before := e.size()
	n := c.names.list[s.name]
	cause := e.part(s.from).lastIn
	e.part(s.to) // so that pointers to both stay valid
	sender, receiver := e.part(s.from), e.part(s.to)
	if cause >= 0 && l.Reason != Answers && l.Confidence >= trusted {
		c.order.learn(e.moment(cause), s.name)
	}
	at := int32(len(e.Steps))
	e.Steps = append(e.Steps, Step{Message: m.ID, From: s.from, To: s.to, Name: s.name, Protocol: m.Protocol, Kind: m.Kind,
		Failed: m.Failed, Time: m.Time, Arrived: m.Arrived, Bytes: int32(min(m.Bytes, 1<<30)), Request: s.request, Cause: cause,
		Reason: l.Reason, Confidence: uint8(l.Confidence*100 + 0.5)})
	c.messages[m.ID] = ref{e, at}
	if m.Failed {
		e.Failures++
	}
	e.End = max(e.End, m.Time, m.Arrived)
	c.open(e, at, n)
	if s.request >= 0 {
		sender.answered = true
	}
	receiver.lastIn = at
	c.order.reach(e.moment(at))
	if n.challenge {
		receiver.challenged = true
	} else if m.Kind == message.Request {
		sender.challenged = false
	}
	if l.Confidence >= trusted && e.Reason != KeepAlive {
		c.identify(e, m, sender, receiver)
	}
	c.memory += e.size() - before
	c.touch(e)
	c.bound()
}

// open updates the counts of unanswered requests, and whether a call is open.
func (c *Correlator) open(e *Event, at int32, n name) {
	s := &e.Steps[at]
	switch {
	case s.Kind == message.Request:
		if of := c.commandOf(e, at, n); of >= 0 {
			c.settle(e, of)
		}
		e.Unanswered++
		e.part(s.From).waiting++
		p := e.part(s.To)
		p.unanswered++
		if p.unanswered == 1 && e.Reason != KeepAlive {
			c.occupy(e, s.To)
		}
		if n.bye {
			e.call, e.rings = false, false
		}
	case s.Request < 0 || e.Steps[s.Request].Answered:
	case n.rings:
		e.rings = true
	case !n.provisional:
		c.settle(e, s.Request)
		if n.established {
			e.call = true
		}
	}
}

// settle records that a request was answered.
func (c *Correlator) settle(e *Event, request int32) {
	r := &e.Steps[request]
	r.Answered = true
	e.Unanswered--
	if p := e.part(r.From); p.waiting > 0 {
		p.waiting--
	}
	p := e.part(r.To)
	p.unanswered--
	if p.unanswered == 0 {
		c.release(e, r.To)
	}
}

// commandOf returns the command that a request carries out, and so answers, or -1.
func (c *Correlator) commandOf(e *Event, at int32, n name) int32 {
	if !n.executes {
		return -1
	}
	s := &e.Steps[at]
	for k := at - 1; k >= 0; k-- {
		if r := &e.Steps[k]; r.From == s.To && r.To == s.From && !r.Answered && c.names.list[r.Name].command {
			return k
		}
	}
	return -1
}

// occupy adds a transaction to the function's list of transactions with requests to answer.
func (c *Correlator) occupy(e *Event, function int32) {
	f := &c.places[function]
	e.part(function).busyAt = int32(len(f.busy))
	f.busy = append(f.busy, e)
}

// release undoes occupy.
func (c *Correlator) release(e *Event, function int32) {
	f := &c.places[function]
	p := e.part(function)
	if p.busyAt < 0 {
		return
	}
	last := f.busy[len(f.busy)-1]
	f.busy[p.busyAt] = last
	last.part(function).busyAt = p.busyAt
	f.busy[len(f.busy)-1] = nil
	f.busy = f.busy[:len(f.busy)-1]
	p.busyAt = -1
}

func (c *Correlator) function(name string) int32 {
	at, ok := c.functions[name]
	if !ok {
		at = int32(len(c.places))
		c.functions[name] = at
		c.places = append(c.places, place{name: name})
	}
	return at
}

// Function returns the name of a function of a Step.
func (c *Correlator) Function(of int32) string { return c.places[of].name }

// Name returns the name of a Step.
func (c *Correlator) Name(of int32) string { return c.names.list[of].text }

// Close ends all transactions that are open.
func (c *Correlator) Close() {
	for i := range c.events {
		for l := &c.events[i]; !l.empty(); {
			c.end(l.next)
		}
	}
}
