// Package table decides where a key goes. It has a Maglev table for each aggregate type,
// weighted by the capacity of the instances; every epoch has its own version. Steering
// keeps each transaction at its instance while epochs change.
//
// The package is pure: no clock, no I/O, no goroutine. A table's answer depends on its
// instances and the key alone. So directors side by side with the same instances steer
// alike without talking.
package table

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"vitrine"
)

// An Instance is one running copy of an aggregate.
type Instance = vitrine.Instance

// Limits of one table.
const (
	MaxTypes     = 64
	MaxInstances = 4096 // of one type
)

// A Type is the number of an aggregate type: its index in the list given to New. It is
// the same in all tables made from the same list.
type Type uint8

// A Region is where a client or an instance is: a hash of the region's name, so that it
// means the same in every table. 0 is no region.
type Region uint64

// RegionOf returns the region with that name; 0 for the empty name.
func RegionOf(name string) Region {
	if name == "" {
		return 0
	}
	return Region(xxhash.Sum64String(name) | 1)
}

// Key returns the hash by which a Call-ID, IMSI or other key is steered: XXH64 with seed
// 0, the same in every director.
func Key(b []byte) uint64 { return xxhash.Sum64(b) }

// A Room says how much of a region's own traffic stays there. The region keeps that share
// of the keys, and the others go by the table of all regions. A region without a Room
// keeps all of its keys.
type Room struct {
	Type   string  `json:"type"`
	Region string  `json:"region"`
	Share  float64 `json:"share"` // 0..1 of the keys of the region's clients
}

// A Target is an instance in a table.
type Target struct {
	Instance
	Type  Type   // shadows Instance.Type, the name
	Index int32  // in the table
	Slot  uint16 // of its counts; the publisher sets it before publishing
}

// TypeName returns the name of the target's aggregate type.
func (t *Target) TypeName() string { return t.Instance.Type }

// A Table maps the keys of each type to instances, for one epoch. It is immutable.
type Table struct {
	epoch   uint64
	types   []string
	targets []Target // by type, then name
	parts   []part   // by Type
	byName  map[string]int32
}

// A part is the data of one type.
type part struct {
	base    int32 // index of the type's first target
	count   int32
	all     maglev
	regions []regional // by region
	byID    []uint16   // the type's IDs in ascending order
	ofID    []int32    // and the targets that have them
}

type regional struct {
	region Region
	name   string
	keep   uint64 // keys whose mixed hash is at most this stay in the region
	maglev
}

// New makes the table of an epoch. A type may have no instances, or none that is active;
// Pick finds nothing for it.
//
// New fails for duplicate names, for duplicate addresses or IDs within a type, and for types
// that are not in the list. It fails for weights that are not above 0, for room shares
// outside of 0 to 1, and beyond the limits above.
func New(epoch uint64, types []string, instances []Instance, rooms ...Room) (*Table, error) {
	t, err := prepare(epoch, types, instances, rooms)
	if err != nil {
		return nil, err
	}
	t.fill()
	return t, nil
}

// Check fails as New would, but skips the expensive part, the slots.
func Check(types []string, instances []Instance, rooms ...Room) error {
	_, err := prepare(0, types, instances, rooms)
	return err
}

// prepare makes a table without slots.
func prepare(epoch uint64, types []string, instances []Instance, rooms []Room) (*Table, error) {
	if err := checkTypes(types); err != nil {
		return nil, err
	}
	t := &Table{epoch: epoch, types: slices.Clone(types), byName: make(map[string]int32, len(instances))}
	for i := range instances {
		ty, ok := t.Type(instances[i].Type)
		if !ok {
			return nil, fmt.Errorf("instance %s: no type %q; there are %v", instances[i].Name, instances[i].Type, types)
		}
		t.targets = append(t.targets, Target{Instance: instances[i], Type: ty})
	}
	slices.SortFunc(t.targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
	})
	for i := range t.targets {
		t.targets[i].Index = int32(i)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := t.divide(rooms); err != nil {
		return nil, err
	}
	return t, nil
}

func checkTypes(types []string) error {
	if len(types) > MaxTypes {
		return fmt.Errorf("%d types: at most %d are possible", len(types), MaxTypes)
	}
	for i, name := range types {
		if name == "" {
			return fmt.Errorf("type %d has no name", i+1)
		}
		if slices.Contains(types[:i], name) {
			return fmt.Errorf("type %s is there twice", name)
		}
	}
	return nil
}

