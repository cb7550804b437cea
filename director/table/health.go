package table

import "vitrine"

// A Condition is the condition of an instance as this director sees it.
type Condition uint8

// The conditions.
const (
	Up   Condition = iota
	Full           // by bounded load: no new transactions for now
	Away           // does not answer
)

// Health is the local health of a table's instances. It is immutable.
type Health struct {
	avoid  set   // full or away: gets no key by Pick
	away   set   // away, or in state down or starting: gets nothing at all
	served Types // that have an active instance that is not away
}

// Types is a set of aggregate types.
type Types uint64

// Add adds a type.
func (s *Types) Add(ty Type) { *s |= 1 << ty }

// ServesOther reports whether a type of the set other than ty has an active instance that is
// not away.
func (h *Health) ServesOther(all Types, ty Type) bool { return h.served&all&^(1<<ty) != 0 }

type set []uint64

func (s set) has(i int32) bool { return s[i>>6]&(1<<(i&63)) != 0 }
func (s set) add(i int32)      { s[i>>6] |= 1 << (i & 63) }

// Health returns the health of the table's instances. A nil condition means that all are
// up. If no active instance of a type is up, no instance of the type counts as full.
func (t *Table) Health(condition func(*Target) Condition) *Health {
	n := len(t.targets)/64 + 1
	h := &Health{avoid: make(set, n), away: make(set, n)}
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
			if c != Away && t.targets[i].State == vitrine.Active {
				h.served.Add(Type(ty))
			}
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

// any reports whether the slots hold an available instance. It searches the members,
// which are fewer than the slots.
func (h *Health) any(m *maglev, base int32) bool {
	for _, local := range m.members {
		if !h.avoid.has(base + int32(local)) {
			return true
		}
	}
	return false
}
