// Package macvlan wires instances by macvlan interfaces: each instance has a
// MAC address of its own on one parent interface. The user can name an
// interface of the host as the parent, which then leads out. By default the
// parent is one of the run's own.
package macvlan

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Config is the part servers.macvlan of a deployment.
type Config struct {
	Run *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired

	// Mode is how instances on the same parent reach each other: bridge (the
	// default), directly; vepa, through the switch that the parent is connected
	// to, which has to send frames back; private, not at all. The mode private
	// needs a parent.
	Mode string `yaml:"mode,omitempty" json:"mode,omitempty" jsonschema:"enum=bridge,enum=vepa,enum=private"`
	// Parent is an interface of the host; the default is one of the run's own.
	Parent string `yaml:"parent,omitempty" json:"parent,omitempty"`

	segment.Options `yaml:",inline"`
}

func kind() segment.Kind {
	return segment.Kind{Name: "macvlan", Needs: "CONFIG_MACVLAN, CONFIG_VETH", Do: "modprobe macvlan veth, or use the fabric bridge"}
}

// New makes the fabric. Without the privilege, or without the kernel's macvlan,
// the error is a *vitrine.Unsupported.
func New(config Config) (*segment.Segment, error) {
	modes := map[string]netlink.MacvlanMode{
		"": netlink.MACVLAN_MODE_BRIDGE, "bridge": netlink.MACVLAN_MODE_BRIDGE,
		"vepa": netlink.MACVLAN_MODE_VEPA, "private": netlink.MACVLAN_MODE_PRIVATE,
	}
	mode, ok := modes[config.Mode]
	if !ok {
		return nil, &vitrine.BadInput{File: "fabric macvlan", Found: fmt.Sprintf("mode: %q", config.Mode), Want: "bridge, vepa or private"}
	}
	if config.Mode == "private" && config.Parent == "" {
		return nil, &vitrine.BadInput{File: "fabric macvlan", Found: "mode: private without a parent", Want: "a parent that leads out: in this mode instances do not reach each other"}
	}
	return segment.NewOver(segment.Config{Run: config.Run, Kind: kind(), Options: config.Options}, over(config.Parent, mode))
}

// Check reports whether this host supports macvlan fabrics.
func Check(context.Context) []vitrine.Check {
	return []vitrine.Check{segment.Check(kind(), over("", netlink.MACVLAN_MODE_VEPA), "interfaces", "modes bridge, vepa, private")}
}

func over(parent string, mode netlink.MacvlanMode) *segment.Over {
	return &segment.Over{Parent: parent, Hairpin: mode == netlink.MACVLAN_MODE_VEPA, Link: func(attrs netlink.LinkAttrs) netlink.Link {
		return &netlink.Macvlan{LinkAttrs: attrs, Mode: mode}
	}}
}
