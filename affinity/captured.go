package affinity

import (
	"context"

	"vitrine/affinity/capture"
	"vitrine/affinity/correlate"
	"vitrine/affinity/course"
	"vitrine/affinity/flow"
	"vitrine/affinity/message"
	"vitrine/affinity/pseudonym"
	"vitrine/affinity/state"
)

// Captured is what packet captures have: transactions, and what belongs to none.
type Captured struct {
	Read        *message.Summary       `json:"read" jsonschema:"required"`       // Packets, messages, and what was not understood of them.
	Damage      []string               `json:"damage,omitempty"`                 // Errors that make the result incomplete, such as a file that ends too early.
	Correlated  correlate.Counts       `json:"correlated" jsonschema:"required"` // How messages were divided into transactions.
	Others      []course.Other         `json:"others" jsonschema:"required"`     // What belongs to no transaction, the most frequent first.
	Beyond      int                    `json:"beyond" jsonschema:"required"`     // Transactions of more types than are kept, and exchanges of more kinds that belong to none.
	State       state.State            `json:"state" jsonschema:"required"`      // What functions share, and what they need not.
	Pseudonyms  string                 `json:"pseudonyms,omitempty"`             // Which key made the pseudonyms of identities; left out: identities are as they are in the captures.
	Explanation *correlate.Explanation `json:"explanation,omitempty"`            // Why the message that was asked for belongs to its transaction.

	Flows    []*flow.Transaction         `json:"-"` // the courses of the transactions
	Measured map[string]*course.Measured `json:"-"` // by type
}

// ReadCaptures finds the transactions in captures, in one pass. On error it also returns
// what it has found so far. With a key, the result has pseudonyms in place of identities.
// divide.MaxMemory bounds transactions, state and courses together: a quarter of it is for state, and
// an eighth for courses.
func ReadCaptures(ctx context.Context, captures []string, read message.Options, divide correlate.Options, key *pseudonym.Key) (*Captured, error) {
	return collect(read, divide, key, func(read message.Options, handle func(*message.Message) error) (*message.Summary, error) {
		return message.Read(ctx, captures, read, handle)
	})
}

// ReadLive is like ReadCaptures, but captures on network interfaces until stop is done. It
// calls heard when the capture has started.
func ReadLive(ctx, stop context.Context, live capture.LiveOptions, heard func(), read message.Options, divide correlate.Options, key *pseudonym.Key) (*Captured, error) {
	return collect(read, divide, key, func(read message.Options, handle func(*message.Message) error) (*message.Summary, error) {
		return message.ReadLive(ctx, stop, live, read, heard, handle)
	})
}

// collect finds the transactions in the messages that source delivers.
func collect(read message.Options, divide correlate.Options, key *pseudonym.Key, source func(message.Options, func(*message.Message) error) (*message.Summary, error)) (*Captured, error) {
	if key != nil {
		read.Hide = key.Function
	}
	var courses *course.Collector
	kept := state.New(divide.MaxMemory / 4)
	share := divide.MaxMemory / 8 // of the courses
	divide.MaxMemory -= divide.MaxMemory/4 + share
	correlator := correlate.New(divide, func(e *correlate.Event) { courses.Add(e) })
	courses = course.New(correlator, share)
	summary, err := source(read, func(m *message.Message) error {
		if key != nil {
			m.Name = key.Name(m.Protocol, m.Name)
		}
		link := correlator.Add(m)
		if len(m.Access) > 0 || m.Kind == message.Answer {
			kept.Add(m, link)
		}
		return nil
	})
	correlator.Close()
	result := courses.Result(kept.IsStore)
	c := &Captured{Read: summary, Correlated: correlator.Counts(), Others: result.Others, Beyond: courses.Beyond + courses.Strays,
		State: kept.State(), Explanation: correlator.Explanation(), Flows: result.Flows, Measured: result.Measured}
	if key != nil {
		c.hide(key)
	}
	return c, err
}

// hide replaces the user identities in the state and in the explanation. It runs at the
// end, because correlation and state need the real identities. The names of functions and
// messages were replaced while they were read.
func (c *Captured) hide(key *pseudonym.Key) {
	c.Pseudonyms = key.ID()
	for i := range c.State.Forms {
		c.State.Forms[i].Key = key.Form(c.State.Forms[i].Key)
	}
	if c.Explanation == nil {
		return
	}
	for i, text := range c.Explanation.Identifiers {
		c.Explanation.Identifiers[i] = key.Named(text)
	}
}
