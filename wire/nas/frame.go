// Package nas reads and writes the NAS messages of an EPS (3GPP TS 24.301) in
// place. Parsed messages hold views into the parsed bytes, and messages are built
// by appending to a slice. Neither allocates. The package is a format, not a
// stack: it has no timers, no keys and no state of subscribers.
//
// A PDU is the outer frame: a plain message, or one with a security header. The
// body of a PDU is an EMM or ESM message. ParseHeader reports which, and one of
// the message types parses it. Clauses without a document are clauses of TS
// 24.301.
package nas

import (
	"encoding/binary"
	"errors"
)

// The errors of all parsers.
var (
	ErrShort         = errors.New("nas: message too short")                                       // clause 7.2
	ErrType          = errors.New("nas: message of another type")                                 // clause 7.4
	ErrValue         = errors.New("nas: invalid mandatory information")                           // clause 7.5.1
	ErrComprehension = errors.New("nas: unknown information element that requires comprehension") // clause 7.6.1
	ErrDiscriminator = errors.New("nas: protocol discriminator is neither EMM nor ESM")           // clause 9.2
)

// A Discriminator distinguishes EMM from ESM messages (TS 24.007 clause
// 11.2.3.1.1).
type Discriminator uint8

// The protocol discriminators of an EPS.
const (
	ESM Discriminator = 2
	EMM Discriminator = 7
)

// A Security is a security header type (clause 9.3.1).
type Security uint8

// The security header types.
const (
	Plain                Security = 0
	Protected            Security = 1 // integrity protected
	Ciphered             Security = 2 // integrity protected and ciphered
	ProtectedNewContext  Security = 3 // Security Mode Command
	CipheredNewContext   Security = 4 // Security Mode Complete
	ServiceRequestHeader Security = 12
)

// IsCiphered reports whether the body is ciphered. With EEA0 a ciphered body is
// still readable.
func (s Security) IsCiphered() bool { return s == Ciphered || s == CipheredNewContext }

const (
	macAt          = 1 // offset of the message authentication code
	sequenceAt     = 5 // offset of the sequence number; the code covers all octets from here on
	bodyAt         = 6 // offset of the body; ciphering covers all octets from here on
	serviceRequest = 4 // octets of a Service Request
)

// A PDU is a NAS message as S1AP carries it. Its slices are views into the parsed
// bytes.
type PDU struct {
	Security Security
	MAC      uint32 // of integrity protected messages
	Sequence uint8  // low octet of the NAS COUNT; of a Service Request the low five bits
	KSI      uint8  // key set identifier; Service Request only
	ShortMAC uint16 // Service Request only
	Octets   []byte // the whole message
	Body     []byte // the EMM or ESM message; nil for a Service Request
}

// Parse parses a PDU (clauses 9.1 to 9.6, 8.2.25). It does not parse the body.
func (p *PDU) Parse(data []byte) error {
	*p = PDU{}
	if len(data) < 2 {
		return ErrShort
	}
	switch Discriminator(data[0] & 0x0f) {
	case ESM:
		p.Octets, p.Body = data, data
		return nil
	case EMM:
	default:
		return ErrDiscriminator
	}
	security := Security(data[0] >> 4)
	switch {
	case security == Plain:
		p.Octets, p.Body = data, data
		return nil
	case security >= ServiceRequestHeader: // clause 9.3.1: 13 to 15 are read as 12
		if len(data) < serviceRequest {
			return ErrShort
		}
		p.Security, p.Octets = ServiceRequestHeader, data
		p.KSI, p.Sequence = data[1]>>5, data[1]&0x1f
		p.ShortMAC = binary.BigEndian.Uint16(data[2:])
		return nil
	case security > CipheredNewContext:
		return ErrValue
	case len(data) < bodyAt+2:
		return ErrShort
	}
	p.Security, p.Octets = security, data
	p.MAC, p.Sequence = binary.BigEndian.Uint32(data[macAt:]), data[sequenceAt]
	p.Body = data[bodyAt:]
	return nil
}

// Covered returns the octets that the message authentication code covers: the
// sequence number and the body as sent, or the first two octets of a Service
// Request (clauses 4.4.3.3 and 9.9.3.28). It is nil for plain messages.
func (p *PDU) Covered() []byte {
	switch p.Security {
	case Plain:
		return nil
	case ServiceRequestHeader:
		return p.Octets[:2]
	}
	return p.Octets[sequenceAt:]
}

// AppendFrame begins a PDU with a security header. The caller appends the body,
// ciphers FrameBody(b, start) if the header says so, computes the message
// authentication code of FrameCovered(b, start) and calls SetMAC. Start is the
// length of b before AppendFrame.
func AppendFrame(b []byte, s Security, sequence uint8) []byte {
	return append(b, byte(s)<<4|byte(EMM), 0, 0, 0, 0, sequence)
}

// FrameBody returns the body of the PDU that begins at start: the octets to
// cipher.
func FrameBody(b []byte, start int) []byte { return b[start+bodyAt:] }

// FrameCovered returns the octets that the message authentication code covers, of
// the PDU that begins at start.
func FrameCovered(b []byte, start int) []byte { return b[start+sequenceAt:] }

// SetMAC sets the message authentication code of the PDU that begins at start.
func SetMAC(b []byte, start int, mac uint32) {
	binary.BigEndian.PutUint32(b[start+macAt:], mac)
}

// AppendServiceRequest appends a Service Request (clause 8.2.25) with a key set
// identifier, the low five bits of the NAS COUNT, and a short MAC of zero. The
// short MAC covers the two octets from start on; SetShortMAC sets it.
func AppendServiceRequest(b []byte, ksi, sequence uint8) []byte {
	return append(b, byte(ServiceRequestHeader)<<4|byte(EMM), ksi<<5|sequence&0x1f, 0, 0)
}

// SetShortMAC sets the short MAC of the Service Request that begins at start: the
// low 16 bits of a message authentication code (clause 9.9.3.28).
func SetShortMAC(b []byte, start int, mac uint32) {
	binary.BigEndian.PutUint16(b[start+2:], uint16(mac))
}

// A Header is the start of a plain EMM or ESM message.
type Header struct {
	Discriminator Discriminator
	Type          Type
	EBI           uint8 // EPS bearer identity, 0 for none; ESM only
	PTI           uint8 // procedure transaction identity, 0 for none; ESM only
}

// ParseHeader parses the header of a PDU's body (clause 9.1).
func ParseHeader(body []byte) (h Header, err error) {
	if len(body) < 2 {
		return h, ErrShort
	}
	h.Discriminator = Discriminator(body[0] & 0x0f)
	switch h.Discriminator {
	case EMM:
		if body[0]>>4 != byte(Plain) {
			return h, ErrValue
		}
		h.Type = Type(body[1])
		return h, nil
	case ESM:
		if len(body) < 3 {
			return h, ErrShort
		}
		h.EBI, h.PTI, h.Type = body[0]>>4, body[1], Type(body[2])
		return h, nil
	}
	return h, ErrDiscriminator
}

// IsKnown reports whether the type has a name here and belongs to the
// discriminator. The two high bits of a type are 01 for EMM and 11 for ESM (clause
// 9.8).
func (h Header) IsKnown() bool {
	return names[h.Type] != "" && (h.Discriminator == ESM) == (h.Type >= 0x80)
}

// appendEMM begins a plain EMM message.
func appendEMM(b []byte, t Type) []byte { return append(b, byte(EMM), byte(t)) }
