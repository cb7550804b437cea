package table

import (
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Identify gives an ID to every instance that has none. New does the same; Identify lets
// the caller keep the IDs. An instance's ID should outlive the table, because messages
// carry it. An ID is a hash of the name. If two names of a space have the same hash, the
// later one in alphabetical order takes the next free ID.
//
// So directors that learn of instances in different orders may disagree about such a
// pair: assign those IDs by hand. space returns the space in which the IDs of a type are
// unique, and the highest ID there. A higher ID is an error.
func Identify(instances []Instance, space func(typeName string) (name string, highest uint16)) error {
	spaces, most := map[string][]*Instance{}, map[string]uint16{}
	for i := range instances {
		name, highest := space(instances[i].Type)
		spaces[name], most[name] = append(spaces[name], &instances[i]), highest
	}
	for name, own := range spaces {
		if err := identify(own, most[name]); err != nil {
			return err
		}
	}
	return nil
}

// MaxID is the highest ID of an instance.
const MaxID = 1<<16 - 1

func identify(own []*Instance, most uint16) error {
	if len(own) > int(most) {
		return fmt.Errorf("%d instances share the %d IDs of type %s", len(own), most, own[0].Type)
	}
	taken := make(map[uint16]string, len(own))
	for _, in := range own {
		if in.ID == 0 {
			continue
		}
		if in.ID > most {
			return fmt.Errorf("instance %s of type %s: id %d: must be at most %d", in.Name, in.Type, in.ID, most)
		}
		if other, ok := taken[in.ID]; ok {
			return fmt.Errorf("instances %s and %s have the same id %d", other, in.Name, in.ID)
		}
		taken[in.ID] = in.Name
	}
	sorted := slices.Clone(own)
	slices.SortFunc(sorted, func(a, b *Instance) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	for _, in := range sorted {
		if in.ID != 0 {
			continue
		}
		id := uint16(mix(xxhash.Sum64String(in.Name), 0)%uint64(most)) + 1
		for taken[id] != "" {
			id = id%most + 1
		}
		in.ID, taken[id] = id, in.Name
	}
	return nil
}

// identify gives IDs to the type's targets and builds the index by ID.
func (p *part) identify(own []Target) error {
	instances := make([]*Instance, len(own))
	for i := range own {
		instances[i] = &own[i].Instance
	}
	if err := identify(instances, MaxID); err != nil {
		return err
	}
	order := make([]int32, len(own))
	for i := range order {
		order[i] = own[i].Index
	}
	slices.SortFunc(order, func(a, b int32) int { return int(own[a-p.base].ID) - int(own[b-p.base].ID) })
	p.ofID = order
	p.byID = make([]uint16, len(own))
	for i, at := range order {
		p.byID[i] = own[at-p.base].ID
	}
	return nil
}
