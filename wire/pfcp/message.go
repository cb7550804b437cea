// Package pfcp reads PFCP messages (3GPP TS 29.244) in place. A Message is a
// set of views into the parsed bytes, and reading does not allocate. One
// iterator reads the elements of a message and those inside a grouped element.
// The package is a format, not a stack: it has no associations and no sessions,
// and it writes no messages.
//
// The package follows clause 7.2.2 for the header and clause 8.1 for elements.
// Clauses without a document are clauses of TS 29.244.
package pfcp

import (
	"encoding/binary"
	"errors"
)

// The errors of Parse and of Elements.
var (
	ErrShort   = errors.New("pfcp: message shorter than its header")            // clause 7.6.4
	ErrVersion = errors.New("pfcp: version other than 1")                       // clause 7.6.2
	ErrLength  = errors.New("pfcp: length field does not fit the message")      // clause 7.6.4
	ErrIE      = errors.New("pfcp: information element exceeds the space left") // clause 7.6.6
)

const (
	version = 1

	flagSEID     = 0x01 // S: the header has a SEID
	flagPriority = 0x02 // MP: the header has a priority
	flagFollow   = 0x04 // FO: another message follows in the datagram

	headerFixed   = 4  // octets that the length field does not count
	headerNode    = 8  // of a message without SEID
	headerSession = 16 // of a message with SEID
)

// A Message is one message. Its slices are views into the parsed bytes.
type Message struct {
	Type        Type
	HasSEID     bool
	SEID        uint64 // of the receiver; zero before it is known, and without HasSEID
	Sequence    uint32 // 24 bits: pairs a response with its request
	HasPriority bool
	Priority    uint8  // 0, the highest, to 15
	Follows     bool   // another message follows in the datagram
	Octets      []byte // the whole message
	IEs         []byte // the information elements
}

// Parse parses the header of the first message in a datagram (clause 7.2.2). n
// is the length of the message, or 0 with an error. If Follows is true, the
// next message begins at n. Parse does not check the elements; Check does.
func (m *Message) Parse(data []byte) (n int, err error) {
	*m = Message{}
	if len(data) < headerNode {
		return 0, ErrShort
	}
	if data[0]>>5 != version {
		return 0, ErrVersion
	}
	n = headerFixed + int(binary.BigEndian.Uint16(data[2:]))
	size, sequenceAt := headerNode, 4
	if data[0]&flagSEID != 0 {
		size, sequenceAt = headerSession, 12
	}
	if n < size || n > len(data) {
		return 0, ErrLength
	}
	m.Type, m.Follows = Type(data[1]), data[0]&flagFollow != 0
	if data[0]&flagSEID != 0 {
		m.HasSEID, m.SEID = true, binary.BigEndian.Uint64(data[4:])
		if data[0]&flagPriority != 0 {
			m.HasPriority, m.Priority = true, data[15]>>4
		}
	}
	m.Sequence = binary.BigEndian.Uint32(data[sequenceAt:]) >> 8
	m.Octets, m.IEs = data[:n:n], data[size:n:n]
	return n, nil
}

// Check walks over all elements, including those inside groups. It returns ErrIE
// if an element is longer than the space left.
func (m *Message) Check() error { return check(m.Elements(), maxDepth) }

// maxDepth bounds the depth of groups: clause 7.5 nests four at most.
const maxDepth = 6

func check(e Elements, depth int) error {
	for e.Next() {
		if depth == 0 || !e.Type.IsGroup() {
			continue
		}
		if err := check(Group(e.Value), depth-1); err != nil {
			return err
		}
	}
	return e.Err
}
