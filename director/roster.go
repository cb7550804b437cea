package director

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"vitrine"
	"vitrine/director/client"
	"vitrine/director/meter"
	"vitrine/director/table"
)

// A roster holds the latest instances, types, rules and rooms from the file and REST. The
// next epoch is made from it.
type roster struct {
	mu        sync.Mutex
	types     []Type
	instances map[string]vitrine.Instance
	rooms     []table.Room
	rules     []Rule
	terms     map[string]term // leases by type, in force or over
	version   uint64          // increases with each change
	urgent    bool            // more than weights has changed
	frozen    bool            // during a hand-over; rejects changes
	changed   chan struct{}
	away      func(name string) bool // by the health checks
}

func newRoster() *roster {
	return &roster{instances: map[string]vitrine.Instance{}, terms: map[string]term{}, changed: make(chan struct{}, 1), away: func(string) bool { return false }}
}

// An Absent is the error for an instance that does not exist.
type Absent struct{ Instance string }

func (e *Absent) Error() string { return fmt.Sprintf("no instance %s", e.Instance) }

// alter changes one instance. It is cheap, because orchestrators change weights thousands
// of times a minute.
func (r *roster) alter(name string, c client.Change) (vitrine.Instance, error) {
	all, err := r.alterAll(map[string]client.Change{name: c})
	if err != nil {
		return vitrine.Instance{}, err
	}
	return all[0], nil
}

// alterAll changes all instances or, on an error, none.
func (r *roster) alterAll(changes map[string]client.Change) ([]vitrine.Instance, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		return nil, errFrozen
	}
	var altered []vitrine.Instance
	urgent := false
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		c := changes[name]
		in, ok := r.instances[name]
		if !ok {
			return nil, &Absent{name}
		}
		if c.Weight != nil {
			if err := checkWeight(name, *c.Weight); err != nil {
				return nil, err
			}
			in.Weight = *c.Weight
		}
		if c.State != nil {
			urgent = urgent || in.State != *c.State
			in.State = *c.State
		}
		if c.Region != nil {
			if err := checkRegion(name, *c.Region); err != nil {
				return nil, err
			}
			urgent = urgent || in.Region != *c.Region
			in.Region = *c.Region
		}
		if was := r.instances[name]; was.State != in.State {
			if err := r.checkScaling(&was, &in); err != nil {
				return nil, err
			}
		}
		altered = append(altered, in)
	}
	differs := false
	for _, in := range altered {
		differs = differs || r.instances[in.Name] != in
		r.instances[in.Name] = in
	}
	if differs {
		r.touch(urgent)
	}
	return altered, nil
}

// errFrozen rejects a change during a hand-over, because the new process would not see
// it.
var errFrozen = errors.New("handing over to a new process: try again in a second")

// freeze rejects changes from now on, if the version is still the one given.
func (r *roster) freeze(version uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = r.version == version
	return r.frozen
}

func (r *roster) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = false
}

