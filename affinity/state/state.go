// Package state finds the state that functions must share: keys that one transaction writes
// and a later one reads. State that is read only by the transaction that writes it is
// private: an aggregate that keeps a transaction in one place needs no store for it
// (Sheoran et al., "Contain-ed", 2017, section 6).
package state

import (
	"cmp"
	"container/list"
	"slices"
	"strings"
	"time"

	"vitrine/affinity/correlate"
	"vitrine/affinity/message"
)

const (
	maxForms = 512
	maxTypes = 16      // types that write or read a form
	keySize  = 300     // approximate memory of a key with one use, in bytes
	useSize  = 48      // approximate memory of each further use, with the spare room of its slice, in bytes
	minKeys  = 16      // with one use each, that fit in any memory
	maxKeys  = 1 << 18 // if there is no limit of memory
	maxForm  = 80      // bytes of a form
)

// A Form is what a function keeps in a store under keys of one form.
type Form struct {
	Function   string   `json:"function" jsonschema:"required"`         // Who reads and writes.
	Store      string   `json:"store" jsonschema:"required"`            // The function that keeps it.
	Key        string   `json:"key" jsonschema:"required"`              // The form of the keys; {} is what differs.
	Keys       int      `json:"keys" jsonschema:"required"`             // How many.
	Shared     int      `json:"shared" jsonschema:"required"`           // Keys that are read in a later transaction than they are written in: to be published.
	Private    int      `json:"private" jsonschema:"required"`          // Keys that are read in the transaction alone that writes them.
	Unread     int      `json:"unread" jsonschema:"required"`           // Keys that nobody reads by their name; lists may have them.
	Writes     int      `json:"writes" jsonschema:"required"`           // Operations.
	Reads      int      `json:"reads" jsonschema:"required"`            // Operations.
	Bytes      int64    `json:"bytes" jsonschema:"required"`            // Of values written.
	Saved      int      `json:"saved_operations" jsonschema:"required"` // Operations on private keys: not needed if the transaction stays in one place.
	SavedBytes int64    `json:"saved_bytes" jsonschema:"required"`      // The same in bytes of values written.
	Shortest   float64  `json:"shortest_lifetime_s,omitempty"`          // Lifetime that was asked for; left out: none was.
	Longest    float64  `json:"longest_lifetime_s,omitempty"`           // The same.
	WrittenBy  []string `json:"written_by" jsonschema:"required"`       // Types of transactions.
	ReadBy     []string `json:"read_by" jsonschema:"required"`          // Types of transactions.
}

// A State is what functions share, and what they need not.
type State struct {
	Forms    []Form `json:"forms" jsonschema:"required"`    // By function and form.
	GivenUp  int    `json:"given_up" jsonschema:"required"` // Keys that were forgotten before the end, because memory was full.
	Unformed int    `json:"unformed" jsonschema:"required"` // Operations on keys of more forms than are kept.
}

// A Collector collects the accesses to state in messages.
type Collector struct {
	limit    int // of bytes
	bytes    int // approximate memory of all keys
	keys     map[uint64]*list.Element
	asked    map[uint64]*key // by key.asked
	recent   list.List       // of *key, the least recently used first
	forms    map[[3]string]*Form
	givenUp  int
	unformed int
}

// A key is one key of a store.
type key struct {
	hash    uint64
	owner   uint64 // the last transaction that wrote it, or else the first that read it; 0: none
	asked   uint64 // ID of the last read before the first write, until its answer; 0: none
	written bool
	read    bool
	found   bool // a read before the first write may have found a value
	lent    bool // read by another transaction than its owner
	uses    []use
}

// A use counts the accesses of one function to a key.
type use struct {
	form          *Form
	writes, reads int
	bytes         int64 // written
}

// size returns the approximate memory of the key, in bytes.
func (k *key) size() int { return keySize + useSize*max(0, len(k.uses)-1) }

// New returns a Collector that uses about memory bytes. Zero means 75 MiB, or 2^18 keys of one
// function each.
func New(memory int) *Collector {
	limit := maxKeys * keySize
	if memory > 0 {
		limit = max(minKeys*keySize, memory)
	}
	return &Collector{limit: limit, keys: map[uint64]*list.Element{}, asked: map[uint64]*key{}, forms: map[[3]string]*Form{}}
}

// Add adds the accesses of a message that belongs to a transaction, or the answer to an access.
func (c *Collector) Add(m *message.Message, of correlate.Link) {
	switch m.Kind {
	case message.Repeat:
		return
	case message.Answer:
		c.answer(m)
	}
	for i := range m.Access {
		c.access(m, &m.Access[i], of)
	}
}

func (c *Collector) access(m *message.Message, a *message.Access, of correlate.Link) {
	k := c.key(a.Key.Hash)
	u := c.use(k, m.From, a)
	c.trim()
	if u == nil {
		c.unformed++
		return
	}
	f := u.form
	if !k.read && !k.written {
		k.owner = of.Event
	}
	if !a.Write {
		u.reads++
		k.read = true
		k.lent = k.lent || k.owner != of.Event
		if !k.written && !k.found {
			c.ask(k, m.ID)
		}
		f.ReadBy = note(f.ReadBy, of.Type)
		return
	}
	u.writes++
	u.bytes += int64(a.Bytes)
	if a.Reads { // the value may be from before the capture
		k.read = true
		k.lent = k.lent || !k.written || k.owner != of.Event
		f.ReadBy = note(f.ReadBy, of.Type)
	}
	// A value that a read finds before the first write is from before the capture. A check in the same batch returns no value.
	found := k.found || k.asked != 0 && k.asked != m.ID
	k.lent = k.lent || !k.written && (k.owner != of.Event || found)
	k.owner, k.written = of.Event, true
	f.WrittenBy = note(f.WrittenBy, of.Type)
	if seconds := a.Lifetime.Seconds(); a.Lifetime > 0 {
		if f.Shortest == 0 || seconds < f.Shortest {
			f.Shortest = seconds
		}
		f.Longest = max(f.Longest, seconds)
	}
}

