// Package s1ap reads and writes S1AP messages (3GPP TS 36.413) in place. A
// Message is a set of views into the parsed bytes, and messages are built by
// appending to a slice. Neither allocates, except that fragments of a value of
// more than 16,383 octets are joined in a copy. The package is a format, not a
// stack: it has no associations, no procedures and no state of subscribers.
// Clauses without a document are clauses of TS 36.413.
//
// S1AP is ASN.1 in aligned PER. Its messages are containers of information
// elements, and in aligned PER each container, element and length begins at an
// octet boundary. So Elements iterates over them like over any
// type-length-value format. Only the values, of some dozen octets each, are
// read bit by bit. NGAP has the same container, and wire/ngap reads it with Message.
//
// This codec exists because github.com/free5gc/aper v1.0.5 decodes into
// structures by reflection: it allocates 77 times for a tracking area identity
// and 662 times for a container of five elements, which are views here. It also
// has no S1AP types, and it writes to a logger of its own.
package s1ap

import (
	"encoding/binary"
	"errors"
)

// The errors of Parse and of Elements.
var (
	ErrShort  = errors.New("s1ap: message shorter than its header")          // clause 10.2: transfer syntax error
	ErrLength = errors.New("s1ap: length exceeds the message")               // clause 10.2
	ErrKind   = errors.New("s1ap: message of an unknown kind")               // clause 10.3
	ErrCount  = errors.New("s1ap: container with a wrong count of elements") // clause 10.2
)

// A Kind is the kind of a message (clause 9.3.2).
type Kind uint8

// The kinds of message.
const (
	Initiating Kind = iota
	Successful      // outcome
	Unsuccessful
)

// A Criticality says what a receiver does with an element that it does not
// understand (clause 9.3.4).
type Criticality uint8

// The criticalities.
const (
	Reject Criticality = iota
	Ignore
	Notify
)

// headerFixed is the size of the header before the length: kind, procedure and
// criticality.
const headerFixed = 3

// A Message is one message. Its slices are views into the parsed bytes, or copies of
// fragments.
type Message struct {
	Kind        Kind
	Procedure   Procedure
	Criticality Criticality
	Octets      []byte // the whole message
	IEs         []byte // the information elements

	count int
}

// Parse parses the header of a message. data must be exactly one message,
// because SCTP preserves message boundaries. Parse does not check the
// information elements; Check does.
func (m *Message) Parse(data []byte) error {
	*m = Message{}
	if len(data) < headerFixed {
		return ErrShort
	}
	if data[0]&0x80 != 0 || data[0]>>5 > byte(Unsuccessful) || data[2]>>6 > byte(Notify) {
		return ErrKind
	}
	r := reader{b: data, at: headerFixed * 8}
	value := r.open()
	if r.bad || r.at != len(data)*8 {
		return ErrLength
	}
	if len(value) < 3 {
		return ErrShort
	}
	if value[0]&0x80 != 0 { // extension additions, which no version defines
		return ErrKind
	}
	m.Kind, m.Procedure, m.Criticality = Kind(data[0]>>5), Procedure(data[1]), Criticality(data[2]>>6)
	m.Octets, m.count, m.IEs = data, int(binary.BigEndian.Uint16(value[1:])), value[3:]
	return nil
}

// Elements iterates over the elements of a message, or the items of a list, in
// order. ID, Criticality and Value belong to the element that Next reached.
type Elements struct {
	ID          ID
	Criticality Criticality
	Value       []byte // the value in aligned PER: a view, or a copy of fragments
	Err         error  // ErrCount or ErrLength if Next stopped before the end

	rest []byte
	left int
}

// Elements returns an iterator over the message's elements.
func (m *Message) Elements() Elements { return Elements{rest: m.IEs, left: m.count} }

