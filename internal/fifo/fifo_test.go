package fifo

import "testing"

// TestQueue checks first in, first out while the ring wraps and grows.
func TestQueue(t *testing.T) {
	var f Queue[int]
	next, want := 0, 0
	for round := range 500 {
		for range round%7 + 1 {
			f.Push(next)
			next++
		}
		for range min(round%5, f.Len()) {
			if *f.Front() != want || f.Pop() != want {
				t.Fatalf("out of order at %d", want)
			}
			want++
		}
	}
	if f.Len() != next-want {
		t.Errorf("holds %d, want %d", f.Len(), next-want)
	}
}
