package table

import "math/bits"

// A Choice is one instance that Pick tries for a key.
type Choice struct {
	Index  int32 // of the target
	Number int   // of the choice in its table of slots, from 1
	Slot   int
	Region bool // from the region's own table
	Taken  bool // Pick returns this one
}

// Choices returns the instances that Pick tries for a key, in order, to explain its
// result.
func (t *Table) Choices(ty Type, key uint64, region Region, health *Health) (all []Choice) {
	if int(ty) >= len(t.parts) {
		return nil
	}
	p := &t.parts[ty]
	for r := range p.regions {
		if region != 0 && p.regions[r].region == region && mix(key, roomSeed) <= p.regions[r].keep {
			own, found := p.regions[r].choices(key, p.base, health)
			for i := range own {
				own[i].Region = true
			}
			all = append(all, own...)
			if found {
				return all
			}
		}
	}
	own, _ := p.all.choices(key, p.base, health)
	return append(all, own...)
}

func (m *maglev) choices(key uint64, base int32, health *Health) (all []Choice, found bool) {
	taken, found := m.pick(key, base, health)
	if len(m.slots) == 0 {
		return nil, false
	}
	for n := range uint64(choices) {
		slot, _ := bits.Mul64(mix(key, n), Slots)
		i := base + int32(m.slots[slot])
		all = append(all, Choice{Index: i, Number: int(n) + 1, Slot: int(slot), Taken: found && i == taken})
		if found && i == taken {
			return all, true
		}
	}
	if found {
		all = append(all, Choice{Index: taken, Number: choices + 1, Slot: -1, Taken: true})
	}
	return all, found
}
