package gtpc

import "encoding/binary"

// An Element is the type of an information element (clause 8.1).
type Element uint8

// The named elements. The iterator yields all others too, by number.
const (
	IMSI           Element = 1
	Cause          Element = 2
	Recovery       Element = 3
	APN            Element = 71
	AMBR           Element = 72
	EBI            Element = 73
	IPAddress      Element = 74
	MEI            Element = 75
	MSISDN         Element = 76
	Indication     Element = 77
	PCO            Element = 78
	PAA            Element = 79
	BearerQoS      Element = 80
	FlowQoS        Element = 81
	RATType        Element = 82
	ServingNetwork Element = 83
	BearerTFT      Element = 84
	TAD            Element = 85 // traffic aggregate description
	ULI            Element = 86
	FTEID          Element = 87
	BearerContext  Element = 93
	ChargingID     Element = 94
	PDNType        Element = 99
	PDNConnection  Element = 109
	UETimeZone     Element = 114
	GUTI           Element = 117
	APNRestriction Element = 127
	SelectionMode  Element = 128
	FQCSID         Element = 132
	Extended       Element = 254 // its first two octets are the type (clause 8.2.1A)
)

const elementHeader = 4

// Elements iterates over the elements of a message, or inside a grouped
// element, in order. Type, Instance and Value belong to the element that Next
// reached.
type Elements struct {
	Type     Element
	Instance uint8
	Value    []byte // a view
	Err      error  // ErrIE if Next stopped before the end

	rest []byte
}

// Elements returns an iterator over the message's elements.
func (m *Message) Elements() Elements { return Elements{rest: m.IEs} }

// Group returns an iterator over the elements inside a grouped element, such as
// BearerContext.
func Group(value []byte) Elements { return Elements{rest: value} }

// Next moves to the next element and reports whether there is one.
func (e *Elements) Next() bool {
	if len(e.rest) == 0 {
		return false
	}
	if len(e.rest) < elementHeader {
		e.rest, e.Err = nil, ErrIE
		return false
	}
	end := elementHeader + int(binary.BigEndian.Uint16(e.rest[1:]))
	if end > len(e.rest) {
		e.rest, e.Err = nil, ErrIE
		return false
	}
	e.Type, e.Instance = Element(e.rest[0]), e.rest[3]&0x0f
	e.Value = e.rest[elementHeader:end:end]
	e.rest = e.rest[end:]
	return true
}

// Find returns the value of the first element of a type and instance. It returns
// false if there is none or if an earlier element is malformed.
func (m *Message) Find(t Element, instance uint8) ([]byte, bool) {
	for e := m.Elements(); e.Next(); {
		if e.Type == t && e.Instance == instance {
			return e.Value, true
		}
	}
	return nil, false
}

// Check walks over all elements, including those inside bearer contexts. It
// returns ErrIE if an element is longer than the space left.
func (m *Message) Check() error {
	e := m.Elements()
	for e.Next() {
		if e.Type != BearerContext {
			continue
		}
		inner := Group(e.Value)
		for inner.Next() {
		}
		if inner.Err != nil {
			return inner.Err
		}
	}
	return e.Err
}
