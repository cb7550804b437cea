package service

import (
	"net/netip"
	"sync"
)

const (
	// reserve is the part of a budget that is kept for sources that hold little: a quarter.
	reserve = 4
	// little is the part of a budget that a source may hold from the reserve: 1/64. A source that holds
	// nothing may take any amount.
	little = 64
)

// A budget is an amount that the requests of all sources share, such as bytes of memory.
// One request may take all of it, but several requests of one source cannot.
type budget struct {
	most int64

	mu   sync.Mutex
	held int64
	by   map[netip.Addr]int64
}

func newBudget(most int64) *budget { return &budget{most: most, by: map[netip.Addr]int64{}} }

// take takes n for a source, and returns false if the budget has not enough left for it.
func (b *budget) take(from netip.Addr, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	left, has := b.most-b.held-n, b.by[from]
	if left < 0 || left < b.most/reserve && has > 0 && has+n > b.most/little {
		return false
	}
	b.held += n
	b.by[from] += n
	return true
}

// free returns n that a source took.
func (b *budget) free(from netip.Addr, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held -= n
	if b.by[from] -= n; b.by[from] <= 0 {
		delete(b.by, from)
	}
}

// taken returns the sum that all sources hold.
func (b *budget) taken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}
