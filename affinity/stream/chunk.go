package stream

import (
	"math/bits"
	"unsafe"
)

// A chunk holds early bytes.
type chunk struct {
	seq        uint32
	at         int64
	octets     []byte
	prev, next *chunk
}

// The capacity of a chunk is a power of two from smallest to largest. Longer chunks have
// exactly the capacity they need.
const (
	smallest = 256
	largest  = 64 << 10
	classes  = 9
)

// A pool keeps chunks for reuse, by the class of their capacity.
type pool struct {
	free  [classes]*chunk
	bytes int
}

// class returns the smallest class with room for n bytes, or classes if there is none.
func class(n int) int {
	if n > largest {
		return classes
	}
	return max(0, bits.Len(uint(n-1))-bits.Len(smallest-1))
}

// chunkSize returns the memory of a chunk of n bytes.
func chunkSize(n int) int {
	if c := class(n); c < classes {
		n = smallest << c
	}
	return n + int(unsafe.Sizeof(chunk{}))
}

// keep returns a chunk with a copy of b.
func (a *Assembler) keep(c *connection, seq uint32, at int64, b []byte) *chunk {
	size := chunkSize(len(b))
	c.held += size
	a.memory += size
	var k *chunk
	if i := class(len(b)); i == classes {
		k = &chunk{octets: make([]byte, 0, len(b))}
	} else if k = a.chunks.free[i]; k != nil {
		a.chunks.free[i] = k.next
		a.chunks.bytes -= size
	} else {
		k = &chunk{octets: make([]byte, 0, smallest<<i)}
	}
	k.seq, k.at, k.octets = seq, at, append(k.octets[:0], b...)
	k.prev, k.next = nil, nil
	return k
}

// release returns a chunk to the pool, which keeps a limited number of bytes.
func (a *Assembler) release(c *connection, k *chunk) {
	const keep = 4 << 20
	size := chunkSize(cap(k.octets))
	c.held -= size
	a.memory -= size
	if k.next != nil {
		k.next.prev = nil
	}
	k.prev, k.next = nil, nil
	if i := class(cap(k.octets)); i < classes && a.chunks.bytes+size <= keep {
		k.next, a.chunks.free[i] = a.chunks.free[i], k
		a.chunks.bytes += size
	}
}
