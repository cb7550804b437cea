// Package compare reports what changed between two affinity analyses, such as of two
// releases, sites or days, for each type of transaction. A value that varies by chance
// counts as changed only if its interval excludes a difference of zero.
package compare

import (
	"vitrine/affinity/course"
	"vitrine/document"
)

// Doubt bounds the probability that any change of a Comparison is due to chance. All
// intervals share it equally (Bonferroni).
const Doubt = 0.05

// A Comparison is what changed from an analysis A to an analysis B.
type Comparison struct {
	A         string  `json:"a"`         // What A is called.
	B         string  `json:"b"`         // What B is called.
	Doubt     float64 `json:"doubt"`     // Bounds the probability that any change that has an interval is none.
	Intervals int     `json:"intervals"` // How many were made.
	Types     []Type  `json:"types"`     // Of A and B, in the order of B; what is in A alone comes last.
	Changes   int     `json:"changes"`   // In all types.
}

// A Type is what changed in one type of transaction.
type Type struct {
	Type       string    `json:"type"`
	Count      [2]int    `json:"transactions"`         // In A and B; 0 in one that has none.
	Share      *Interval `json:"share,omitempty"`      // Of all transactions; left out: not changed.
	Duration   *Interval `json:"duration,omitempty"`   // Median in ms; left out: not changed.
	Path       *Path     `json:"path,omitempty"`       // Left out: the critical path has the same messages.
	Messages   []Message `json:"messages"`             // That are new, vanished, or sent more or less often.
	Times      []Time    `json:"times"`                // That are longer or shorter.
	Aggregate  *Members  `json:"aggregate,omitempty"`  // Left out: not changed.
	TooFew     int       `json:"too_few"`              // Times and messages that are too rare, or were not kept, so that no change can be shown.
	Structural bool      `json:"structural,omitempty"` // A or B is no measurement: messages were compared as the call flows have them.
}

// A Path is how the critical path of the most frequent course changed.
type Path struct {
	Length [2]int           `json:"length"` // Messages in A and B.
	New    []course.Message `json:"new"`
	Gone   []course.Message `json:"gone"`
}

// What happened to a message.
const (
	New      = "new"
	Vanished = "vanished"
	More     = "more"
	Fewer    = "fewer"
)

// A Message is one that is sent more or less often in a transaction.
type Message struct {
	course.Message
	What string    `json:"what"`           // New, Vanished, More or Fewer.
	Rate *Interval `json:"rate,omitempty"` // Messages of a transaction; left out: Structural.
}

// What a time is of.
const (
	Way        = "on the way"
	Answer     = "answered in"
	Processing = "processing"
)

// A Time is one whose median is longer or shorter, in ms.
type Time struct {
	Of string `json:"of"` // Way, Answer or Processing.
	course.Message
	In string `json:"in,omitempty"` // Processing: what the function received.
	Interval
}

// Members are the functions of a type's aggregate.
type Members struct {
	A []string `json:"a"`
	B []string `json:"b"`
}

// changes returns the number of changes in a type.
func (t *Type) changes() int {
	n := len(t.Messages) + len(t.Times)
	for _, is := range []bool{t.Share != nil, t.Duration != nil, t.Path != nil, t.Aggregate != nil} {
		if is {
			n++
		}
	}
	return n
}

// JSON returns the comparison as text.
func (c *Comparison) JSON() ([]byte, error) { return document.Indent(c) }
