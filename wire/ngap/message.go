// Package ngap reads NGAP messages (3GPP TS 38.413) in place, to find which UE
// they are about: the procedure, the identities of the UE, and the NAS message
// (TS 24.501) that they carry. A Message is a set of views into the parsed
// bytes, and reading does not allocate. The package reads no other elements,
// and it writes no messages. Clauses without a document are clauses of TS
// 38.413.
//
// NGAP is ASN.1 in aligned PER, as S1AP is. All elements read here begin at
// octet boundaries, so the package needs no bit reader. wire/s1ap has one for
// the elements of S1AP.
package ngap

import (
	"encoding/binary"
	"errors"
)

// The errors of Parse and of Elements.
var (
	ErrShort  = errors.New("ngap: message shorter than its header")             // clause 10.2: transfer syntax error
	ErrLength = errors.New("ngap: length exceeds the message or is fragmented") // clause 10.2
	ErrKind   = errors.New("ngap: message of an unknown kind")                  // clause 10.3
	ErrCount  = errors.New("ngap: container with a wrong count of elements")    // clause 10.2
)

// A Kind is the kind of a message (clause 9.4.3).
type Kind uint8

// The kinds of message.
const (
	Initiating Kind = iota
	Successful      // outcome
	Unsuccessful
)

// An ID is the identifier of an information element (clause 9.4.7).
type ID uint16

// The named elements. The iterator yields all others too, by number.
const (
	AMFUEID       ID = 10
	NASPDU        ID = 38
	RANUEID       ID = 85
	SourceAMFUEID ID = 100 // in a path switch request
	UEIDs         ID = 114 // in a release command
)

// A Message is one message. Its slices are views into the parsed bytes.
type Message struct {
	Kind      Kind
	Procedure Procedure
	Octets    []byte // the whole message
	IEs       []byte // the information elements

	count int
}

// Parse parses the header of a message. data must be exactly one message,
// because SCTP preserves message boundaries. Parse does not check the
// information elements; Check does.
func (m *Message) Parse(data []byte) error {
	*m = Message{}
	const fixed = 3 // kind, procedure and criticality
	if len(data) < fixed {
		return ErrShort
	}
	if data[0]&0x80 != 0 || data[0]>>5 > byte(Unsuccessful) {
		return ErrKind
	}
	value, rest, ok := open(data[fixed:])
	if !ok || len(rest) > 0 {
		return ErrLength
	}
	if len(value) < 3 {
		return ErrShort
	}
	if value[0]&0x80 != 0 { // extension additions, which no version defines
		return ErrKind
	}
	m.Kind, m.Procedure = Kind(data[0]>>5), Procedure(data[1])
	m.Octets, m.count, m.IEs = data, int(binary.BigEndian.Uint16(value[1:])), value[3:]
	return nil
}

// open returns the octets of an open type or of an octet string, and the octets
// after them (X.691 clause 11.9). It rejects a length above 16,383 octets,
// which is fragmented.
func open(b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, nil, false
	}
	n, start := int(b[0]), 1
	if n >= 0x80 {
		if n >= 0xc0 || len(b) < 2 {
			return nil, nil, false
		}
		n, start = n&0x3f<<8|int(b[1]), 2
	}
	if n > len(b)-start {
		return nil, nil, false
	}
	end := start + n
	return b[start:end:end], b[end:], true
}

// Elements iterates over information elements in order. ID and Value belong to the
// element that Next reached.
type Elements struct {
	ID    ID
	Value []byte // a view: the value in aligned PER
	Err   error  // ErrCount or ErrLength if Next stopped before the end

	rest []byte
	left int
}

// Elements returns an iterator over the message's elements.
func (m *Message) Elements() Elements { return Elements{rest: m.IEs, left: m.count} }

// Next moves to the next element and reports whether there is one.
func (e *Elements) Next() bool {
	if e.Err != nil || e.left == 0 && len(e.rest) == 0 {
		return false
	}
	if e.left == 0 || len(e.rest) == 0 {
		e.Err = ErrCount
		return false
	}
	const header = 3 // identifier and criticality
	if len(e.rest) < header {
		e.Err = ErrLength
		return false
	}
	value, rest, ok := open(e.rest[header:])
	if !ok {
		e.Err = ErrLength
		return false
	}
	e.ID, e.Value = ID(binary.BigEndian.Uint16(e.rest)), value
	e.rest, e.left = rest, e.left-1
	return true
}

// Check walks over all elements. It returns an error if one is malformed or if
// their number differs from the count in the message.
func (m *Message) Check() error {
	e := m.Elements()
	for e.Next() {
	}
	return e.Err
}

// A UE has the identities of a UE on the interface, and the NAS message about it.
type UE struct {
	HasAMF, HasRAN bool
	AMF            uint64 // AMF-UE-NGAP-ID: 40 bits (clause 9.3.3.1)
	RAN            uint32 // RAN-UE-NGAP-ID (clause 9.3.3.2)
	NAS            []byte // a view: the NAS PDU; nil for none
}

// UE returns the identities and the NAS message in the message. For a path
// switch request, AMF is the identity at the source. UE does not read elements
// inside others, such as a NAS PDU in a list of sessions. It leaves out
// malformed elements, and all elements after an error of the container.
func (m *Message) UE() (u UE) {
	for e := m.Elements(); e.Next(); {
		switch e.ID {
		case AMFUEID, SourceAMFUEID:
			u.amf(e.Value, 0)
		case RANUEID:
			u.ran(e.Value)
		case UEIDs:
			u.both(e.Value)
		case NASPDU:
			u.NAS, _, _ = open(e.Value)
		}
	}
	return u
}

// amf reads an AMF-UE-NGAP-ID, and returns the octets after it. The length of
// the identity has three bits, after the given number of other bits (X.691
// clause 11.5.7.4).
func (u *UE) amf(v []byte, before int) (rest []byte) {
	const bits, most = 3, 5
	id, rest, ok := integer(v, before, bits, most)
	if ok {
		u.AMF, u.HasAMF = id, true
	}
	return rest
}

// ran reads a RAN-UE-NGAP-ID, whose length has two bits.
func (u *UE) ran(v []byte) {
	const bits, most = 2, 4
	if id, _, ok := integer(v, 0, bits, most); ok {
		u.RAN, u.HasRAN = uint32(id), true
	}
}

// both reads UE-NGAP-IDs: a pair, or only the identity of the AMF (clause 9.4.5).
func (u *UE) both(v []byte) {
	if len(v) == 0 {
		return
	}
	const choice = 2 // bits
	switch v[0] >> 6 {
	case 0:
		const preamble = 2 // bits: extensions follow
		u.ran(u.amf(v, choice+preamble))
	case 1:
		u.amf(v, choice)
	}
}

// integer reads a whole number whose range exceeds 65,536. Its first octet has
// the length minus one, in the given number of bits after the bits before.
func integer(v []byte, before, bits, most int) (n uint64, rest []byte, ok bool) {
	if len(v) == 0 {
		return 0, nil, false
	}
	size := int(v[0]<<before>>(8-bits)) + 1
	if size > most || size > len(v)-1 {
		return 0, nil, false
	}
	for _, b := range v[1 : 1+size] {
		n = n<<8 | uint64(b)
	}
	return n, v[1+size:], true
}