// List returns an iterator over the items of a list of E-RABs or of tracking
// areas: 1 to 256 (clause 9.3.4).
func List(value []byte) Elements {
	if len(value) == 0 {
		return Elements{Err: ErrCount}
	}
	return Elements{rest: value[1:], left: int(value[0]) + 1}
}

// Next moves to the next element and reports whether there is one.
func (e *Elements) Next() bool {
	if e.left == 0 || e.Err != nil {
		if len(e.rest) > 0 && e.Err == nil {
			e.rest, e.Err = nil, ErrCount
		}
		return false
	}
	r := reader{b: e.rest}
	id := ID(r.pair())
	criticality := Criticality(r.bits(2))
	value := r.open()
	if r.bad {
		e.Err = ErrLength
		if len(e.rest) == 0 {
			e.Err = ErrCount
		}
		e.rest = nil
		return false
	}
	e.ID, e.Criticality, e.Value = id, criticality, value
	e.rest, e.left = e.rest[r.at/8:], e.left-1
	return true
}

// Find returns the value of the first element with an identifier. It returns false
// if there is none or if an earlier element is malformed.
func (m *Message) Find(id ID) ([]byte, bool) {
	for e := m.Elements(); e.Next(); {
		if e.ID == id {
			return e.Value, true
		}
	}
	return nil, false
}

// Check walks over all elements. It returns an error if one is malformed or if
// their number differs from the count in the message.
func (m *Message) Check() error {
	e := m.Elements()
	for e.Next() {
	}
	return e.Err
}

// AppendHeader begins a message. The caller appends the elements and then calls
// End.
func AppendHeader(b []byte, k Kind, p Procedure, c Criticality) []byte {
	return append(b, byte(k)<<5, byte(p), byte(c)<<6, 0, 0, 0, 0, 0) // two octets of length, the preamble, the count
}

// End sets the length of the message that begins at start, and the count of its
// elements. It panics if the message is longer than 16,383 octets.
func End(b []byte, start int) []byte {
	const lengthAt, fixed = headerFixed, headerFixed + 5
	count := 0
	for e := (Elements{rest: b[start+fixed:], left: 1 << 16}); len(e.rest) > 0 && e.Next(); {
		count++
	}
	binary.BigEndian.PutUint16(b[start+lengthAt+3:], uint16(count))
	return endLength(b, start+lengthAt, 2)
}

// endLength sets a length field of room octets at at, for the octets after it.
// It moves these octets if the length needs more or fewer than room octets.
func endLength(b []byte, at, room int) []byte {
	n := len(b) - at - room
	if n > maxLength {
		panic("s1ap: value too long")
	}
	switch {
	case n < 0x80 && room == 2:
		copy(b[at+1:], b[at+2:])
		b = b[:len(b)-1]
	case n >= 0x80 && room == 1:
		b = append(b, 0)
		copy(b[at+2:], b[at+1:])
	}
	if n < 0x80 {
		b[at] = byte(n)
	} else {
		b[at], b[at+1] = 0x80|byte(n>>8), byte(n)
	}
	return b
}

// AppendElement appends an element whose value is already encoded.
func AppendElement(b []byte, id ID, c Criticality, value []byte) []byte {
	b = append(binary.BigEndian.AppendUint16(b, uint16(id)), byte(c)<<6)
	return append(appendLength(b, len(value)), value...)
}

// BeginElement begins an element: the caller appends its value and then calls
// EndElement.
func BeginElement(b []byte, id ID, c Criticality) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(id)), byte(c)<<6, 0)
}

// EndElement sets the length of the element that begins at start, the length of b
// before BeginElement.
func EndElement(b []byte, start int) []byte { return endLength(b, start+3, 1) }

// BeginList begins an element that is a list of count items, 1 to 256. The caller
// appends each item as an element, and then calls EndElement.
func BeginList(b []byte, id ID, c Criticality, count int) []byte {
	if count < 1 || count > 256 {
		panic("s1ap: a list has 1 to 256 items")
	}
	return append(BeginElement(b, id, c), byte(count-1))
}