// ask notes a read before the first write of a key.
func (c *Collector) ask(k *key, read uint64) {
	k.found = k.asked != 0 // the answer to the read before is not in the capture
	delete(c.asked, k.asked)
	k.asked = read
	c.asked[read] = k
}

// answer notes whether a read found a value. Only the answer 404 says that the store has none. Other
// failures, such as 503 of a busy store or 412 of a check, do not tell.
func (c *Collector) answer(m *message.Message) {
	if k := c.asked[m.Answers]; k != nil {
		delete(c.asked, m.Answers)
		k.asked = 0
		k.found = k.found || m.Cause != "404"
	}
}

func (c *Collector) key(hash uint64) *key {
	if at, ok := c.keys[hash]; ok {
		c.recent.MoveToBack(at)
		return at.Value.(*key)
	}
	k := &key{hash: hash}
	c.keys[hash] = c.recent.PushBack(k)
	c.bytes += k.size()
	return k
}

// trim gives up the least recently used keys until the others are within the limit. It keeps the key
// in use, which is the last one.
func (c *Collector) trim() {
	for c.bytes > c.limit && c.recent.Len() > 1 {
		c.givenUp++
		c.settle(c.recent.Front())
	}
}

func (c *Collector) use(k *key, function string, a *message.Access) *use {
	for i := range k.uses {
		if u := &k.uses[i]; u.form.Function == function {
			return u
		}
	}
	name := [3]string{function, a.Store, FormOf(string(a.Key.Text))}
	f := c.forms[name]
	if f == nil {
		if len(c.forms) == maxForms {
			return nil
		}
		f = &Form{Function: name[0], Store: name[1], Key: name[2], WrittenBy: []string{}, ReadBy: []string{}}
		c.forms[name] = f
	}
	c.bytes -= k.size()
	k.uses = append(k.uses, use{form: f})
	c.bytes += k.size()
	return &k.uses[len(k.uses)-1]
}

// settle adds a key to its forms and forgets it. If the key is used again, it counts as
// another key.
func (c *Collector) settle(at *list.Element) {
	k := at.Value.(*key)
	c.recent.Remove(at)
	c.bytes -= k.size()
	delete(c.keys, k.hash)
	delete(c.asked, k.asked)
	for _, u := range k.uses {
		f := u.form
		f.Keys++
		f.Writes += u.writes
		f.Reads += u.reads
		f.Bytes += u.bytes
		switch {
		case k.lent, k.read && !k.written: // a transaction before the capture wrote it
			f.Shared++
		case k.read:
			f.Private++
			f.Saved += u.writes + u.reads
			f.SavedBytes += u.bytes
		default:
			f.Unread++
		}
	}
}

// State returns the collected state. Add must not be called afterwards.
func (c *Collector) State() State {
	for c.recent.Len() > 0 {
		c.settle(c.recent.Front())
	}
	s := State{Forms: []Form{}, GivenUp: c.givenUp, Unformed: c.unformed}
	for _, f := range c.forms {
		s.Forms = append(s.Forms, *f)
	}
	slices.SortFunc(s.Forms, func(a, b Form) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Store, b.Store))
	})
	return s
}

// IsStore reports whether a function keeps state for others.
func (c *Collector) IsStore(function string) bool {
	for name := range c.forms {
		if name[1] == function {
			return true
		}
	}
	return false
}

func note(types []string, name string) []string {
	if name == "" || slices.Contains(types, name) || len(types) == maxTypes {
		return types
	}
	return append(types, name)
}

// FormOf returns the form of a key, with {} in place of the parts that differ between
// users.
func FormOf(text string) string {
	var form []byte
	for len(text) > 0 {
		end := strings.IndexAny(text, "/:")
		part, separator := text, ""
		if end >= 0 {
			part, separator = text[:end], text[end:end+1]
			text = text[end+1:]
		} else {
			text = ""
		}
		if differs(part) {
			part = "{}"
		}
		if part == "{}" && strings.HasSuffix(string(form), "{}:") { // user@host:port is one value
			form = append(form[:len(form)-1], separator...)
			continue
		}
		form = append(append(form, part...), separator...)
		if len(form) > maxForm {
			return string(form[:maxForm])
		}
	}
	return string(form)
}

// differs reports whether a part of a key is a value rather than a fixed word.
func differs(part string) bool {
	const longest, shortestHex = 24, 8
	digits, hex := 0, 0
	for _, c := range []byte(part) {
		switch {
		case c == '@' || c == '%' || c == '=' || c > '~' || c <= ' ':
			return true
		case c >= '0' && c <= '9':
			digits++
			hex++
		case c >= 'a' && c <= 'f', c >= 'A' && c <= 'F', c == '-': // a UUID has hyphens
			hex++
		}
	}
	return digits >= 3 || digits > 0 && digits*2 >= len(part) || len(part) > longest || hex >= shortestHex && hex == len(part)
}

// Lifetime returns the range of lifetimes of a form as text.
func (f *Form) Lifetime() string {
	text := func(seconds float64) string {
		return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
	}
	switch {
	case f.Longest == 0:
		return "none given"
	case text(f.Shortest) == text(f.Longest):
		return text(f.Longest)
	}
	return text(f.Shortest) + " to " + text(f.Longest)
}