// touch signals a change to publish.
func (r *roster) touch(urgent bool) {
	r.version++
	r.urgent = r.urgent || urgent
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// edit changes the roster atomically. to works on a copy, which replaces the roster if a
// table can be made from it.
func (r *roster) edit(to func(*draft) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.frozen {
		return errFrozen
	}
	d := &draft{types: slices.Clone(r.types), instances: maps.Clone(r.instances), rooms: slices.Clone(r.rooms), rules: slices.Clone(r.rules)}
	if err := to(d); err != nil {
		return err
	}
	if err := d.finish(r.instances); err != nil {
		return err
	}
	same := maps.Equal(d.instances, r.instances) && slices.Equal(d.rooms, r.rooms) && len(d.types) == len(r.types)
	r.types, r.instances, r.rooms, r.rules = d.types, d.instances, d.rooms, d.rules
	if !same {
		r.touch(true)
	}
	return nil
}

// change is like edit, for requests of operators and orchestrators. It refuses to scale a
// type whose lease is held.
func (r *roster) change(to func(*draft) error) error {
	return r.edit(func(d *draft) error {
		if err := to(d); err != nil {
			return err
		}
		for _, now := range sorted(d.instances) {
			was, known := r.instances[now.Name]
			old := &was
			if !known {
				old = nil
			}
			if err := r.checkScaling(old, &now); err != nil {
				return err
			}
		}
		for _, old := range sorted(r.instances) {
			if _, stays := d.instances[old.Name]; stays {
				continue
			}
			if err := r.checkScaling(&old, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// A draft is a copy of a roster that is being changed.
type draft struct {
	types     []Type
	instances map[string]vitrine.Instance
	rooms     []table.Room
	rules     []Rule
}

// finish assigns IDs, and keeps the ID that an instance had before. It returns an error
// if no table can be made from the draft.
func (d *draft) finish(before map[string]vitrine.Instance) error {
	if n := len(d.instances); n > meter.MaxInstances {
		return &vitrine.BadInput{File: "instances", Found: fmt.Sprintf("%d instances", n), Want: fmt.Sprintf("want at most %d", meter.MaxInstances)}
	}
	d.keepIDs(before)
	list := sorted(d.instances)
	if err := table.Identify(list, d.space); err != nil {
		return &vitrine.BadInput{File: "instances", Found: err.Error()}
	}
	if err := table.Check(names(d.types), list, d.rooms...); err != nil {
		return &vitrine.BadInput{File: "instances", Found: err.Error()}
	}
	for _, in := range list {
		d.instances[in.Name] = in
	}
	return nil
}

// space returns the space in which the IDs of a type are unique, and the highest ID there.
func (d *draft) space(typeName string) (name string, highest uint16) {
	if t := typeOf(d.types, typeName); t != nil {
		return idSpace(t), highestID(t)
	}
	return typeName, table.MaxID
}

func names(types []Type) []string {
	all := make([]string, len(types))
	for i := range types {
		all[i] = types[i].Name
	}
	return all
}

func sorted(instances map[string]vitrine.Instance) []vitrine.Instance {
	return slices.SortedFunc(maps.Values(instances), func(a, b vitrine.Instance) int { return strings.Compare(a.Name, b.Name) })
}

// snapshot returns the data of the next epoch.
func (r *roster) snapshot() (e epochState, rules []Rule, version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = epochState{Types: names(r.types), Instances: sorted(r.instances), Rooms: slices.Clone(r.rooms), Leases: r.leases()}
	return e, slices.Clone(r.rules), r.version
}

// applied notes that the changes up to a version are in force.
func (r *roster) applied(version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.urgent = r.urgent && r.version != version
}

func (r *roster) currentVersion() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// rulesAndRooms returns the latest rules and rooms.
func (r *roster) rulesAndRooms() ([]Rule, []table.Room) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.rules), slices.Clone(r.rooms)
}

// list returns the latest instances.
func (r *roster) list() []vitrine.Instance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sorted(r.instances)
}

// isUrgent reports whether more than weights has changed since the version in force.
func (r *roster) isUrgent() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.urgent
}

// fileParts has hashes of the parts of a configuration file that REST can change too.
type fileParts struct {
	Instances string `json:"instances"`
	Rules     string `json:"rules"`
	Rooms     string `json:"rooms"`
}

func (c *Config) parts() fileParts {
	d := new(draft)
	d.apply(c)
	return fileParts{Instances: digestOf(sorted(d.instances)), Rules: digestOf(d.rules), Rooms: digestOf(d.rooms)}
}

// update replaces the draft's content with the content of a configuration file. before has the parts of
// the file that was in force. A part that is the same replaces nothing, because REST may have changed the
// instances, rules or rooms since. An instance whose type is gone goes too, and so does an ID that is not
// allowed. Rules that do not fit the types are replaced.
func (d *draft) update(c *Config, before fileParts) {
	kept, now := *d, c.parts()
	d.apply(c)
	if now.Instances == before.Instances {
		d.instances = make(map[string]vitrine.Instance, len(kept.instances))
		for name, in := range kept.instances {
			if in.ID > highestOf(c.Types, in.Type) {
				in.ID = 0
			}
			if c.Type(in.Type) != nil {
				d.instances[name] = in
			}
		}
	}
	if now.Rules == before.Rules && len(validateRules(kept.rules, c.Types)) == 0 {
		d.rules = kept.rules
	}
	if now.Rooms == before.Rooms {
		d.rooms = kept.rooms
	}
	d.keepIDs(kept.instances)
}

// apply replaces the draft's content with the content of a configuration file.
func (d *draft) apply(c *Config) {
	d.types, d.rules, d.rooms = slices.Clone(c.Types), slices.Clone(c.Rules), nil
	for i := range c.Types {
		for _, room := range c.Types[i].Rooms {
			d.rooms = append(d.rooms, table.Room{Type: c.Types[i].Name, Region: room.Region, Share: room.Share})
		}
	}
	d.instances = make(map[string]vitrine.Instance, len(c.Instances))
	for _, in := range c.Instances {
		d.instances[in.Name] = vitrine.Instance{
			Name: in.Name, Type: in.Type, Address: in.Address, Weight: in.Weight, Region: in.Region, State: in.State, ID: in.ID,
		}
	}
}