// check validates the sorted targets.
func (t *Table) check() error {
	type place struct {
		ty Type
		at string
	}
	places := make(map[place]string, len(t.targets))
	for i := range t.targets {
		in := &t.targets[i]
		switch {
		case in.Name == "":
			return fmt.Errorf("an instance of type %s at %s has no name", in.TypeName(), in.Address)
		case !in.Address.IsValid() || in.Address.Port() == 0:
			return fmt.Errorf("instance %s: address %q: must be an IP address and a port", in.Name, in.Address)
		case !(in.Weight > 0) || math.IsInf(in.Weight, 1):
			return fmt.Errorf("instance %s: weight %v: must be above 0; to send it nothing new, set its state to draining", in.Name, in.Weight)
		}
		if _, err := in.State.MarshalText(); err != nil {
			return fmt.Errorf("instance %s: %w", in.Name, err)
		}
		if _, ok := t.byName[in.Name]; ok {
			return fmt.Errorf("instance %s is there twice", in.Name)
		}
		t.byName[in.Name] = int32(i)
		at := place{in.Type, in.Address.String()}
		if other, ok := places[at]; ok {
			return fmt.Errorf("instances %s and %s of type %s have the same address %s", other, in.Name, in.TypeName(), in.Address)
		}
		places[at] = in.Name
	}
	return nil
}

// divide makes the part of each type, without its slots.
func (t *Table) divide(rooms []Room) error {
	t.parts = make([]part, len(t.types))
	first := 0
	for ty := range t.parts {
		last := first
		for last < len(t.targets) && t.targets[last].Type == Type(ty) {
			last++
		}
		if last-first > MaxInstances {
			return fmt.Errorf("type %s has %d instances: at most %d are possible", t.types[ty], last-first, MaxInstances)
		}
		p := &t.parts[ty]
		p.base, p.count = int32(first), int32(last-first)
		own := t.targets[first:last]
		if err := p.identify(own); err != nil {
			return err
		}
		for _, name := range regionsOf(own) {
			share := 1.0
			for _, r := range rooms {
				if r.Type == t.types[ty] && r.Region == name {
					share = r.Share
				}
			}
			if !(share >= 0 && share <= 1) {
				return fmt.Errorf("room of type %s in region %s: %v: must be from 0 to 1", t.types[ty], name, share)
			}
			p.regions = append(p.regions, regional{region: RegionOf(name), name: name, keep: threshold(share)})
		}
		first = last
	}
	return nil
}

// fill makes the slots.
func (t *Table) fill() {
	for ty := range t.parts {
		p := &t.parts[ty]
		own := t.targets[p.base : p.base+p.count]
		p.all = newMaglev(own, "")
		for i := range p.regions {
			p.regions[i].maglev = newMaglev(own, p.regions[i].name)
		}
	}
}

func regionsOf(own []Target) []string {
	var names []string
	for i := range own {
		if own[i].Region != "" && !slices.Contains(names, own[i].Region) {
			names = append(names, own[i].Region)
		}
	}
	slices.Sort(names)
	return names
}

// threshold returns the highest mixed hash within a share of all keys. A share of 0 keeps
// one key of 2^64.
func threshold(share float64) uint64 {
	if share >= 1 {
		return math.MaxUint64
	}
	return uint64(share * (1 << 63) * 2)
}

// Epoch returns the number that New was given.
func (t *Table) Epoch() uint64 { return t.epoch }

// Types returns the names of the types; a Type is an index into them.
func (t *Table) Types() []string { return t.types }

// Type returns the number of the type with that name.
func (t *Table) Type(name string) (Type, bool) {
	i := slices.Index(t.types, name)
	return Type(max(i, 0)), i >= 0
}

// Len returns the number of instances, in any state.
func (t *Table) Len() int { return len(t.targets) }

// Target returns the i-th target, by type and then name. It must not be changed.
func (t *Table) Target(i int32) *Target { return &t.targets[i] }

// Instance returns the instance of the i-th target. It must not be changed.
func (t *Table) Instance(i int32) *Instance { return &t.targets[i].Instance }

// ByName returns the target with that name, or nil.
func (t *Table) ByName(name string) *Target {
	i, ok := t.byName[name]
	if !ok {
		return nil
	}
	return &t.targets[i]
}

// ByID returns the target of a type with that ID, or nil.
func (t *Table) ByID(ty Type, id uint16) *Target {
	if int(ty) >= len(t.parts) {
		return nil
	}
	p := &t.parts[ty]
	i, ok := slices.BinarySearch(p.byID, id)
	if !ok {
		return nil
	}
	return &t.targets[p.ofID[i]]
}

// Pick returns the instance of the type that a key goes to. It prefers the client's own
// region, while that has room and an instance that is up. If the health excludes an
// instance, the key goes to its next choice. That differs from key to key, so the
// instance's share spreads evenly over the others. A nil health means that all are up.
//
// ok is false if the type has no active instance that is up.
func (t *Table) Pick(ty Type, key uint64, region Region, health *Health) (i int32, ok bool) {
	if int(ty) >= len(t.parts) {
		return 0, false
	}
	p := &t.parts[ty]
	if region != 0 {
		for r := range p.regions {
			if p.regions[r].region == region && mix(key, roomSeed) <= p.regions[r].keep {
				if i, ok := p.regions[r].pick(key, p.base, health); ok {
					return i, true
				}
			}
		}
	}
	return p.all.pick(key, p.base, health)
}
