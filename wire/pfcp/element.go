package pfcp

import "encoding/binary"

// An Element is the type of an information element (table 8.1.2-1).
type Element uint16

// The named elements. The iterator yields all others too, by number.
const (
	CreatePDR             Element = 1
	PDI                   Element = 2
	CreateFAR             Element = 3
	ForwardingParameters  Element = 4
	DuplicatingParameters Element = 5
	CreateURR             Element = 6
	CreateQER             Element = 7
	CreatedPDR            Element = 8
	UpdatePDR             Element = 9
	UpdateFAR             Element = 10
	UpdateForwarding      Element = 11
	UpdateURR             Element = 13
	UpdateQER             Element = 14
	RemovePDR             Element = 15
	RemoveFAR             Element = 16
	RemoveURR             Element = 17
	RemoveQER             Element = 18
	Cause                 Element = 19
	PDRID                 Element = 56
	FSEID                 Element = 57
	NodeID                Element = 60
	URRID                 Element = 81
	RecoveryTimeStamp     Element = 96
	FARID                 Element = 108
	QERID                 Element = 109
)

// IsGroup reports whether the element is one of the named groups. Other groups
// count as values.
func (e Element) IsGroup() bool {
	return e >= CreatePDR && e <= RemoveQER && e != 12 // 12 updates a BAR
}

// vendorSpecific marks types that vendors assign. In such an element, an
// enterprise number precedes the value (clause 8.1.1).
const vendorSpecific Element = 0x8000

const (
	elementHeader  = 4
	enterpriseSize = 2
)

// Elements iterates over the elements of a message, or inside a grouped
// element, in order. Type, Enterprise and Value belong to the element that Next
// reached.
type Elements struct {
	Type       Element
	Enterprise uint16 // of types from 32768 on, else zero
	Value      []byte // a view
	Err        error  // ErrIE if Next stopped before the end

	rest []byte
}

// Elements returns an iterator over the message's elements.
func (m *Message) Elements() Elements { return Elements{rest: m.IEs} }

// Group returns an iterator over the elements inside a grouped element.
func Group(value []byte) Elements { return Elements{rest: value} }

// Next moves to the next element and reports whether there is one.
func (e *Elements) Next() bool {
	if len(e.rest) == 0 {
		return false
	}
	if len(e.rest) < elementHeader {
		return e.stop()
	}
	of := Element(binary.BigEndian.Uint16(e.rest))
	start, end := elementHeader, elementHeader+int(binary.BigEndian.Uint16(e.rest[2:]))
	if of >= vendorSpecific {
		start += enterpriseSize
	}
	if end < start || end > len(e.rest) {
		return e.stop()
	}
	e.Type, e.Enterprise = of, 0
	if of >= vendorSpecific {
		e.Enterprise = binary.BigEndian.Uint16(e.rest[elementHeader:])
	}
	e.Value = e.rest[start:end:end]
	e.rest = e.rest[end:]
	return true
}

func (e *Elements) stop() bool {
	e.rest, e.Err = nil, ErrIE
	return false
}

// Find moves to the next element of a type. It returns false if there is none, or
// if an earlier element is malformed.
func (e *Elements) Find(t Element) bool {
	for e.Next() {
		if e.Type == t {
			return true
		}
	}
	return false
}

// Find returns the value of the message's first element of a type. It returns
// false if there is none or if an earlier element is malformed.
func (m *Message) Find(t Element) ([]byte, bool) {
	e := m.Elements()
	ok := e.Find(t)
	if !ok {
		return nil, false
	}
	return e.Value, true
}
