package gtpc

import (
	"encoding/binary"

	"vitrine/wire/identity"
)

// AppendHeader begins a message with a TEID. The caller appends the elements and
// then calls End to set the length.
func AppendHeader(b []byte, t Type, teid, sequence uint32) []byte {
	b = append(b, version|flagTEID, byte(t), 0, 0)
	b = binary.BigEndian.AppendUint32(b, teid)
	return binary.BigEndian.AppendUint32(b, sequence<<8)
}

// AppendPlainHeader begins a message without a TEID: Echo or Version Not
// Supported Indication (clause 5.5.2).
func AppendPlainHeader(b []byte, t Type, sequence uint32) []byte {
	b = append(b, version, byte(t), 0, 0)
	return binary.BigEndian.AppendUint32(b, sequence<<8)
}

// End sets the length of the message from start to the end of b. It panics if the
// message is longer than 65,539 octets, the limit of the length field.
func End(b []byte, start int) []byte {
	n := len(b) - start - headerFixed
	if n > 0xffff {
		panic("gtpc: message too long")
	}
	binary.BigEndian.PutUint16(b[start+2:], uint16(n))
	return b
}

// SetPiggyback marks the message that begins at start as followed by another
// message (clause 5.5.1). Only a response may be marked, and never the
// piggybacked message itself.
func SetPiggyback(b []byte, start int) { b[start] |= flagPiggyback }

// ClearPiggyback marks the message that begins at start as followed by none.
func ClearPiggyback(b []byte, start int) { b[start] &^= flagPiggyback }

// AppendElement appends an information element.
func AppendElement(b []byte, t Element, instance uint8, value ...byte) []byte {
	b = append(b, byte(t), byte(len(value)>>8), byte(len(value)), instance&0x0f)
	return append(b, value...)
}

// BeginGroup begins a grouped element, which holds all elements appended until
// EndGroup.
func BeginGroup(b []byte, t Element, instance uint8) []byte {
	return append(b, byte(t), 0, 0, instance&0x0f)
}

// EndGroup sets the length of the group that begins at start, the length of b
// before BeginGroup.
func EndGroup(b []byte, start int) []byte {
	n := len(b) - start - elementHeader
	if n > 0xffff {
		panic("gtpc: group too long")
	}
	binary.BigEndian.PutUint16(b[start+1:], uint16(n))
	return b
}

// AppendDigits appends an IMSI, MSISDN or MEI with its digits as TBCD.
func AppendDigits[T string | []byte](b []byte, t Element, digits T) []byte {
	n := (len(digits) + 1) / 2
	return identity.AppendTBCD(append(b, byte(t), byte(n>>8), byte(n), 0), digits)
}

// AppendFTEID appends an F-TEID.
func AppendFTEID(b []byte, instance uint8, f Endpoint) []byte {
	start := len(b)
	b = BeginGroup(b, FTEID, instance)
	first := byte(f.Interface & 0x3f)
	if f.V4.IsValid() {
		first |= 0x80
	}
	if f.V6.IsValid() {
		first |= 0x40
	}
	b = binary.BigEndian.AppendUint32(append(b, first), f.TEID)
	if f.V4.IsValid() {
		a := f.V4.As4()
		b = append(b, a[:]...)
	}
	if f.V6.IsValid() {
		a := f.V6.As16()
		b = append(b, a[:]...)
	}
	return EndGroup(b, start)
}

// AppendCause appends a Cause without an offending element.
func AppendCause(b []byte, cause CauseValue) []byte {
	return AppendElement(b, Cause, 0, byte(cause), 0)
}

// AppendRecovery appends a restart counter.
func AppendRecovery(b []byte, counter uint8) []byte { return AppendElement(b, Recovery, 0, counter) }

// AppendEchoRequest appends an Echo Request (clause 7.1.1).
func AppendEchoRequest(b []byte, sequence uint32, counter uint8) []byte {
	start := len(b)
	return End(AppendRecovery(AppendPlainHeader(b, EchoRequest, sequence), counter), start)
}

// AppendEchoResponse appends an Echo Response (clause 7.1.2).
func AppendEchoResponse(b []byte, sequence uint32, counter uint8) []byte {
	start := len(b)
	return End(AppendRecovery(AppendPlainHeader(b, EchoResponse, sequence), counter), start)
}

// AppendVersionNotSupported appends a Version Not Supported Indication: a header
// with the highest supported version (clause 7.1.3).
func AppendVersionNotSupported(b []byte, sequence uint32) []byte {
	start := len(b)
	return End(AppendPlainHeader(b, VersionNotSupported, sequence), start)
}
