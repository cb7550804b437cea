// Package course sums up transactions: by their type and by the course that they take.
// Transactions have the same course if the same functions send the same messages because
// of the same messages, and have the same critical path. Messages that have nothing to do
// with each other may cross. It measures where their time goes.
package course

import (
	"cmp"
	"slices"

	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
	"vitrine/affinity/message"
)

// Limits of what is kept. What is beyond is counted.
const (
	maxTypes   = 64
	maxCourses = 64  // of a type
	maxListed  = 12  // courses of a type in a result
	maxDetails = 512 // hops, processing steps and failures of a type
	maxOthers  = 256
	maxHeld    = 256 // transactions that wait until it is known which functions are outside, and what functions wait for
	maxHabits  = 1 << 12
	rarely     = 100 // a course is listed if it is at least one in so many
)

// Names has the names of functions and messages of a correlate.Step.
type Names interface {
	Function(of int32) string
	Name(of int32) string
}

// A Collector sums up transactions.
type Collector struct {
	names  Names
	labels labels
	held   []correlate.Event // the first ones
	full   bool              // held is used no more
	types  map[string]*kind
	order  []*kind
	others map[other]*Other
	stores map[int32]bool

	Beyond int // transactions of types beyond maxTypes
	Strays int // exchanges of no transaction beyond maxOthers

	view view
}

type other struct {
	from, to, name int32
	because        correlate.Reason
}

// New returns a Collector.
func New(names Names) *Collector {
	return &Collector{names: names, labels: newLabels(names), types: map[string]*kind{}, others: map[other]*Other{}, stores: map[int32]bool{}}
}

// Add adds a transaction that is over.
func (c *Collector) Add(e *correlate.Event) {
	c.labels.learn(e)
	if c.full {
		c.sum(e)
		return
	}
	held := *e
	held.Steps = slices.Clone(e.Steps)
	c.held = append(c.held, held)
	if len(c.held) == maxHeld {
		c.release()
	}
}

func (c *Collector) release() {
	c.full = true
	for i := range c.held {
		if e := &c.held[i]; understood(e) {
			c.view.set(e, &c.labels, c.names) // it learns habits
		}
	}
	for i := range c.held {
		c.sum(&c.held[i])
	}
	c.held = nil
}

// understood reports whether it is known which user a transaction is of, and what caused it.
func understood(e *correlate.Event) bool { return e.Users && e.Reason != correlate.Ambiguous }

func (c *Collector) sum(e *correlate.Event) {
	if !understood(e) {
		c.stray(e)
		return
	}
	k := c.types[e.Type()]
	if k == nil {
		if len(c.order) == maxTypes {
			c.Beyond++
			return
		}
		k = newKind(e.Type())
		c.types[k.name] = k
		c.order = append(c.order, k)
	}
	c.view.set(e, &c.labels, c.names)
	k.add(&c.view, e)
}

// stray counts what belongs to no transaction.
func (c *Collector) stray(e *correlate.Event) {
	first := &e.Steps[0]
	key := other{first.From, first.To, first.Name, e.Reason}
	o := c.others[key]
	if o == nil {
		if len(c.others) == maxOthers {
			c.Strays++
			return
		}
		because := "it names no user and no session"
		if e.Reason == correlate.Ambiguous {
			because = e.Reason.String()
		}
		o = &Other{Message: Message{c.names.Function(first.From), c.names.Function(first.To), c.names.Name(first.Name)}, Because: because}
		c.others[key] = o
	}
	o.Exchanges++
	o.Messages += len(e.Steps) + e.Repeats
}

// Result is what a Collector found.
type Result struct {
	Flows    []*flow.Transaction  // the courses, the most frequent of each type first
	Measured map[string]*Measured // by type
	Others   []Other              // of no transaction, the most frequent first
}

// Result returns what was found. Nothing may be added afterwards. database says which
// functions keep state for others.
func (c *Collector) Result(database func(name string) bool) Result {
	if !c.full {
		c.release()
	}
	r := Result{Measured: map[string]*Measured{}, Others: []Other{}}
	for _, k := range c.order {
		flows, m := k.result(&c.labels, c.names, database)
		r.Flows = append(r.Flows, flows...)
		r.Measured[k.name] = m
	}
	for _, o := range c.others {
		r.Others = append(r.Others, *o)
	}
	slices.SortFunc(r.Others, func(a, b Other) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Because, b.Because))
	})
	return r
}

// provisional reports whether nothing waits for an answer of this name: RFC 3261 section
// 17.2.1 has a server send 100 for the hop alone.
func provisional(s *correlate.Step, name string) bool {
	return s.Protocol == message.SIP && s.Kind == message.Answer && len(name) > 3 && name[:3] == "100"
}
