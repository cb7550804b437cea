package http2

// huffmanLengths has the number of bits of each octet's code (RFC 7541 appendix
// B). The codes follow from the lengths: shorter codes come first, and codes of
// the same length are in the order of their octets. It is read-only.
var huffmanLengths = [256]uint8{
	13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
	6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
	13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
	15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
	20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
	22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
	26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
	20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
}

const (
	longest   = 30 // bits of a code; the code of 30 ones is EOS, which no string may contain
	shortBits = 8  // codes of at most so many bits need one look-up
)

// A short is the code at the start of a string's first shortBits bits. It has
// no bits if the code is longer.
type short struct{ octet, bits uint8 }

// huffmanCodes are the codes by their length. It is read-only.
type huffmanCodes struct {
	short  [1 << shortBits]short
	first  [longest + 1]uint32 // the first code of a length
	count  [longest + 1]uint32 // number of codes of that length
	offset [longest + 1]uint32 // index in octets of the first of them
	octets [256]byte           // in the order of their codes
}

var huffman = func() (h huffmanCodes) {
	code, n := uint32(0), uint32(0)
	for bits := uint8(1); bits <= longest; bits++ {
		code <<= 1
		h.first[bits], h.offset[bits] = code, n
		for octet, of := range huffmanLengths {
			if of != bits {
				continue
			}
			h.octets[n] = byte(octet)
			if bits <= shortBits {
				free := shortBits - bits
				for rest := range uint32(1) << free {
					h.short[code<<free|rest] = short{byte(octet), bits}
				}
			}
			code, n = code+1, n+1
		}
		h.count[bits] = n - h.offset[bits]
	}
	return h
}()

// appendHuffman decodes the Huffman-coded string src (RFC 7541 section 5.2) and
// appends it to dst. It returns false if src contains EOS, or if its padding is
// longer than 7 bits or contains a zero.
func appendHuffman(dst, src []byte) ([]byte, bool) {
	var bits uint64 // the first bit is the most significant
	n := uint8(0)   // number of bits
	for {
		for n <= 56 && len(src) > 0 {
			bits |= uint64(src[0]) << (56 - n)
			src, n = src[1:], n+8
		}
		c := huffman.short[bits>>(64-shortBits)]
		if c.bits == 0 {
			c = longCode(bits)
		}
		if c.bits > n || c.bits == 0 {
			break
		}
		dst, bits, n = append(dst, c.octet), bits<<c.bits, n-c.bits
	}
	return dst, n < 8 && bits>>(64-n) == 1<<n-1
}

// longCode finds a code that is longer than shortBits. For EOS it returns a
// code of no bits.
func longCode(bits uint64) short {
	for length := shortBits + 1; length <= longest; length++ {
		if i := uint32(bits>>(64-length)) - huffman.first[length]; i < huffman.count[length] {
			return short{huffman.octets[huffman.offset[length]+i], uint8(length)}
		}
	}
	return short{}
}
