// Package sriov wires instances by virtual functions of a network card. Each
// instance has a virtual function for itself, and the card's own switch joins
// them. The fabric uses the virtual functions that the interface has. If it has
// none, the fabric makes some and removes them at the end.
package sriov

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

const (
	defaultVFs = 16
	maxVLAN    = 4094
)

// Config is the part servers.sriov of a deployment.
type Config struct {
	Run *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired

	// Parent is the interface of the host whose virtual functions the instances
	// get.
	Parent string `yaml:"parent" json:"parent"`
	// VFs is how many virtual functions are made if the interface has none. The
	// default is 16, or as many as it can have if that is less.
	VFs int `yaml:"vfs,omitempty" json:"vfs,omitempty" jsonschema:"minimum=1"`
	// VLAN is the VLAN that the card keeps instances in; 0: none.
	VLAN int `yaml:"vlan,omitempty" json:"vlan,omitempty" jsonschema:"minimum=0,maximum=4094"`

	segment.Options `yaml:",inline"`
}

func kind() segment.Kind {
	return segment.Kind{Name: "sriov", Needs: "CONFIG_PCI_IOV, and a driver that sets VLANs of virtual functions", Do: "leave out `vlan`, or use the fabric macvlan"}
}

// New makes the fabric. It looks for the parent in the calling thread's network
// namespace. If the parent is absent, down or part of a bridge, the error is a
// *vitrine.BadInput. If it cannot have virtual functions, it is a
// *vitrine.Unsupported.
func New(config Config) (*segment.Segment, error) { return open(config, defaultSysfs) }

func open(config Config, sysfs string) (*segment.Segment, error) {
	if err := config.check(sysfs); err != nil {
		return nil, err
	}
	lender, err := segment.NewLender(config.Run)
	if err != nil {
		return nil, err
	}
	w := &wiring{config: config, lender: lender, taken: make(map[string]*virtual)}
	c := segment.Config{Run: config.Run, Kind: kind(), Options: config.Options, Outward: true}
	s, err := w.segment(c, sysfs)
	if err != nil {
		return nil, errors.Join(err, w.Unmake(nil))
	}
	return s, nil
}

func (w *wiring) segment(c segment.Config, sysfs string) (*segment.Segment, error) {
	parent, err := segment.Uplink(w.lender.Links, c.Run, c.Name, w.config.Parent)
	if err == nil {
		w.parent = parent
		err = c.Fit(parent.Attrs().MTU, w.config.Parent)
	}
	if err == nil {
		w.function, err = openFunction(sysfs, w.config.Parent)
	}
	if err != nil {
		return nil, fmt.Errorf("making the sriov fabric: %w", err)
	}
	return segment.New(c, w)
}

func (c Config) check(sysfs string) error {
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: "fabric sriov", Found: found, Want: want}
	}
	switch {
	case c.VLAN < 0 || c.VLAN > maxVLAN:
		return bad(fmt.Sprintf("vlan: %d", c.VLAN), fmt.Sprintf("1 to %d", maxVLAN))
	case c.VFs < 0:
		return bad(fmt.Sprintf("vfs: %d", c.VFs), "at least 1")
	case c.Parent != "":
		return nil
	}
	names, err := capableNames(sysfs)
	if err != nil {
		return err
	}
	return bad("no parent", "`parent: NAME`, one of "+strings.Join(names, ", "))
}

// capableNames returns the names of the host's interfaces that can have virtual
// functions. If there are none, the error is a *vitrine.Unsupported.
func capableNames(sysfs string) (names []string, err error) {
	found, err := functions(sysfs)
	for _, f := range found {
		names = append(names, f.name)
	}
	if err == nil && len(names) == 0 {
		err = &vitrine.Unsupported{What: "the sriov fabric", Missing: "a network card that can have virtual functions, enabled in the firmware's set-up, its driver, and a kernel with CONFIG_PCI_IOV"}
	}
	return names, err
}

// Check reports which interfaces of this host can have virtual functions.
func Check(context.Context) []vitrine.Check { return []vitrine.Check{check(defaultSysfs)} }

func check(sysfs string) vitrine.Check {
	names, err := capableNames(sysfs)
	return vitrine.NewCheck("sriov: virtual functions", strings.Join(names, " "), err)
}

// wiring is the virtual functions of one parent.
type wiring struct {
	config   Config
	lender   *segment.Lender
	parent   netlink.Link
	function *function
	state    *state              // nil: nothing made yet
	taken    map[string]*virtual // by instance
}

// virtual is a virtual function that is in an instance.
type virtual struct {
	number int
	loan   *segment.Loan
}

