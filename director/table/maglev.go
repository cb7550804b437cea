package table

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/cespare/xxhash/v2"

	"vitrine"
)

// Slots is the size of each table of slots, a prime (Maglev, NSDI 2016, section 3.4). It
// must never change, or every key would move. An instance has its weight's share of the
// slots to within one slot, and at least one.
const Slots = 65537

// A maglev is one table of slots. A slot holds an instance's index within its type.
type maglev struct {
	slots   []uint16 // empty when no instance is active
	members []uint16 // the instances that have slots
}

// A turn tells when an instance takes its next slot.
type turn struct {
	at    float64 // (slots taken + 1/2) / weight
	left  int     // how many slots it may still take
	local uint16
}

// newMaglev shares the slots among the active instances of a region, in proportion to
// their weights. The empty region means all instances.
//
// In Maglev, instances take turns, and each claims the next free slot of its own
// permutation of all slots. Here an instance's n-th turn comes at the time (n - 1/2) /
// weight, until it has its share. Turns and permutation depend on the instance's own
// weight and name alone. So a change of one instance moves few keys between the others.
func newMaglev(own []Target, region string) maglev {
	var turns []turn
	for i := range own {
		if own[i].State == vitrine.Active && (region == "" || own[i].Region == region) {
			turns = append(turns, turn{at: 0.5 / own[i].Weight, local: uint16(i)})
		}
	}
	if len(turns) == 0 {
		return maglev{}
	}
	assignShares(turns, own)
	members := make([]uint16, len(turns))
	offset, skip := make([]uint64, len(own)), make([]uint64, len(own))
	for i := range turns {
		local := turns[i].local
		h := xxhash.Sum64String(own[local].Name)
		members[i], offset[local], skip[local] = local, mix(h, 1)%Slots, mix(h, 2)%(Slots-1)+1
	}
	for i := len(turns)/2 - 1; i >= 0; i-- {
		sink(turns, i)
	}
	slots := make([]uint16, Slots) // local + 1; 0 is free
	for range slots {
		next := &turns[0]
		at := offset[next.local]
		for slots[at] != 0 {
			if at += skip[next.local]; at >= Slots {
				at -= Slots
			}
		}
		slots[at], offset[next.local] = next.local+1, at
		next.at += 1 / own[next.local].Weight
		if next.left--; next.left == 0 {
			next.at = math.Inf(1)
		}
		sink(turns, 0)
	}
	for i := range slots {
		slots[i]--
	}
	return maglev{slots, members}
}

// assignShares sets how many slots each instance takes: its weight's share, rounded by largest
// remainders (Hamilton's method), and at least one.
func assignShares(turns []turn, own []Target) {
	total, given := 0.0, 0
	for i := range turns {
		total += own[turns[i].local].Weight
	}
	remainders := make([]float64, len(turns))
	order := make([]int, len(turns))
	for i := range turns {
		whole, part := math.Modf(Slots * (own[turns[i].local].Weight / total))
		turns[i].left, remainders[i], order[i] = int(whole), part, i
		given += turns[i].left
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainders[b], remainders[a]) })
	for n := 0; given < Slots; n++ {
		turns[order[n%len(order)]].left++
		given++
	}
	largest := 0
	for i := range turns {
		if turns[i].left > turns[largest].left {
			largest = i
		}
	}
	for i := range turns {
		if turns[i].left == 0 {
			turns[i].left++
			turns[largest].left--
		}
	}
}

// sink restores the heap of turns below i.
func sink(turns []turn, i int) {
	for {
		c := 2*i + 1
		if c >= len(turns) {
			return
		}
		if c+1 < len(turns) && turns[c+1].before(turns[c]) {
			c++
		}
		if !turns[c].before(turns[i]) {
			return
		}
		turns[c], turns[i] = turns[i], turns[c]
		i = c
	}
}

func (a turn) before(b turn) bool {
	return a.at < b.at || (a.at == b.at && a.local < b.local)
}

// choices is how many hashed choices a key has before it takes the next slot of any
// available instance. With half of the instances away, one key in 65536 gets that far.
const choices = 16

// pick returns the first available of the key's choices.
func (m *maglev) pick(key uint64, base int32, health *Health) (int32, bool) {
	if len(m.slots) == 0 {
		return 0, false
	}
	slot, _ := bits.Mul64(mix(key, 0), Slots)
	i := base + int32(m.slots[slot])
	if health == nil || !health.avoid.has(i) {
		return i, true
	}
	return m.pickNext(key, base, health)
}

// pickNext is pick for a key whose first choice is not available.
func (m *maglev) pickNext(key uint64, base int32, health *Health) (int32, bool) {
	var slot uint64
	for n := range uint64(choices) {
		slot, _ = bits.Mul64(mix(key, n), Slots)
		if i := base + int32(m.slots[slot]); !health.avoid.has(i) {
			return i, true
		}
	}
	if !health.any(m, base) {
		return 0, false
	}
	for {
		if slot++; slot == Slots {
			slot = 0
		}
		if i := base + int32(m.slots[slot]); !health.avoid.has(i) {
			return i, true
		}
	}
}

// roomSeed differs from the numbers of a key's choices.
const roomSeed = 1 << 32

// mix returns another well-spread hash of a key for each n, by a multiple of the golden ratio.
func mix(key, n uint64) uint64 { return Mix(key + (n+1)*0x9e3779b97f4a7c15) }

// Mix spreads a value over 64 bits: the finalizer of MurmurHash3.
func Mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
