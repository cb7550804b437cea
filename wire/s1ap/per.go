package s1ap

import "encoding/binary"

// A reader reads aligned PER (X.691) from the value of one open type, which
// begins at an octet boundary. It keeps the first error, and then reads only
// zeros.
type reader struct {
	b   []byte
	at  int // in bits
	bad bool
}

// bits returns the next n bits, at most 32.
func (r *reader) bits(n int) uint32 {
	if r.bad || n > len(r.b)*8-r.at {
		r.bad = true
		return 0
	}
	var v uint32
	for n > 0 {
		left := 8 - r.at%8
		take := min(n, left)
		octet := uint32(r.b[r.at/8]) >> (left - take) & (1<<take - 1)
		v = v<<take | octet
		r.at, n = r.at+take, n-take
	}
	return v
}

func (r *reader) bit() bool { return r.bits(1) == 1 }

// octets returns the next n octets from an octet boundary, as a view.
func (r *reader) octets(n int) []byte {
	r.at = (r.at + 7) &^ 7
	if r.bad || n > len(r.b)-r.at/8 {
		r.bad = true
		return nil
	}
	start := r.at / 8
	r.at += n * 8
	return r.b[start : start+n : start+n]
}

// octet returns the next octet from an octet boundary.
func (r *reader) octet() byte {
	if v := r.octets(1); v != nil {
		return v[0]
	}
	return 0
}

// maxLength is the largest length that is not fragmented (X.691 clause 11.9.3.8).
// The writer refuses longer values.
const maxLength = 1<<14 - 1

// length returns a length without bounds (X.691 clauses 11.9.3.5 to 11.9.3.8). more
// reports that the length is that of a fragment: another length follows its octets.
func (r *reader) length() (n int, more bool) {
	n = int(r.octet())
	switch {
	case n < 0x80:
		return n, false
	case n < 0xc0:
		return n&0x3f<<8 | int(r.octet()), false
	case n == 0xc0 || n > 0xc4:
		r.bad = true
		return 0, false
	}
	return (n - 0xc0) * (1 << 14), true
}

// open returns the octets of an open type or of an octet string without bounds. They
// are a view, or a copy if they are fragmented.
func (r *reader) open() []byte {
	n, more := r.length()
	v := r.octets(n)
	for more && !r.bad {
		n, more = r.length()
		v = append(v, r.octets(n)...)
	}
	return v
}

// long returns a whole number whose range exceeds 65,536, of at most the given
// number of octets (X.691 clause 11.5.7.4).
func (r *reader) long(most int) (v uint64) {
	n := int(r.bits(sizeBits(most))) + 1
	if n > most {
		r.bad = true
	}
	for _, b := range r.octets(n) {
		v = v<<8 | uint64(b)
	}
	return v
}

// sizeBits returns the bits that encode one of n counts, for n up to 8.
func sizeBits(n int) int {
	switch {
	case n <= 1:
		return 0
	case n <= 2:
		return 1
	case n <= 4:
		return 2
	}
	return 3
}

// enumerated returns an extensible enumeration with the given bits of root
// values. Values of the extension count from root on (X.691 clause 14).
func (r *reader) enumerated(bits int, root uint8) uint8 {
	if !r.bit() {
		v := uint8(r.bits(bits))
		if v >= root {
			r.bad = true
		}
		return v
	}
	return root + uint8(r.small())
}

// small returns a normally small number below 64 (X.691 clause 11.6). S1AP has no
// larger ones.
func (r *reader) small() uint32 {
	if r.bit() {
		r.bad = true
		return 0
	}
	return r.bits(6)
}

// A preamble holds the first bits of an extensible sequence: whether extension
// additions follow, and which optional components are present.
type preamble struct {
	additions bool
	optional  uint32 // the last bit stands for iE-Extensions
}

// sequence reads the preamble of a sequence with optional components. The last of
// them is iE-Extensions.
func (r *reader) sequence(optional int) preamble {
	additions := r.bit()
	return preamble{additions, r.bits(optional)}
}

// end skips extensions at the end of a sequence.
func (r *reader) end(p preamble) {
	if p.optional&1 != 0 {
		for n := int(r.pair()) + 1; n > 0 && !r.bad; n-- {
			r.octets(2) // id
			r.bits(2)   // criticality
			r.open()
		}
	}
	if !p.additions || r.bad {
		return
	}
	n := int(r.small()) + 1
	present := uint64(0)
	for range n {
		present = present<<1 | uint64(r.bits(1))
	}
	for ; n > 0 && !r.bad; n-- {
		if present>>(n-1)&1 != 0 {
			r.open()
		}
	}
}

// pair returns the number in two octets from an octet boundary, or 0 on an error.
func (r *reader) pair() uint16 {
	if v := r.octets(2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

// A writer appends aligned PER. The caller's slice is at an octet boundary when
// the writer begins.
type writer struct {
	b    []byte
	free int // unused bits of the last octet
}

// bits appends the low n bits of v.
func (w *writer) bits(v uint32, n int) {
	for n > 0 {
		if w.free == 0 {
			w.b, w.free = append(w.b, 0), 8
		}
		take := min(n, w.free)
		octet := byte(v >> (n - take) & (1<<take - 1))
		w.b[len(w.b)-1] |= octet << (w.free - take)
		w.free, n = w.free-take, n-take
	}
}

// octets appends octets at an octet boundary.
func (w *writer) octets(v ...byte) { w.b, w.free = append(w.b, v...), 0 }

// open appends a length and the octets.
func (w *writer) open(v []byte) {
	w.b, w.free = appendLength(w.b, len(v)), 0
	w.octets(v...)
}

// appendLength appends a length without bounds. It panics above 16,383 octets.
func appendLength(b []byte, n int) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	if n > maxLength {
		panic("s1ap: value too long")
	}
	return append(b, 0x80|byte(n>>8), byte(n))
}

// long appends a whole number whose range exceeds 65,536, in the minimum of
// octets.
func (w *writer) long(v uint64, most int) {
	n := 1
	for v>>(8*n) != 0 {
		n++
	}
	w.bits(uint32(n-1), sizeBits(most))
	w.free = 0
	for i := n - 1; i >= 0; i-- {
		w.b = append(w.b, byte(v>>(8*i)))
	}
}

// enumerated appends an extensible enumeration.
func (w *writer) enumerated(v uint8, bits int, root uint8) {
	if v < root {
		w.bits(uint32(v), 1+bits)
		return
	}
	w.bits(1, 1)
	w.bits(uint32(v-root)&0x3f, 7)
}
