// Package fifo has a queue for hot paths. It allocates only to grow.
package fifo

// A Queue is a first-in, first-out queue in a ring. The ring grows as needed and is then reused.
type Queue[T any] struct {
	ring  []T
	head  int
	count int
}

// Len returns the number of elements.
func (f *Queue[T]) Len() int { return f.count }

// Front returns the oldest element. The queue must not be empty.
func (f *Queue[T]) Front() *T { return &f.ring[f.head] }

// Pop removes and returns the oldest element. The queue must not be empty.
func (f *Queue[T]) Pop() T {
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

// Push adds an element.
func (f *Queue[T]) Push(v T) {
	if f.count == len(f.ring) {
		f.Grow(max(64, 2*len(f.ring)))
	}
	i := f.head + f.count
	if i >= len(f.ring) {
		i -= len(f.ring)
	}
	f.ring[i] = v
	f.count++
}

// Grow makes room for that many elements in total.
func (f *Queue[T]) Grow(room int) {
	if room <= len(f.ring) {
		return
	}
	ring := make([]T, room)
	n := copy(ring, f.ring[f.head:])
	copy(ring[n:], f.ring[:f.head])
	f.ring, f.head = ring, 0
}
