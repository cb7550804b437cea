package correlate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"vitrine/affinity/message"
)

// An Explanation says why a message belongs to its transaction.
type Explanation struct {
	Message     uint64    `json:"message" jsonschema:"required"`     // Its number.
	Time        time.Time `json:"time" jsonschema:"required"`        // When the first place that captured it had it.
	From        string    `json:"from" jsonschema:"required"`        // The function that sent it.
	To          string    `json:"to" jsonschema:"required"`          // The function that received it.
	Protocol    string    `json:"protocol" jsonschema:"required"`    // What it is written in.
	Name        string    `json:"name" jsonschema:"required"`        // What it is called.
	Transaction uint64    `json:"transaction"`                       // The number of its transaction; 0: none.
	Type        string    `json:"type,omitempty"`                    // The type of the transaction.
	Confidence  float64   `json:"confidence" jsonschema:"required"`  // That it belongs to it, 0 to 1.
	Because     string    `json:"because" jsonschema:"required"`     // Why.
	Identifiers []string  `json:"identifiers" jsonschema:"required"` // What it names.
	Candidates  []Choice  `json:"candidates" jsonschema:"required"`  // The transactions that may have caused it, the likeliest first.
	Course      []Placed  `json:"course" jsonschema:"required"`      // All messages of its transaction.

	event uint64
}

// A Choice is a transaction that may have caused a message.
type Choice struct {
	Transaction uint64  `json:"transaction" jsonschema:"required"` // Its number.
	Type        string  `json:"type" jsonschema:"required"`        // Its type.
	Shares      string  `json:"shares" jsonschema:"required"`      // What both name.
	Because     string  `json:"because,omitempty"`                 // Why it may be; left out: it may not.
	Share       float64 `json:"share" jsonschema:"required"`       // Of the likelihood of all candidates, 0 to 1.
}

// A Placed is a message of a transaction.
type Placed struct {
	Message    uint64  `json:"message" jsonschema:"required"`    // Its number.
	After      float64 `json:"after_ms" jsonschema:"required"`   // Time since the first message.
	From       string  `json:"from" jsonschema:"required"`       // The function that sent it.
	To         string  `json:"to" jsonschema:"required"`         // The function that received it.
	Name       string  `json:"name" jsonschema:"required"`       // What it is called.
	Confidence float64 `json:"confidence" jsonschema:"required"` // That it belongs to the transaction, 0 to 1.
	Because    string  `json:"because" jsonschema:"required"`    // Why.
}

// Explanation returns why the message of Options.Explain belongs to its transaction. It
// returns nil if that message was not added. The result is complete after Close.
func (c *Correlator) Explanation() *Explanation { return c.explanation }

func (c *Correlator) explain(m *message.Message, l Link, e *Event) {
	x := &Explanation{Message: m.ID, Time: time.Unix(0, m.Time).UTC(), From: m.From, To: m.To, Protocol: m.Protocol.String(), Name: m.Name,
		Transaction: l.Event, Type: l.Type, Confidence: l.Confidence, Because: l.Reason.String(),
		Identifiers: []string{}, Candidates: []Choice{}, Course: []Placed{}, event: l.Event}
	c.explanation = x
	for k := range m.Identifiers {
		id := &m.Identifiers[k]
		x.Identifiers = append(x.Identifiers, fmt.Sprintf("%s %s", id.Kind, id.Text))
	}
	if m.Kind == message.Repeat || l.Reason == Answers {
		if first, ok := c.messages[m.Answers]; ok && e != nil {
			x.Because += fmt.Sprintf(": message %d, %s", m.Answers, c.Name(first.event.Steps[first.step].Name))
		}
		return
	}
	sum := 0.0
	for k := range c.found {
		sum += c.found[k].score
	}
	for k := range c.found {
		f := &c.found[k]
		choice := Choice{Transaction: f.event.ID, Type: f.event.kind, Shares: f.shares()}
		if f.score > 0 {
			choice.Because, choice.Share = f.reason.String(), f.score/sum
		}
		x.Candidates = append(x.Candidates, choice)
	}
	slices.SortStableFunc(x.Candidates, func(a, b Choice) int { return cmp.Compare(b.Share, a.Share) })
}

// shares lists what a candidate and the message have in common.
func (f *candidate) shares() string {
	text := ""
	for _, s := range []struct {
		is   bool
		what string
	}{{f.session, "a dialog"}, {f.tunnel, "a session of the user"}, {f.user, "a user"}} {
		if s.is && text != "" {
			text += ", "
		}
		if s.is {
			text += s.what
		}
	}
	if text == "" {
		return fmt.Sprintf("identifiers that go together, confidence %.2f", f.learned)
	}
	return text
}

// complete adds all messages of the transaction when it ends.
func (x *Explanation) complete(c *Correlator, e *Event) {
	x.Type = e.kind
	for i := range e.Steps {
		s := &e.Steps[i]
		x.Course = append(x.Course, Placed{Message: s.Message, After: float64(s.Time-e.Begin) / 1e6, From: c.Function(s.From), To: c.Function(s.To),
			Name: c.Name(s.Name), Confidence: float64(s.Confidence) / 100, Because: s.Reason.String()})
	}
}
