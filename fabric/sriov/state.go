package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// recordKind is the kind of the records of changes to virtual functions.
const recordKind = "sriov"

// state has the changes of a run to a parent's virtual functions. It is
// kept as a record.
type state struct {
	run *runstate.Run

	Parent  string      `json:"parent"`
	Made    bool        `json:"made"`    // a run made them: this one, or an earlier one
	Leaving bool        `json:"leaving"` // the run does not use them any more
	VLANs   map[int]tag `json:"vlans"`   // former tags, by number of the virtual function
}

// A tag is a VLAN tag as in a frame (IEEE 802.1Q clause 9): the protocol in the
// upper 16 bits, the priority in the upper 3 of the lower 16, and the VLAN in
// the lowest 12. Without a protocol it is of 802.1Q.
type tag uint32

// tagOf returns the tag that a card adds to the frames of a virtual function.
func tagOf(vf netlink.VfInfo) tag {
	return tag(vf.VlanProto)<<16 | tag(vf.Qos)<<13 | tag(vf.Vlan)
}

func (t tag) vlan() int { return int(t & 0xfff) }

// A tagger is a *netlink.Handle.
type tagger interface {
	LinkSetVfVlanQos(link netlink.Link, vf, vlan, qos int) error
	LinkSetVfVlanQosProto(link netlink.Link, vf, vlan, qos, proto int) error
}

// set makes the card add the tag to the frames of a virtual function.
func (t tag) set(links tagger, parent netlink.Link, number int) error {
	priority, protocol := int(t>>13&7), netlink.VlanProtocol(t>>16)
	if protocol == netlink.VLAN_PROTOCOL_UNKNOWN || protocol == netlink.VLAN_PROTOCOL_8021Q { // not all drivers take the protocol
		return links.LinkSetVfVlanQos(parent, number, t.vlan(), priority)
	}
	return links.LinkSetVfVlanQosProto(parent, number, t.vlan(), priority, int(protocol))
}

func (s *state) record() error { return s.run.RecordJSON(recordKind, s.Parent, s) }

func (s *state) note(number int, before tag) error {
	if s.VLANs == nil {
		s.VLANs = make(map[int]tag)
	}
	s.VLANs[number] = before
	return s.record()
}

func (s *state) forget(number int) error {
	delete(s.VLANs, number)
	return s.record()
}

// leave records that the run does not use the virtual functions any more. If
// runs made them and no other run uses them, leave removes them.
func (s *state) leave(f *function) error {
	s.Leaving = true
	if err := s.record(); err != nil {
		return err
	}
	if err := s.remove(s.run.Root, f); err != nil {
		return err
	}
	return s.run.Erase(recordKind, s.Parent)
}

// remove removes virtual functions that runs made, unless a live run uses them.
func (s *state) remove(root string, f *function) error {
	if !s.Made {
		return nil
	}
	all, err := states(root, s.Parent)
	if err != nil {
		return err
	}
	for run, other := range all {
		if !other.Leaving && runstate.Alive(root, run) {
			return nil
		}
	}
	if count, err := f.count(); err != nil || count == 0 {
		return err
	}
	return f.set(0)
}

// inherits reports whether a run made the virtual functions of an interface.
func inherits(run *runstate.Run, parent string) (bool, error) {
	all, err := states(run.Root, parent)
	for _, s := range all {
		if s.Made {
			return true, err
		}
	}
	return false, err
}

// states returns the records of a parent's virtual functions, by run.
func states(root, parent string) (map[string]*state, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("listing runs: %w", err)
	}
	all := make(map[string]*state)
	for _, e := range entries {
		records, err := runstate.Records(root, e.Name(), recordKind)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if b, has := records[parent]; has {
			all[e.Name()] = new(state)
			if err := json.Unmarshal(b, all[e.Name()]); err != nil {
				return nil, fmt.Errorf("the record of the virtual functions of %s by run %s: %w", parent, e.Name(), err)
			}
		}
	}
	return all, nil
}

// A Cleaner removes virtual functions that dead runs made. It must run after
// segment.Cleaner, which moves them back to the host.
type Cleaner struct {
	Root string // the folder where runs are registered

	sysfs string // empty: /sys
}

var _ vitrine.Cleaner = Cleaner{}

// Clean puts virtual functions back into their former VLANs, and removes those
// that dead runs made unless a live run uses them.
func (c Cleaner) Clean(context.Context) (removed []string, err error) {
	if c.sysfs == "" {
		c.sysfs = defaultSysfs
	}
	return runstate.EachDead(c.Root, func(run string) ([]string, error) {
		return runstate.Undo(c.Root, run, recordKind, func(parent string, record []byte) (string, error) {
			var s state
			if err := json.Unmarshal(record, &s); err != nil {
				return "", err
			}
			if err := c.undo(&s); err != nil {
				return "", err
			}
			return "changes of run " + run + " to the virtual functions of " + parent, nil
		})
	})
}

func (c Cleaner) undo(s *state) error {
	f, err := openFunction(c.sysfs, s.Parent)
	if vitrine.IsUnsupported(err) { // the card is gone
		return nil
	}
	if err != nil {
		return err
	}
	links, err := segment.Host()
	if err != nil {
		return err
	}
	defer links.Close()
	parent, err := links.LinkByName(s.Parent)
	if segment.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", s.Parent, err)
	}
	for number, before := range s.VLANs {
		if err := before.set(links, parent, number); err != nil {
			return fmt.Errorf("putting number %d back into the VLAN %d: %w", number, before.vlan(), err)
		}
	}
	return s.remove(c.Root, f)
}
