// Package flow defines transactions: the messages that network functions exchange to handle
// one network event (Sheoran et al., "Contain-ed", 2017, section 2). It parses call-flow
// files, which people write, and has built-in flows of the EPC and the IMS.
package flow

import (
	"slices"
)

// A Role says where a function may run.
type Role string

// The roles. A front end may join an aggregate like any function, but its database stays
// where it is.
const (
	Function Role = "function"  // may join an aggregate
	FrontEnd Role = "front-end" // may join; the database behind it stays outside
	Database Role = "database"  // shared by all instances of all aggregates: stays outside
	Outside  Role = "outside"   // not in the operator's sites, such as a UE or an eNodeB
)

// Joins reports whether a function of this role may join an aggregate.
func (r Role) Joins() bool { return r != Database && r != Outside }

// A Message goes from one function to another.
type Message struct {
	From  string `json:"from" jsonschema:"required"`
	To    string `json:"to" jsonschema:"required"`
	Name  string `json:"name" jsonschema:"required"`
	Bytes int    `json:"bytes,omitempty"`        // Size; left out: not known.
	Async bool   `json:"asynchronous,omitempty"` // Nothing else in the transaction waits for it.
	After *Times `json:"after,omitempty"`        // Time since the first message; left out: not measured.
}

// Times sums up the same time in many transactions.
type Times struct {
	P50 float64 `json:"p50_ms" jsonschema:"required"` // Median.
	P95 float64 `json:"p95_ms" jsonschema:"required"` // 95th percentile.

	Error   float64 `json:"p50_error_ms,omitempty"` // Standard error of the median, by the medians of consecutive batches.
	Batches int     `json:"batches,omitempty"`      // How many batches; left out: the error is not known, such as for too few times.
}

// A Transaction is the messages of one network event, in order. It begins with its
// first message and ends with the last one that is not asynchronous. A function
// sends a message after it has received everything above it that is not
// asynchronous.
//
// It stands for Count transactions that had the same messages.
type Transaction struct {
	Type     string          // the name of events of this kind, such as ATTACH
	Title    string          // for people
	Clauses  string          // the TS and RFC clauses that it follows
	Source   string          // the file that it comes from
	Text     string          // the text of a call-flow file
	Count    int             // at least 1
	Duration *Times          // from the first message to the end; nil: not measured
	Messages []Message       // at least one
	Roles    map[string]Role // of functions whose role is not Function
}

// Functions returns the names of all functions, in the order in which they first take part.
func (t *Transaction) Functions() []string {
	var names []string
	seen := map[string]bool{}
	for _, m := range t.Messages {
		for _, name := range []string{m.From, m.To} {
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// Role returns the role of a function.
func (t *Transaction) Role(name string) Role {
	if r, ok := t.Roles[name]; ok {
		return r
	}
	return Function
}

// Bytes returns the size of all messages, and whether every size is known.
func (t *Transaction) Bytes() (sum int, known bool) {
	for _, m := range t.Messages {
		sum += m.Bytes
		known = known || m.Bytes > 0
	}
	return sum, known && !slices.ContainsFunc(t.Messages, func(m Message) bool { return m.Bytes == 0 })
}

// Rename gives functions other names. Messages between functions that get the same name
// become internal and are removed.
func (t *Transaction) Rename(name func(string) string) {
	kept := make([]Message, 0, len(t.Messages))
	for _, m := range t.Messages {
		m.From, m.To = name(m.From), name(m.To)
		if m.From != m.To {
			kept = append(kept, m)
		}
	}
	t.Messages = kept
	roles := map[string]Role{}
	for old, r := range t.Roles {
		if rank(r) > rank(roles[name(old)]) {
			roles[name(old)] = r
		}
	}
	t.Roles = roles
}

// rank orders roles. When several functions become one, the role with the highest rank
// counts.
func rank(r Role) int { return slices.Index([]Role{Function, FrontEnd, Database, Outside}, r) }
