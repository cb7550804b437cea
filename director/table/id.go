package table

import (
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// Identify gives an ID to every instance that has none. New does the same; Identify lets
// the caller keep the IDs. An instance's ID should outlive the table, because messages
// carry it. An ID is a hash of the name. If two names of a type have the same hash, the
// later one in alphabetical order takes the next free ID.
//
// So directors that learn of instances in different orders may disagree about such a
// pair: assign those IDs by hand. highest returns the highest ID that a type may have; a
// nil highest means MaxID. A higher ID is an error.
func Identify(instances []Instance, highest func(typeName string) uint16) error {
	types := map[string][]*Instance{}
	for i := range instances {
		types[instances[i].Type] = append(types[instances[i].Type], &instances[i])
	}
	for name, own := range types {
		most := uint16(MaxID)
		if highest != nil {
			most = highest(name)
		}
		if err := identify(own, most); err != nil {
			return err
		}
	}
	return nil
}

// MaxID is the highest ID of an instance.
const MaxID = 1<<16 - 1

func identify(own []*Instance, most uint16) error {
	if len(own) > int(most) {
		return fmt.Errorf("type %s has %d instances, and IDs for %d", own[0].Type, len(own), most)
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
			return fmt.Errorf("instances %s and %s of type %s have the same id %d", other, in.Name, in.Type, in.ID)
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
