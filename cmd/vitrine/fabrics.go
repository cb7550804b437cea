package main

import (
	"context"
	"maps"
	"slices"

	"vitrine/fabric"
	"vitrine/fabric/bridge"
	"vitrine/fabric/direct"
	"vitrine/fabric/host"
	"vitrine/fabric/impair"
	"vitrine/fabric/ipvlan"
	"vitrine/fabric/loopback"
	"vitrine/fabric/macvlan"
	"vitrine/fabric/macvtap"
	"vitrine/fabric/ovs"
	"vitrine/fabric/sriov"
	"vitrine/fabric/vxlan"
	"vitrine/internal/netns"
	"vitrine/spec"
	"vitrine/substrate"
)

// A fabricKind is one way to wire instances.
type fabricKind struct {
	config any // the part servers.NAME of a deployment; nil: it has none
	open   func(ctx context.Context, b *backends, part spec.Node) (fabric.Fabric, error)
	check  func(ctx context.Context) []substrate.Check // nil: every host has it
}

// fabrics are all there are. A new one is one entry.
func fabrics() map[string]fabricKind {
	return map[string]fabricKind{
		"loopback": {nil, openLoopback, nil},
		"host":     {host.Config{}, openHost, host.Check},
		"direct":   {direct.Config{}, openDirect, direct.Check},
		"bridge":   {bridge.Config{}, openBridge, bridge.Check},
		"macvlan":  {macvlan.Config{}, openMacvlan, macvlan.Check},
		"macvtap":  {macvtap.Config{}, openMacvtap, macvtap.Check},
		"ipvlan":   {ipvlan.Config{}, openIpvlan, ipvlan.Check},
		"sriov":    {sriov.Config{}, openSRIOV, sriov.Check},
		"vxlan":    {vxlan.Config{}, openVXLAN, vxlan.Check},
		"ovs":      {ovs.Config{}, openOVS, ovs.Check},
	}
}

// ofHost says whether a fabric's addresses are the host's, so that instances
// have to share its network.
func ofHost(name string) bool {
	name = fabricName(name)
	return name == "loopback" || name == "host"
}

func fabricNames() []string { return slices.Sorted(maps.Keys(known().Fabrics)) }

// fabricName resolves auto: a bridge where instances can have network
// namespaces of their own, else loopback addresses.
func fabricName(name string) string {
	switch {
	case name != "auto":
		return name
	case netns.Possible() == nil:
		return "bridge"
	}
	return "loopback"
}

// fabric makes the choice's fabric.
func (b *backends) fabric(ctx context.Context, o spec.Choice, part spec.Node) (fabric.Fabric, error) {
	kind, ok := fabrics()[fabricName(o.Fabric)]
	if !ok {
		return nil, oneOf("fabric", o.Fabric, fabricNames())
	}
	f, err := kind.open(ctx, b, part)
	if err != nil || b.impair == nil {
		return f, err
	}
	c := *b.impair
	c.Run, c.Command, c.Logger = b.run, []string{b.self, impair.Verb}, b.log
	return impair.Wrap(ctx, f, c)
}

// impairPart is the part of a deployment's servers that is of every fabric.
const impairPart = "impair"

// impairment is what a deployment wants links to do to packets; nil: nothing.
func impairment(d *spec.Deployment) (*impair.Config, error) {
	part, ok := d.Servers.Parts[impairPart]
	if !ok {
		return nil, nil
	}
	var components []string
	for _, c := range d.Components {
		components = append(components, c.Name)
	}
	c, err := impair.Read(part, components)
	return &c, err
}

func openLoopback(_ context.Context, b *backends, _ spec.Node) (fabric.Fabric, error) {
	return loopback.New(loopback.Config{Run: b.run}), nil
}

func openHost(_ context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := host.Config{Run: b.run}
	return opened(host.New, &c, part)
}

func openDirect(_ context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := direct.Config{Run: b.run}
	return opened(direct.New, &c, part)
}

func openBridge(_ context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := bridge.Config{Run: b.run}
	return opened(bridge.New, &c, part)
}

func openMacvlan(_ context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := macvlan.Config{Run: b.run}
	return opened(macvlan.New, &c, part)
}

func openMacvtap(_ context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := macvtap.Config{Run: b.run}
	return opened(macvtap.New, &c, part)
}

func openIpvlan(_ context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := ipvlan.Config{Run: b.run}
	return opened(ipvlan.New, &c, part)
}

func openSRIOV(_ context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := sriov.Config{Run: b.run}
	return opened(sriov.New, &c, part)
}

func openVXLAN(_ context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := vxlan.Config{Run: b.run}
	return opened(vxlan.New, &c, part)
}

func openOVS(ctx context.Context, b *backends, part spec.Node) (fabric.Fabric, error) {
	c := ovs.Config{Run: b.run, Logger: b.log}
	return opened(func(c ovs.Config) (*ovs.Fabric, error) { return ovs.New(ctx, c) }, &c, part)
}

// opened makes a fabric by its configuration and what the user's file adds to it.
func opened[Config any, F fabric.Fabric](construct func(Config) (F, error), c *Config, part spec.Node) (fabric.Fabric, error) {
	if err := part.Decode(c); err != nil {
		return nil, err
	}
	f, err := construct(*c)
	if err != nil { // and no fabric, not even a nil one of a type
		return nil, err
	}
	return f, nil
}
