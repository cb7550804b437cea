package nas

import (
	"encoding/binary"
	"slices"
)

// A reader reads the information elements of one message in order (TS 24.007
// clause 11.2.1). It keeps the first error, and then reads only zeros.
type reader struct {
	rest []byte
	esm  bool
	err  error
	seen [4]uint64 // a bit for each optional element that was read, by identifier
}

// openEMM returns a reader positioned after the header of an EMM message, and
// the message's type. The reader has an error if the message has none of the
// types.
func openEMM(body []byte, types ...Type) (reader, Type) {
	h, err := ParseHeader(body)
	if err == nil && (h.Discriminator != EMM || !slices.Contains(types, h.Type)) {
		err = ErrType
	}
	if err != nil {
		return reader{err: err}, 0
	}
	return reader{rest: body[2:]}, h.Type
}

// openESM is like openEMM but for ESM messages.
func openESM(body []byte, types ...Type) (reader, Header) {
	h, err := ParseHeader(body)
	if err == nil && (h.Discriminator != ESM || !slices.Contains(types, h.Type)) {
		err = ErrType
	}
	if err != nil {
		return reader{err: err, esm: true}, Header{}
	}
	return reader{rest: body[3:], esm: true}, h
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

// take returns the next n octets, or nil.
func (r *reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if len(r.rest) < n {
		r.fail(ErrShort)
		return nil
	}
	v := r.rest[:n:n]
	r.rest = r.rest[n:]
	return v
}

func (r *reader) octet() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

// lv returns the value after one octet of length, which must be within limits.
func (r *reader) lv(least, most int) []byte {
	n := int(r.octet())
	if r.err == nil && (n < least || n > most) {
		r.fail(ErrValue)
	}
	return r.take(n)
}

// lve returns the value after two octets of length.
func (r *reader) lve() []byte {
	n := r.take(2)
	if n == nil {
		return nil
	}
	return r.take(int(binary.BigEndian.Uint16(n)))
}

// element returns the next optional element. It returns false at the end and on
// an error. Only the first of repeated elements counts (clause 7.6.3). For a type
// 1 element, which has half an octet, iei has zeros in its low half and the value
// is the whole octet: mask it.
func (r *reader) element() (iei byte, value []byte, ok bool) {
	for {
		iei, value, ok = r.next()
		word, bit := &r.seen[iei>>6], uint64(1)<<(iei&63)
		if !ok || *word&bit == 0 {
			*word |= bit
			return iei, value, ok
		}
	}
}

// next is element, but also returns repeated elements.
func (r *reader) next() (iei byte, value []byte, ok bool) {
	if r.err != nil || len(r.rest) == 0 {
		return 0, nil, false
	}
	iei = r.rest[0]
	switch {
	case iei&0x80 != 0: // types 1 and 2
		return iei & 0xf0, r.take(1), true
	case iei >= 0x78: // type 6: two octets of length
		r.octet()
		value = r.lve()
	case r.fixed(iei) > 0: // type 3: no length
		r.octet()
		value = r.take(r.fixed(iei))
	default: // type 4
		r.octet()
		value = r.take(int(r.octet()))
	}
	return iei, value, r.err == nil
}

// fixed returns the size of an element's value if the message carries it without
// a length (tables of clauses 8.2 and 8.3), otherwise 0.
func (r *reader) fixed(iei byte) int {
	if r.esm {
		switch iei {
		case 0x32, 0x58: // negotiated LLC SAPI, ESM cause
			return 1
		}
		return 0
	}
	switch iei {
	case 0x17, 0x46, 0x53, 0x59, 0x5a, 0x5b: // T3402, time zone, EMM cause, T3423, T3412, T3442
		return 1
	case 0x5c: // DRX parameter
		return 2
	case 0x19: // old P-TMSI signature
		return 3
	case 0x55, 0x56: // nonces
		return 4
	case 0x13, 0x52: // location area, last visited TAI
		return 5
	case 0x47: // universal time
		return 7
	}
	return 0
}

// skip handles an element that the message does not know: it is ignored unless it
// requires comprehension (TS 24.007 clause 11.2.4).
func (r *reader) skip(iei byte) {
	if iei&0xf0 == 0 {
		r.fail(ErrComprehension)
	}
}

// appendLV appends a value with one octet of length. It panics above 255 octets.
func appendLV(b, v []byte) []byte {
	if len(v) > 0xff {
		panic("nas: information element too long")
	}
	return append(append(b, byte(len(v))), v...)
}

// appendLVE appends a value with two octets of length.
func appendLVE(b, v []byte) []byte {
	if len(v) > 0xffff {
		panic("nas: information element too long")
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(len(v))), v...)
}

// appendTLV appends an optional element, unless v is nil.
func appendTLV(b []byte, iei byte, v []byte) []byte {
	if v == nil {
		return b
	}
	return appendLV(append(b, iei), v)
}

// appendTLVE is like appendTLV, with two octets of length.
func appendTLVE(b []byte, iei byte, v []byte) []byte {
	if v == nil {
		return b
	}
	return appendLVE(append(b, iei), v)
}

// appendTV appends an optional element without a length, unless v is nil.
func appendTV(b []byte, iei byte, v []byte) []byte {
	if v == nil {
		return b
	}
	return append(append(b, iei), v...)
}
