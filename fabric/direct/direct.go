// Package direct wires instances with nothing between them. Either a veth pair,
// the cable, joins two instances. Or each instance gets an interface of the
// host, which is moved into the instance and put back at the end.
package direct

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Config is the part servers.direct of a deployment.
type Config struct {
	Run *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired

	// Interfaces names the interface of the host that each instance gets:
	// {generator: enp3s0, sprout-1: enp4s0}. If it is empty, a cable joins two
	// instances.
	Interfaces map[string]string `yaml:"interfaces,omitempty" json:"interfaces,omitempty"`
	// InUse allows interfaces that have addresses. They are put back with their
	// addresses and routes. An interface with the default route is never taken.
	InUse bool `yaml:"in_use,omitempty" json:"in_use,omitempty"`

	segment.Options `yaml:",inline"`
}

func kind() segment.Kind {
	return segment.Kind{Name: "direct", Needs: "CONFIG_VETH", Do: "modprobe veth, or use the fabric loopback", Limit: 2}
}

// New makes the fabric. It looks for interfaces of the host in the calling
// thread's network namespace. If one is absent, or the host cannot do without
// it, the error is a *vitrine.BadInput.
func New(config Config) (*segment.Segment, error) {
	c := segment.Config{Run: config.Run, Kind: kind(), Options: config.Options}
	if len(config.Interfaces) == 0 {
		return segment.New(c, new(cable))
	}
	c.Limit, c.Outward = 0, true
	lender, err := segment.NewLender(config.Run)
	if err != nil {
		return nil, err
	}
	w := &lent{config: config, lender: lender, loans: make(map[string]*segment.Loan)}
	least := math.MaxInt
	for _, instance := range slices.Sorted(maps.Keys(config.Interfaces)) {
		loan, err := lender.Free("direct", config.Interfaces[instance], config.InUse)
		if err != nil {
			return nil, errors.Join(err, lender.Close())
		}
		least = min(least, loan.MTU)
	}
	if c.MTU == 0 { // the network between the interfaces may not carry more than they do
		c.MTU = min(least, segment.DefaultMTU)
	}
	s, err := segment.New(c, w)
	if err != nil {
		return nil, errors.Join(err, lender.Close())
	}
	return s, nil
}

// Check reports whether this host supports direct fabrics.
func Check(context.Context) []vitrine.Check {
	return []vitrine.Check{segment.Check(kind(), new(cable), "veth", "two instances joined by a cable, or interfaces of the host")}
}

// A cable is one veth pair. While there is only one instance, the other end is
// in the segment's namespace. An instance that leaves takes the cable with it,
// and the remaining instance gets a new one.
type cable struct {
	ends []*segment.End // at most two
}

// Make makes nothing: the first instance gets the cable.
func (w *cable) Make(*segment.Segment) error { return nil }

// Join gives the first instance a cable, and the second instance its other end.
func (w *cable) Join(s *segment.Segment, end *segment.End) error {
	if len(w.ends) == 0 {
		if err := s.Pair(end, 0); err != nil {
			return err
		}
	} else if err := s.Hand(w.ends[0], end); err != nil {
		return err
	}
	w.ends = append(w.ends, end)
	return nil
}

// Settle waits until the cable works at the other instance's end too.
func (w *cable) Settle(_ *segment.Segment, end *segment.End) error {
	for _, other := range w.ends {
		if other != end {
			return segment.SettleInside(other)
		}
	}
	return nil
}

// Cut removes the cable and gives the remaining instance a new one.
func (w *cable) Cut(s *segment.Segment, end *segment.End) error {
	w.ends = slices.DeleteFunc(w.ends, func(other *segment.End) bool { return other == end })
	// Either call would remove the whole pair. But a namespace that is being
	// removed can no longer be entered, although its end of the cable still
	// exists.
	if err := errors.Join(segment.RemoveInside(end), s.Unpair(end)); err != nil {
		return err
	}
	if len(w.ends) == 0 {
		return nil
	}
	stays := w.ends[0]
	if err := errors.Join(segment.RemoveInside(stays), s.Unpair(stays)); err != nil {
		return err
	}
	err := s.Again(stays, func() error { return s.Pair(stays, 0) })
	if errors.Is(err, fs.ErrNotExist) { // the other instance is about to be detached too
		w.ends = nil
		return nil
	}
	return err
}

// lent wires each instance by an interface of the host that is moved into it.
type lent struct {
	config Config
	lender *segment.Lender
	loans  map[string]*segment.Loan // by instance
}

// Make makes nothing: the host has the interfaces.
func (w *lent) Make(*segment.Segment) error { return nil }

// Join moves the interface into the instance.
func (w *lent) Join(s *segment.Segment, end *segment.End) error {
	name, has := w.config.Interfaces[end.Instance]
	if !has {
		return &vitrine.BadInput{File: "fabric direct", Found: fmt.Sprintf("no interface for the instance %s", end.Instance),
			Want: "`interfaces` with one interface for each instance; it names " + strings.Join(slices.Sorted(maps.Keys(w.config.Interfaces)), ", ")}
	}
	loan, err := w.lender.Free("direct", name, w.config.InUse)
	if err != nil {
		return err
	}
	if err := w.lender.Lend(s, loan, end); err != nil {
		return err
	}
	w.loans[end.Instance] = loan
	return nil
}

// Cut puts the interface back.
func (w *lent) Cut(_ *segment.Segment, end *segment.End) error {
	loan, has := w.loans[end.Instance]
	if !has {
		return nil
	}
	err := w.lender.PutBack(loan)
	if err == nil || errors.Is(err, segment.ErrNowhere) {
		delete(w.loans, end.Instance)
	}
	return err
}

// Unmake closes the lender if no interface is lent any more.
func (w *lent) Unmake(*segment.Segment) error {
	if len(w.loans) > 0 {
		return nil
	}
	return w.lender.Close()
}
