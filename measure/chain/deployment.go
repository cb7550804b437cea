package chain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/fabric"
	"vitrine/measure/packet"
	"vitrine/spec"
	"vitrine/substrate"
	"vitrine/testbed"
)

const (
	port      = 7000 // UDP, of sender and receiver
	stopGrace = 2 * time.Second
)

// A node is an instance of the chain.
type node struct {
	*testbed.Instance
	mac net.HardwareAddr
}

// A deployment holds the connected sender, hops and receiver.
type deployment struct {
	*testbed.Site
	config           *Config
	path             Path
	chainer          fabric.Chainer // nil: the forwarders have the next hop's address
	sender, receiver *node
	hops             []*node // hops[0] is hop 1
	sending          *packet.Sender
	label            uint32 // of probes
	echo             *packet.Echo
	echoed           chan error
	stopEcho         context.CancelFunc
}

// deploy places all instances and starts the forwarders. On error it removes
// everything.
func deploy(ctx context.Context, c *Config, l leg) (_ *deployment, err error) {
	d := &deployment{config: c, path: l.path, label: c.Label()}
	choice := spec.Choice{Substrate: l.path.Substrate, Fabric: l.path.Fabric, CFSPeriod: substrate.DefaultCFSPeriod}
	if d.Site, err = testbed.Open(ctx, c.Testbed, choice); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close(context.WithoutCancel(ctx)))
		}
	}()
	if l.path.Forwarder == OVS {
		var ok bool
		if d.chainer, ok = d.Fabric().(fabric.Chainer); !ok {
			return nil, &vitrine.BadInput{File: "--forwarder ovs", Found: "fabric " + l.path.Fabric, Want: "want a fabric whose rules forward, and links that are not impaired"}
		}
	}
	if err := d.place(ctx, c.Results.LogDir(l.path.String(), fmt.Sprint(l.repeat))); err != nil {
		return nil, err
	}
	return d, d.start(ctx)
}

// place places sender, receiver and hops, in the order of their addresses.
func (d *deployment) place(ctx context.Context, dir string) error {
	spec := func(component string, index int, cpus []int) testbed.Spec {
		return testbed.Spec{OnHost: component != Hop, Spec: substrate.Spec{
			Name: fmt.Sprintf("%s-%d", component, index), Component: component, CPUs: cpus,
		}}
	}
	specs := []testbed.Spec{spec(vitrine.Generator, 1, d.config.CPUs.Generator), spec(Receiver, 1, d.config.CPUs.Function)}
	for number := 1; number <= d.config.Plan.Settings.mostHops(); number++ {
		specs = append(specs, spec(Hop, number, []int{hopCPU(d.config.CPUs.Function, number)}))
	}
	placed, err := d.Place(ctx, dir, specs...)
	if err != nil {
		return err
	}
	var nodes []*node
	for _, in := range placed.Instances {
		if in.NetNS() == "" {
			return &vitrine.Unsupported{What: "a chain of instances", Missing: "a network namespace for each, which fabric " + d.path.Fabric + " or the privilege does not allow", Do: "run as root, with a fabric such as bridge"}
		}
		n := &node{Instance: in}
		if err := in.Inside(n.prepare); err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	d.sender, d.receiver, d.hops = nodes[0], nodes[1], nodes[2:]
	return d.checkMACs(nodes)
}

// prepare reads the node's link-layer address and turns routing off.
func (n *node) prepare() error {
	i, err := net.InterfaceByName(n.Endpoint.Interface)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", n.Endpoint.Interface, n.Name, err)
	}
	n.mac = i.HardwareAddr
	return disableRouting()
}

// disableRouting turns IP forwarding off in the thread's network namespace. The
// forwarder already forwards each packet, and a router in the kernel would forward it
// again. A new namespace starts with the host's setting.
func disableRouting() error {
	err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0)
	if err != nil {
		return fmt.Errorf("turning routing off: %w", err)
	}
	return nil
}