// Make makes the virtual functions, unless the parent has some.
func (w *wiring) Make(*segment.Segment) error {
	count, err := w.function.count()
	if err != nil {
		return err
	}
	inherited, err := inherits(w.config.Run, w.config.Parent)
	if err != nil {
		return err
	}
	w.state = &state{run: w.config.Run, Parent: w.config.Parent, Made: count == 0 || inherited}
	if err := w.state.record(); err != nil || count > 0 {
		return err
	}
	if count = w.config.VFs; count == 0 {
		count = min(defaultVFs, w.function.most)
	}
	if count > w.function.most {
		return &vitrine.BadInput{File: "fabric sriov", Found: fmt.Sprintf("vfs: %d", count), Want: fmt.Sprintf("at most %d, the limit of %s", w.function.most, w.config.Parent)}
	}
	if err := w.function.set(count); err != nil {
		return err
	}
	return w.function.await(count)
}

// Join moves a free virtual function into the instance.
func (w *wiring) Join(s *segment.Segment, end *segment.End) error {
	count, err := w.function.count()
	if err != nil {
		return err
	}
	for number := range count {
		name, err := w.function.virtual(number)
		if err != nil {
			return err
		}
		if name == "" {
			continue // in an instance
		}
		loan, err := w.lender.Free(s.Name, name, false)
		if vitrine.IsBadInput(err) {
			continue // in use by somebody else, or just taken by another run
		}
		if err != nil {
			return err
		}
		return w.take(s, end, &virtual{number: number, loan: loan})
	}
	return &vitrine.BadInput{File: "fabric sriov", Found: fmt.Sprintf("%s has %d virtual functions, and none is free", w.config.Parent, count),
		Want: "fewer instances, or more virtual functions (`vfs` if the interface has none before the run)"}
}

// take puts a virtual function into the VLAN and moves it into the instance.
func (w *wiring) take(s *segment.Segment, end *segment.End, v *virtual) error {
	if err := w.setVLAN(v.number); err != nil {
		return err
	}
	if err := w.lender.Lend(s, v.loan, end); err != nil {
		return errors.Join(err, w.resetVLAN(v.number))
	}
	w.taken[end.Instance] = v
	return nil
}

// Cut moves the virtual function back to the host and to its former VLAN.
func (w *wiring) Cut(_ *segment.Segment, end *segment.End) error {
	v, has := w.taken[end.Instance]
	if !has {
		return nil
	}
	err := w.lender.PutBack(v.loan)
	if err != nil && !errors.Is(err, segment.ErrNowhere) {
		return err
	}
	err = errors.Join(err, w.resetVLAN(v.number))
	if _, kept := w.state.VLANs[v.number]; !kept {
		delete(w.taken, end.Instance)
	}
	return err
}

// setVLAN makes the card keep a virtual function in the VLAN, and records the
// tag that the function had before.
func (w *wiring) setVLAN(number int) error {
	if w.config.VLAN == 0 {
		return nil
	}
	parent, err := w.lender.Links.LinkByIndex(w.parent.Attrs().Index) // its current state
	if err != nil {
		return fmt.Errorf("looking for the VLANs of %s: %w", w.config.Parent, err)
	}
	var before tag
	for _, vf := range parent.Attrs().Vfs {
		if vf.ID == number {
			before = tagOf(vf)
		}
	}
	if err := w.state.note(number, before); err != nil {
		return err
	}
	if err := w.lender.Links.LinkSetVfVlan(w.parent, number, w.config.VLAN); err != nil {
		return errors.Join(fmt.Errorf("putting the virtual function %d of %s into the VLAN %d: %w", number, w.config.Parent, w.config.VLAN, err),
			w.state.forget(number))
	}
	return nil
}

func (w *wiring) resetVLAN(number int) error {
	before, has := w.state.VLANs[number]
	if !has {
		return nil
	}
	if err := before.set(w.lender.Links, w.parent, number); err != nil {
		return fmt.Errorf("putting the virtual function %d of %s back into the VLAN %d: %w", number, w.config.Parent, before.vlan(), err)
	}
	return w.state.forget(number)
}

// Unmake does nothing while an instance has a virtual function. Otherwise it
// removes the virtual functions that runs made, unless another run uses them,
// and gives up the parent.
func (w *wiring) Unmake(*segment.Segment) error {
	if len(w.taken) > 0 {
		return nil
	}
	if w.state != nil {
		if err := w.state.leave(w.function); err != nil {
			return err
		}
		w.state = nil
	}
	return errors.Join(segment.LeaveUplink(w.config.Run, w.config.Parent), w.lender.Close())
}
