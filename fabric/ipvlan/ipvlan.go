// Package ipvlan wires instances by ipvlan interfaces. They share the one MAC
// address of a parent interface, and the kernel tells them apart by IP address.
// The user can name an interface of the host as the parent, which then leads
// out. By default the parent is one of the run's own.
package ipvlan

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Config is the part servers.ipvlan of a deployment.
type Config struct {
	Run *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired

	// Mode is l2 (the default), in which instances do ARP, or l3, in which the
	// parent's side routes for them.
	Mode string `yaml:"mode,omitempty" json:"mode,omitempty" jsonschema:"enum=l2,enum=l3"`
	// Parent is an interface of the host; the default is one of the run's own.
	Parent string `yaml:"parent,omitempty" json:"parent,omitempty"`

	segment.Options `yaml:",inline"`
}

func kind() segment.Kind {
	return segment.Kind{Name: "ipvlan", Needs: "CONFIG_IPVLAN, CONFIG_VETH", Do: "modprobe ipvlan veth, or use the fabric macvlan"}
}

// New makes the fabric. Without the privilege, or without the kernel's ipvlan,
// the error is a *vitrine.Unsupported.
func New(config Config) (*segment.Segment, error) {
	modes := map[string]netlink.IPVlanMode{"": netlink.IPVLAN_MODE_L2, "l2": netlink.IPVLAN_MODE_L2, "l3": netlink.IPVLAN_MODE_L3}
	mode, ok := modes[config.Mode]
	if !ok {
		return nil, &vitrine.BadInput{File: "fabric ipvlan", Found: fmt.Sprintf("mode: %q", config.Mode), Want: "l2 or l3"}
	}
	return segment.NewOver(segment.Config{Run: config.Run, Kind: kind(), Options: config.Options}, over(config.Parent, mode))
}

// Check reports whether this host supports ipvlan fabrics.
func Check(context.Context) []vitrine.Check {
	return []vitrine.Check{segment.Check(kind(), over("", netlink.IPVLAN_MODE_L2), "interfaces", "modes l2, l3")}
}

func over(parent string, mode netlink.IPVlanMode) *segment.Over {
	return &segment.Over{Parent: parent, Link: func(attrs netlink.LinkAttrs) netlink.Link {
		return &netlink.IPVlan{LinkAttrs: attrs, Mode: mode}
	}}
}
