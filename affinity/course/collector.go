// Package course aggregates transactions by type and by course, and measures where their
// time goes. Transactions have the same course if the same functions send the same messages
// for the same causes, and if the critical path is the same. The order of independent
// messages does not matter.
package course

import (
	"cmp"
	"slices"

	"vitrine/affinity/correlate"
	"vitrine/affinity/flow"
)

// Bounds on the data that is kept. What exceeds them is counted, except processing steps and failures.
const (
	maxTypes   = 64
	maxCourses = 64  // of a type
	maxListed  = 12  // courses of a type in a result
	maxDetails = 512 // hops, processing steps and failures of a type
	maxOthers  = 256
	maxHeld    = 256 // first transactions, held until the outside functions and the habits of functions are known
	maxHabits  = 1 << 12
	rarely     = 100     // a course is listed if at least one in so many transactions takes it
	detailSize = 2 << 10 // bytes of a hop or processing step, on average
	leastBytes = 8 << 20 // bytes, so that there is room for frequent courses
)

// Names returns the names of functions and messages of a correlate.Step.
type Names interface {
	Function(of int32) string
	Name(of int32) string
}

// A Collector aggregates transactions.
type Collector struct {
	names  Names
	labels labels
	held   []correlate.Event // the first transactions
	full   bool              // held is no longer used
	types  map[string]*kind
	order  []*kind
	others map[other]*Other
	stores map[int32]bool

	memory int // bytes that all courses may take
	bytes  int // bytes that all courses take
	room   int // hops and processing steps that may still be added

	Beyond int // transactions of types beyond maxTypes
	Strays int // exchanges that belong to no transaction, beyond maxOthers

	view view
}

type other struct {
	from, to, name int32
	because        correlate.Reason
}

// New returns a Collector that uses about memory bytes for courses, hops and processing steps, and at
// least 8 MiB if there are many. Zero means 32 MiB.
func New(names Names, memory int) *Collector {
	memory = max(cmp.Or(memory, 32<<20), leastBytes)
	details := memory / 4
	return &Collector{names: names, labels: newLabels(names), types: map[string]*kind{}, others: map[other]*Other{}, stores: map[int32]bool{},
		memory: memory - details, room: details / detailSize}
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
			c.view.learn(e, &c.labels, c.names)
		}
	}
	for i := range c.held {
		c.sum(&c.held[i])
	}
	c.held = nil
}

// understood reports whether the user and the cause of a transaction are known.
func understood(e *correlate.Event) bool { return e.Users && e.Reason == correlate.Begins }

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
		k = newKind(e.Type(), &c.room)
		c.types[k.name] = k
		c.order = append(c.order, k)
	}
	c.view.set(e, &c.labels, c.names)
	before := k.bytes
	k.add(&c.view, e)
	c.bytes += k.bytes - before
	c.bound()
}

// bound drops courses until all of them fit into the memory. Each is one of the type whose courses take
// most, so that a type of a few frequent courses keeps them.
func (c *Collector) bound() {
	for c.bytes > c.memory {
		k := slices.MaxFunc(c.order, func(a, b *kind) int { return cmp.Compare(a.bytes, b.bytes) })
		before := k.bytes
		k.drop()
		c.bytes += k.bytes - before
	}
}

// stray counts an exchange that belongs to no transaction.
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
		if e.Reason != correlate.Begins {
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
	Others   []Other              // exchanges that belong to no transaction, the most frequent first
}

// Result returns the courses and the measurements. Add must not be called afterwards.
// database reports whether a function keeps state for others.
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