// checkMACs checks that every instance has its own link-layer address, because that address
// decides where a frame goes.
func (d *deployment) checkMACs(nodes []*node) error {
	has := map[string]string{}
	for _, n := range nodes {
		if other := has[n.mac.String()]; other != "" || len(n.mac) != 6 {
			return &vitrine.Unsupported{What: "a chain on the fabric " + d.path.Fabric, Missing: fmt.Sprintf("a MAC address for each instance: %s has %q, and so has %s", n.Name, n.mac, other), Do: "choose another fabric"}
		}
		has[n.mac.String()] = n.Name
	}
	return nil
}

// start starts the receiver's echo, the forwarders and the sender.
func (d *deployment) start(ctx context.Context) error {
	// With a static neighbour entry, no packet waits for ARP and no reply goes elsewhere.
	if err := d.receiver.AddNeighbour(d.sender.Endpoint.Addr, d.sender.mac); err != nil {
		return fmt.Errorf("add the sender as a neighbour of the receiver: %w", err)
	}
	if err := d.startEcho(); err != nil {
		return err
	}
	for number := range d.hops {
		if err := d.startForwarder(ctx, number+1, 0); err != nil {
			return err
		}
	}
	var err error
	d.sending, err = packet.OpenSender(packet.SenderConfig{
		NetNS: d.sender.NetNS(), Interface: d.sender.Endpoint.Interface, CPU: d.config.CPUs.Generator[0],
	})
	return err
}

// startEcho starts the receiver's echo.
func (d *deployment) startEcho() error {
	err := d.receiver.Inside(func() (err error) {
		d.echo, err = packet.OpenEcho(d.dest(), -1)
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stopEcho, d.echoed = cancel, make(chan error, 1)
	go func() { d.echoed <- d.echo.Run(ctx) }()
	return nil
}

func (d *deployment) source() netip.AddrPort { return d.sender.At(port) }
func (d *deployment) dest() netip.AddrPort   { return d.receiver.At(port) }

// nextHop returns the node that the hop sends to.
func (d *deployment) nextHop(number int) *node {
	if number == 1 {
		return d.receiver
	}
	return d.hops[number-2]
}

// entryHop returns the node where a chain of that length begins.
func (d *deployment) entryHop(length int) *node { return d.nextHop(length + 1) }

// startForwarder starts the hop's forwarder. First it stops the previous forwarder, if any.
func (d *deployment) startForwarder(ctx context.Context, number int, hold time.Duration) error {
	hop := d.hops[number-1]
	if err := hop.Stop(ctx, stopGrace); err != nil {
		return err
	}
	next := d.nextHop(number).mac.String()
	s := d.config.Plan.Settings
	command := vitrine.Command{Env: []string{
		"INTERFACE=" + hop.Endpoint.Interface, "NEXT_MAC=" + next, "ADDRESS=" + hop.Endpoint.Addr.String(),
		"VITRINE_INSTANCE=" + hop.Name, fmt.Sprintf("VITRINE_INDEX=%d", number),
	}}
	switch d.path.Forwarder {
	case Script:
		command.Args = s.Program
	default:
		mode := d.path.Forwarder
		if mode == OVS {
			mode = Packet
		}
		command.Args = []string{d.config.Testbed.Self, "reference", "forwarder", "--in", hop.Endpoint.Interface, "--next-mac", next, "--mode", mode}
		if mode == XDP && s.Attach != "" {
			command.Args = append(command.Args, "--attach", s.Attach)
		}
		if hold > 0 {
			command.Args = append(command.Args, "--delay", hold.String())
		}
	}
	return hop.Start(ctx, command)
}

// forwardingModes returns the modes that the hops of a chain of that length logged.
func (d *deployment) forwardingModes(length int) []string {
	var list []string
	for _, p := range d.hops[:length] {
		for line := range strings.Lines(p.Log()) {
			if _, ready, ok := strings.Cut(line, "ready: "); ok {
				mode, _, _ := strings.Cut(strings.TrimSpace(ready), ": ")
				list = append(list, mode)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// close removes the deployment.
func (d *deployment) close(ctx context.Context) error {
	var errs []error
	if d.sending != nil {
		errs = append(errs, d.sending.Close())
	}
	if d.stopEcho != nil {
		d.stopEcho()
		errs = append(errs, <-d.echoed, d.echo.Close())
	}
	return errors.Join(append(errs, d.Close(ctx))...)
}
