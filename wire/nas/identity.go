package nas

import "vitrine/wire/identity"

// A Kind is a type of identity (clause 9.9.3.12, TS 24.008 clause 10.5.1.4).
type Kind uint8

// The kinds of identity. An EPS mobile identity, in Attach, Detach and Tracking
// Area Update, uses 3 for an IMEI. A mobile identity, in Identity Response and
// Security Mode Complete, uses 2 for an IMEI and 3 for an IMEISV.
const (
	KindIMSI   Kind = 1
	KindIMEI   Kind = 2
	KindIMEISV Kind = 3
	KindTMSI   Kind = 4
	KindGUTI   Kind = 6
)

// An Identity is an EPS mobile identity or a mobile identity: a GUTI, or digits.
type Identity struct {
	Kind   Kind
	Digits identity.Digits // unless Kind is KindGUTI
	GUTI   identity.GUTI   // if Kind is KindGUTI
}

const odd = 0x08 // the number of digits is odd

// ParseIdentity parses the value of a mobile identity. It returns false for a
// TMSI, which an EPS does not use, and for anything malformed.
func ParseIdentity(v []byte) (id Identity, ok bool) {
	if len(v) == 0 {
		return id, false
	}
	id.Kind = Kind(v[0] & 0x07)
	switch id.Kind {
	case KindGUTI:
		if v[0]&0xf8 != 0xf0 { // even, and ones in place of the first digit
			return Identity{}, false
		}
		id.GUTI, ok = identity.ParseGUTI(v[1:])
	case KindIMSI, KindIMEI, KindIMEISV:
		ok = id.Digits.Add(v[0] >> 4)
		for i := 1; ok && i < len(v); i++ {
			low, high := v[i]&0x0f, v[i]>>4
			ok = id.Digits.Add(low)
			if i == len(v)-1 && v[0]&odd == 0 {
				ok = ok && high == 0x0f
				break
			}
			ok = ok && id.Digits.Add(high)
		}
		ok = ok && (id.Digits.Len()%2 == 1) == (v[0]&odd != 0)
	}
	if !ok {
		return Identity{}, false
	}
	return id, true
}

// Append appends the value of a mobile identity. Digits must not be empty.
func (id *Identity) Append(b []byte) []byte {
	if id.Kind == KindGUTI {
		return id.GUTI.Append(append(b, 0xf0|byte(KindGUTI)))
	}
	digits := id.Digits.Bytes()
	first := (digits[0]-'0')<<4 | byte(id.Kind)
	if len(digits)%2 == 1 {
		first |= odd
	}
	return identity.AppendTBCD(append(b, first), digits[1:])
}

// appendLV appends the identity with its length before it.
func (id *Identity) appendLV(b []byte) []byte {
	at := len(b)
	b = id.Append(append(b, 0))
	b[at] = byte(len(b) - at - 1)
	return b
}

// identity reads a mandatory identity.
func (r *reader) identity() (id Identity) {
	v := r.lv(1, 17)
	if r.err != nil {
		return id
	}
	id, ok := ParseIdentity(v)
	if !ok {
		r.fail(ErrValue)
	}
	return id
}

// optionalGUTI parses an optional element that holds a GUTI. A malformed one
// counts as absent (clause 7.7.1).
func optionalGUTI(v []byte) (identity.GUTI, bool) {
	id, ok := ParseIdentity(v)
	return id.GUTI, ok && id.Kind == KindGUTI
}

// appendGUTI appends the optional element that holds a GUTI.
func appendGUTI(b []byte, g identity.GUTI) []byte {
	id := Identity{Kind: KindGUTI, GUTI: g}
	return id.appendLV(append(b, 0x50))
}
