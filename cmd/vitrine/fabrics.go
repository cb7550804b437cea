package main

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/document"
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
)

// A fabricKind is one method of wiring instances.
type fabricKind struct {
	config any // type of the part servers.NAME of a deployment; nil: it has no options
	open   func(ctx context.Context, b *backends, part document.Node) (fabric.Fabric, error)
	check  func(ctx context.Context) []vitrine.Check // nil: available on every host
	model  string                                    // networking model, as draft-ietf-bmwg-containerized-infra names it
	chains bool                                      // its rules can forward: it implements fabric.Chainer
	shared bool                                      // it uses the host's addresses, so instances share the host's network
}

// fabrics returns all fabrics. A new fabric is one entry.
func fabrics() map[string]fabricKind {
	return map[string]fabricKind{
		"loopback": {open: openLoopback, model: loopback.NetworkingModel, shared: true},
		"host":     withHostAddresses(newFabricKind(host.New, func(c *host.Config, b *backends) { c.Run = b.run }, host.Check, host.NetworkingModel)),
		"direct":   newFabricKind(direct.New, func(c *direct.Config, b *backends) { c.Run = b.run }, direct.Check, direct.NetworkingModel),
		"bridge":   newFabricKind(bridge.New, func(c *bridge.Config, b *backends) { c.Run = b.run }, bridge.Check, bridge.NetworkingModel),
		"macvlan":  newFabricKind(macvlan.New, func(c *macvlan.Config, b *backends) { c.Run = b.run }, macvlan.Check, macvlan.NetworkingModel),
		"macvtap":  newFabricKind(macvtap.New, func(c *macvtap.Config, b *backends) { c.Run = b.run }, macvtap.Check, macvtap.NetworkingModel),
		"ipvlan":   newFabricKind(ipvlan.New, func(c *ipvlan.Config, b *backends) { c.Run = b.run }, ipvlan.Check, ipvlan.NetworkingModel),
		"sriov":    newFabricKind(sriov.New, func(c *sriov.Config, b *backends) { c.Run = b.run }, sriov.Check, sriov.NetworkingModel),
		"vxlan":    newFabricKind(vxlan.New, func(c *vxlan.Config, b *backends) { c.Run = b.run }, vxlan.Check, vxlan.NetworkingModel),
		"ovs":      {config: ovs.Config{}, open: openOVS, check: ovs.Check, model: ovs.NetworkingModel, chains: true},
	}
}

// newFabricKind returns the kind of a fabric whose constructor needs only its configuration. fill
// sets the values of the run. The user's options are decoded after that and replace them.
func newFabricKind[Config any, F fabric.Fabric](construct func(Config) (F, error), fill func(*Config, *backends), check func(context.Context) []vitrine.Check, model string) fabricKind {
	var none Config
	return fabricKind{config: none, check: check, model: model, open: func(_ context.Context, b *backends, part document.Node) (fabric.Fabric, error) {
		var c Config
		fill(&c, b)
		if err := part.Decode(&c); err != nil {
			return nil, err
		}
		f, err := construct(c)
		if err != nil { // returns a nil interface, not an interface that holds a nil F
			return nil, err
		}
		return f, nil
	}}
}

// withHostAddresses marks a kind as one that uses the host's addresses.
func withHostAddresses(k fabricKind) fabricKind {
	k.shared = true
	return k
}

func openLoopback(_ context.Context, b *backends, _ document.Node) (fabric.Fabric, error) {
	return loopback.New(loopback.Config{Run: b.run}), nil
}

func openOVS(ctx context.Context, b *backends, part document.Node) (fabric.Fabric, error) {
	c := ovs.Config{Run: b.run, Logger: b.log}
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	f, err := ovs.New(ctx, c)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// chains reports whether a fabric's rules can forward.
func chains(name string) bool { return fabrics()[name].chains }

// networkingModels returns the networking models of the fabrics, by name.
func networkingModels(names []string) map[string]string {
	models := map[string]string{}
	for _, name := range names {
		models[name] = fabrics()[name].model
	}
	return models
}

func fabricNames() []string { return slices.Sorted(maps.Keys(knownBackends().Fabrics)) }

// fabricName resolves auto. It returns bridge if instances can have their own network namespaces,
// and otherwise loopback.
func fabricName(name string) string {
	switch {
	case name != "auto":
		return name
	case netns.Possible() == nil:
		return "bridge"
	}
	return "loopback"
}

// isolated reports whether a fabric with the options of part connects the instances of a run only
// to each other, and not to the host or beyond.
func isolated(name string, part document.Node) bool {
	if fabrics()[name].shared {
		return false
	}
	var given map[string]any
	_ = part.Decode(&given) // never fails: a loaded file has valid parts
	leadsOut := func(option string) bool { return given[option] != nil }
	return !slices.ContainsFunc([]string{"parent", "interfaces", "server"}, leadsOut)
}

// fabric opens the fabric of the choice.
func (b *backends) fabric(ctx context.Context, o spec.Choice, part document.Node) (fabric.Fabric, error) {
	kind, ok := fabrics()[fabricName(o.Fabric)]
	if !ok {
		return nil, oneOf("fabric", o.Fabric, fabricNames())
	}
	f, err := kind.open(ctx, b, part)
	if err != nil || b.impair == nil {
		return f, err
	}
	c := b.impair.Of(o.Impairment)
	c.Run, c.Command, c.Logger = b.run, []string{b.self, impair.Verb}, b.log
	return impair.Wrap(ctx, f, c)
}

// impairPart is the name of the servers part that applies to every fabric.
const impairPart = "impair"

// impairment returns the link impairments in the parts, or nil. They may name only the given
// components.
func impairment(parts map[string]document.Node, components []string) (*impair.Config, error) {
	part, ok := parts[impairPart]
	if !ok {
		return nil, nil
	}
	c, err := impair.Read(part, components)
	return &c, err
}

// checkImpairment checks that the variants that the deployment chooses exist.
func checkImpairment(d *spec.Deployment, c *impair.Config) error {
	for i, name := range d.Servers.Impairment {
		var known []string
		if c != nil {
			known = slices.Sorted(maps.Keys(c.Variants))
		}
		if !slices.Contains(known, name) {
			return d.Root().BadInput("no variant "+document.Word(name)+" in servers.impair", "want one of its variants: "+strings.Join(known, ", "), "servers", "impairment", strconv.Itoa(i))
		}
	}
	return nil
}
