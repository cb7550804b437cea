package sip

// A fifo is a first-in, first-out queue in a ring that grows to what it must
// hold and is then reused.
type fifo[T any] struct {
	ring  []T
	head  int
	count int
}

func (f *fifo[T]) len() int { return f.count }

// front is the oldest element; the queue must not be empty.
func (f *fifo[T]) front() *T { return &f.ring[f.head] }

func (f *fifo[T]) pop() T {
	var zero T
	v := f.ring[f.head]
	f.ring[f.head] = zero
	f.head++
	if f.head == len(f.ring) {
		f.head = 0
	}
	f.count--
	return v
}

func (f *fifo[T]) push(v T) {
	if f.count == len(f.ring) {
		f.grow(max(64, 2*len(f.ring)))
	}
	i := f.head + f.count
	if i >= len(f.ring) {
		i -= len(f.ring)
	}
	f.ring[i] = v
	f.count++
}

// grow makes room for so many elements.
func (f *fifo[T]) grow(room int) {
	if room <= len(f.ring) {
		return
	}
	ring := make([]T, room)
	n := copy(ring, f.ring[f.head:])
	copy(ring[n:], f.ring[:f.head])
	f.ring, f.head = ring, 0
}
