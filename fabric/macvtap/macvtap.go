// Package macvtap wires instances by macvtap interfaces. These are macvlan
// interfaces whose frames a virtual machine can read and write through a
// character device. A process or a container uses one like any other interface.
// The user can name an interface of the host as the parent, which then leads
// out. By default the parent is one of the run's own.
package macvtap

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Config is the part servers.macvtap of a deployment.
type Config struct {
	Run *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired

	// Mode is how instances reach each other: bridge (the default), directly;
	// vepa, through the switch that the parent is connected to, which has to send
	// frames back; passthru, in which each instance has a parent of its own.
	Mode string `yaml:"mode,omitempty" json:"mode,omitempty" jsonschema:"enum=bridge,enum=vepa,enum=passthru"`
	// Parent is an interface of the host; the default is one of the run's own. In
	// mode passthru only one instance can use a named parent.
	Parent string `yaml:"parent,omitempty" json:"parent,omitempty"`

	segment.Options `yaml:",inline"`
}

func kind() segment.Kind {
	return segment.Kind{Name: "macvtap", Needs: "CONFIG_MACVTAP, CONFIG_VETH", Do: "modprobe macvtap veth, or use the fabric bridge"}
}

// New makes the fabric. Without the privilege, or without the kernel's macvtap,
// the error is a *vitrine.Unsupported.
func New(config Config) (*segment.Segment, error) {
	modes := map[string]netlink.MacvlanMode{
		"": netlink.MACVLAN_MODE_BRIDGE, "bridge": netlink.MACVLAN_MODE_BRIDGE,
		"vepa": netlink.MACVLAN_MODE_VEPA, "passthru": netlink.MACVLAN_MODE_PASSTHRU,
	}
	mode, ok := modes[config.Mode]
	if !ok {
		return nil, &vitrine.BadInput{File: "fabric macvtap", Found: fmt.Sprintf("mode: %q", config.Mode), Want: "bridge, vepa or passthru"}
	}
	c := segment.Config{Run: config.Run, Kind: kind(), Options: config.Options}
	switch {
	case mode != netlink.MACVLAN_MODE_PASSTHRU:
	case config.Parent == "":
		return segment.New(c, &passthru{over: over("", mode)})
	default:
		c.Limit = 1
	}
	return segment.NewOver(c, over(config.Parent, mode))
}

// Check reports whether this host supports macvtap fabrics.
func Check(context.Context) []vitrine.Check {
	return []vitrine.Check{segment.Check(kind(), &passthru{over: over("", netlink.MACVLAN_MODE_PASSTHRU)}, "interfaces", "modes bridge, vepa, passthru")}
}

func over(parent string, mode netlink.MacvlanMode) *segment.Over {
	return &segment.Over{Parent: parent, Hairpin: mode == netlink.MACVLAN_MODE_VEPA, Link: func(attrs netlink.LinkAttrs) netlink.Link {
		return &netlink.Macvtap{Macvlan: netlink.Macvlan{LinkAttrs: attrs, Mode: mode}}
	}}
}

// passthru is a bridge, with a veth pair for each instance. One end of the pair
// is a port of the bridge, the other is the parent of the instance's interface.
type passthru struct {
	over   *segment.Over
	bridge int
}

func (w *passthru) Make(s *segment.Segment) (err error) {
	w.bridge, err = s.Bridge("br0")
	return err
}

// Join makes the veth pair and the interface over it.
func (w *passthru) Join(s *segment.Segment, end *segment.End) error {
	parent, err := s.Cable(end, w.bridge)
	if err != nil {
		return err
	}
	if err := w.over.Put(s, end, s.Links, parent); err != nil {
		_ = s.Unpair(end) // if this fails, the pair goes with the namespace
		return err
	}
	return nil
}

// Cut removes the veth pair, and with it the interface over it.
func (w *passthru) Cut(s *segment.Segment, end *segment.End) error { return s.Unpair(end) }
