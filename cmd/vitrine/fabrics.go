package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	"vitrine/measure"
	"vitrine/spec"
)

// A fabricKind is one method of wiring instances.
type fabricKind struct {
	config any // type of the part servers.NAME of a deployment; nil: it has no options
	open   func(ctx context.Context, b *backends, part document.Node) (fabric.Fabric, error)
	check  func(ctx context.Context) []vitrine.Check // nil: available on every host
	// version describes the software that the fabric drives, or "" if it is unknown; nil: the kernel alone.
	version func(ctx context.Context, b *backends, part document.Node) string
	model   string // networking model, as draft-ietf-bmwg-containerized-infra names it
	chains  bool   // its rules can forward: it implements fabric.Chainer
	shared  bool   // it uses the host's addresses, so instances share the host's network
	device  bool   // only the user knows which of the host's devices it uses: the option parent
}

// fabrics returns all fabrics. A new fabric is one entry.
func fabrics() map[string]fabricKind {
	const (
		hostStack     = "none: the host's own network stack"
		virtualDevice = "kernel-space: a virtual device of the kernel's, without a switch"
	)
	return map[string]fabricKind{
		"loopback": {open: openLoopback, model: hostStack, shared: true},
		"host":     withHostAddresses(newFabricKind(host.New, func(c *host.Config, b *backends) { c.Run = b.run }, host.Check, hostStack)),
		"direct":   newFabricKind(direct.New, func(c *direct.Config, b *backends) { c.Run = b.run }, direct.Check, "none: a link of the kernel's between the two, or an interface of the host moved into the instance"),
		"bridge":   newFabricKind(bridge.New, func(c *bridge.Config, b *backends) { c.Run = b.run }, bridge.Check, "kernel-space: the kernel's bridge"),
		"macvlan":  newFabricKind(macvlan.New, func(c *macvlan.Config, b *backends) { c.Run = b.run }, macvlan.Check, virtualDevice),
		"macvtap":  newFabricKind(macvtap.New, func(c *macvtap.Config, b *backends) { c.Run = b.run }, macvtap.Check, virtualDevice),
		"ipvlan":   newFabricKind(ipvlan.New, func(c *ipvlan.Config, b *backends) { c.Run = b.run }, ipvlan.Check, virtualDevice),
		"sriov":    withDevice(newFabricKind(sriov.New, func(c *sriov.Config, b *backends) { c.Run = b.run }, sriov.Check, "Smart-NIC: virtual functions (SR-IOV)")),
		"vxlan":    newFabricKind(vxlan.New, func(c *vxlan.Config, b *backends) { c.Run = b.run }, vxlan.Check, "kernel-space: a tunnel of the kernel's (VXLAN)"),
		"ovs":      {config: ovs.Config{}, open: openOVS, check: ovs.Check, version: ovsVersion, model: "virtual switch: kernel-space with Open vSwitch's kernel datapath, else user-space (datapath netdev)", chains: true},
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

// withDevice marks a kind as one that needs a device of the host.
func withDevice(k fabricKind) fabricKind {
	k.device = true
	return k
}

func openLoopback(_ context.Context, b *backends, _ document.Node) (fabric.Fabric, error) {
	return loopback.New(loopback.Config{Run: b.run}), nil
}

func openOVS(ctx context.Context, b *backends, part document.Node) (fabric.Fabric, error) {
	c := ovs.Config{Run: b.run, RunCPUs: b.cpus, Logger: b.log}
	if err := part.Decode(&c); err != nil {
		return nil, err
	}
	f, err := ovs.New(ctx, c)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ovsVersion describes Open vSwitch with the part's options. Without it, the trials fail with the reason.
func ovsVersion(ctx context.Context, b *backends, part document.Node) string {
	c := ovs.Config{RunCPUs: b.cpus}
	if part.Decode(&c) != nil {
		return ""
	}
	version, _ := ovs.Version(ctx, c)
	return version
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
	name := fabricName(o.Fabric)
	kind, ok := fabrics()[name]
	switch {
	case !ok:
		return nil, oneOf("fabric", o.Fabric, fabricNames())
	case kind.shared && b.impair != nil:
		return nil, &vitrine.Unsupported{What: "impaired links on the fabric " + name, Missing: "interfaces of the instances' own", Do: "use a fabric of network namespaces, such as bridge"}
	}
	f, err := kind.open(ctx, b, part)
	if b.planned && part.IsZero() {
		err = withoutDevice(name, err)
	}
	if err != nil || b.impair == nil {
		return f, err
	}
	c := b.impair.Of(o.Impairment)
	c.Run, c.Command, c.Logger, c.CPU = b.run, []string{b.self, impair.Verb}, b.log, cmp.Or(c.CPU, b.emulator)
	return impair.Wrap(ctx, f, c)
}

// emulatorPlace describes where the emulator of impaired links runs; empty: no link is impaired.
func (b *backends) emulatorPlace() string {
	if b.impair == nil {
		return ""
	}
	if cpu := cmp.Or(b.impair.CPU, b.emulator); cpu != nil {
		return fmt.Sprintf("on CPU %d, for links that netem does not impair", *cpu)
	}
	return "on the sender's CPU, for links that netem does not impair: their packets may wait for the sender"
}

// withoutDevice returns the error of a fabric without options. A fabric that needs a device is then
// left out: a paper's plan names the fabric, so its absence is no mistake of the user.
func withoutDevice(name string, err error) error {
	var bad *vitrine.BadInput
	if !fabrics()[name].device || !errors.As(err, &bad) {
		return err
	}
	return &vitrine.Unsupported{What: "the fabric " + name, Missing: bad.Found, Do: "choose it in servers." + name + " of a file for --options: " + bad.Want}
}

// onlyDevices reports whether the options say nothing but which devices of the host the fabrics use.
func onlyDevices(given measure.Options) (bool, error) {
	for name, text := range given {
		var part map[string]json.RawMessage
		if err := json.Unmarshal(text, &part); err != nil {
			return false, fmt.Errorf("the options of %s: %w", name, err)
		}
		delete(part, "parent")
		if len(part) > 0 || !fabrics()[name].device {
			return false, nil
		}
	}
	return true, nil
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
