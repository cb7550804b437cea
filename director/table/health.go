package table

import "vitrine"

// A Condition is how an instance is found by this director.
type Condition uint8

// The conditions of an instance.
const (
	Up   Condition = iota
	Full           // asked for by bounded load: no new transactions for now
	Away           // does not answer
)

// Health is the local health of a table's instances. It is never changed once
// it is made.
type Health struct {
	avoid set // gets no key by Pick: full or away
	away  set // gets nothing at all: away, or its state is down
}

type set []uint64

func (s set) has(i int32) bool { return s[i>>6]&(1<<(i&63)) != 0 }
func (s set) add(i int32)      { s[i>>6] |= 1 << (i & 63) }

// Health makes the health of the table's instances. condition may be nil: all
// are up. Where all instances of a type that are not away are full, none is
// taken for full.
func (t *Table) Health(condition func(*Target) Condition) *Health {
	n := len(t.targets)/64 + 1
	h := &Health{make(set, n), make(set, n)}
	for ty := range t.parts {
		p := &t.parts[ty]
		open := false
		for i := p.base; i < p.base+p.count; i++ {
			c := Up
			if condition != nil {
				c = condition(&t.targets[i])
			}
			if s := t.targets[i].State; c == Away || s == vitrine.Down || s == vitrine.Starting {
				h.away.add(i)
			}
			if c != Up {
				h.avoid.add(i)
			}
			open = open || (c == Up && t.targets[i].State == vitrine.Active)
		}
		if open {
			continue
		}
		for i := p.base; i < p.base+p.count; i++ {
			if !h.away.has(i) {
				h.avoid[i>>6] &^= 1 << (i & 63)
			}
		}
	}
	return h
}

// any says whether the slots hold an instance that is to be had. It looks at
// instances, not at slots.
func (h *Health) any(m *maglev, base int32) bool {
	for _, local := range m.members {
		if !h.avoid.has(base + int32(local)) {
			return true
		}
	}
	return false
}
