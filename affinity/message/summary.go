package message

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"vitrine/affinity/capture"
	"vitrine/affinity/stream"
)

// Options configure Read. The zero value has the defaults.
type Options struct {
	// MaxMemory bounds the bytes of all tables together, except those of names: of functions and of
	// messages. Zero means 512 MiB.
	MaxMemory int
	// Name returns the name of a function, given its IP address or its address:port. It
	// returns "" to keep that text as the name. Nil keeps it for all functions.
	Name func(text string) string
	// Hide returns the name of a function for which Name returns none, such as a pseudonym,
	// given its IP address or its address:port. Nil keeps that text.
	Hide func(text string) string
	// Progress receives the number of packet bytes read so far, from time to time. Nil
	// disables it.
	Progress func(bytes uint64)
	// Repeated is the longest time between a request and its retransmission, and
	// between a request and its answer. Zero means 64 s, which is twice SIP's. A request
	// with a provisional answer waits four times as long.
	Repeated time.Duration
}

// window is the maximum time between the copies of a message.
const window = 50 * time.Millisecond

func (o Options) withDefaults() Options {
	if o.MaxMemory <= 0 {
		o.MaxMemory = 512 << 20
	}
	if o.Repeated <= 0 {
		o.Repeated = 64 * time.Second
	}
	return o
}

// fragments returns the bytes for incomplete fragments.
func (o Options) fragments() int { return o.MaxMemory / 16 }

// A Summary says what captures contained, and what of it was not understood.
type Summary struct {
	Begin    Instant `json:"begin"` // of the first packet
	End      Instant `json:"end"`   // of the last packet
	Messages uint64  `json:"messages"`
	Copies   uint64  `json:"copies"` // packets that were captured before, at another place or at the same one
	// Disordered counts packets that are more than 50 ms out of order. Their copies may
	// count twice, and answers may precede their requests. The tool reordercap sorts a file.
	Disordered uint64         `json:"disordered"`
	Protocols  []Count        `json:"protocols"`
	Functions  []Function     `json:"functions"`
	Unknown    []Edge         `json:"unknown"` // exchanges in protocols that are not known
	Clocks     []Clock        `json:"clocks"`  // one for each file, if there are several
	GivenUp    GivenUp        `json:"given_up"`
	Captures   capture.Counts `json:"captures"`
	Streams    stream.Counts  `json:"streams"`
}

// A Count has the numbers of one protocol.
type Count struct {
	Protocol string `json:"protocol"`
	Messages uint64 `json:"messages"`
	Requests uint64 `json:"requests"`
	Answers  uint64 `json:"answers"`
	Notices  uint64 `json:"notices"`
	Repeats  uint64 `json:"repeats"`
	Failed   uint64 `json:"failed"`
	Orphans  uint64 `json:"orphans"` // answers to requests that are not in the capture
	Bytes    uint64 `json:"bytes"`
	// Undecodable counts messages, or pieces of a stream, that were not understood, by
	// the reason.
	Undecodable map[string]uint64 `json:"undecodable,omitempty"`
}

// An Edge has what two functions said to each other in a protocol that is not known.
type Edge struct {
	Client     string `json:"client"`
	Server     string `json:"server"`
	Transport  string `json:"transport"`
	Port       uint16 `json:"port"` // of the server
	Packets    uint64 `json:"packets"`
	Bytes      uint64 `json:"bytes"`
	RoundTrips uint64 `json:"round_trips"` // times that data came back after data was sent
}

// GivenUp counts what was dropped to stay within Options.MaxMemory and the bounds on names.
type GivenUp struct {
	Requests  uint64 `json:"requests"`  // forgotten before an answer
	Copies    uint64 `json:"copies"`    // packets whose copies could not be found any more
	Hurried   uint64 `json:"hurried"`   // messages delivered before their copies came
	Streams   uint64 `json:"streams"`   // pieces of TCP connections that were not read
	Edges     uint64 `json:"edges"`     // packets of unknown protocols that count for no edge
	Functions uint64 `json:"functions"` // messages from or to functions that count as one, others
	Names     uint64 `json:"names"`     // names and causes of messages that count as one, (other)
}

// counts is the running state of a Summary's counts.
type counts struct {
	protocols   [protocols]Count
	undecodable [protocols]map[string]uint64
}

// bad counts something that could not be decoded.
func (c *counts) bad(p Protocol, reason string) {
	if c.undecodable[p] == nil {
		c.undecodable[p] = map[string]uint64{}
	}
	c.undecodable[p][reason]++
}

// unread counts a message of a datagram that could not be decoded. The capture lacks missing bytes of
// the datagram.
func (c *counts) unread(p Protocol, err error, missing int) {
	if missing > 0 {
		c.bad(p, cutReason)
		return
	}
	c.bad(p, reason(err))
}

// late counts a connection that had bytes before its protocol was recognised.
func (c *counts) late(p Protocol, bytes uint64) {
	if bytes > 0 {
		c.bad(p, "before the protocol was recognised")
	}
}

// add counts a message.
func (c *counts) add(m *Message) {
	n := &c.protocols[m.Protocol]
	n.Messages++
	n.Bytes += uint64(m.Bytes)
	if m.Failed && m.Kind != Repeat {
		n.Failed++
	}
	switch m.Kind {
	case Request:
		n.Requests++
	case Answer:
		n.Answers++
		if m.Answers == 0 {
			n.Orphans++
		}
	case Notice:
		n.Notices++
	case Repeat:
		n.Repeats++
	}
}

// list returns the numbers of the protocols that occur.
func (c *counts) list() []Count {
	all := []Count{}
	for p, n := range c.protocols {
		n.Protocol, n.Undecodable = Protocol(p).String(), maps.Clone(c.undecodable[p])
		if n.Messages > 0 || len(n.Undecodable) > 0 {
			all = append(all, n)
		}
	}
	slices.SortStableFunc(all, func(a, b Count) int { return cmp.Compare(b.Messages, a.Messages) })
	return all
}
