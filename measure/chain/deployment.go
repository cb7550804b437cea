package chain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"vitrine"
	"vitrine/fabric"
	"vitrine/internal/netns"
	"vitrine/measure/packet"
	"vitrine/spec"
	"vitrine/substrate"
)

const (
	port      = 7000 // UDP, of sender and receiver
	stopGrace = 2 * time.Second
)

// A place is an instance of the chain.
type place struct {
	name     string
	instance substrate.Instance
	end      fabric.Endpoint
	mac      net.HardwareAddr
	log      string // file
	process  substrate.Process
}

// A steerer is a fabric whose rules forward.
type steerer interface {
	// Chain steers what each instance of the path sends to the one after it.
	Chain(ctx context.Context, path []string) error
}

// A deployment is sender, hops and receiver, wired.
type deployment struct {
	config           *Config
	path             Path
	dir              string // of what the instances say
	host, function   substrate.Substrate
	accelerator      string // of hops that are virtual machines
	fabric           fabric.Fabric
	steer            steerer // nil: the hops themselves know where to send
	sender, receiver *place
	hops             []*place // hops[0] is hop 1
	sending          *packet.Sender
	run              uint32 // of probes
	echoed           chan error
	hush             context.CancelFunc // ends the echo
}

// deploy makes all of it and starts the forwarders. What it gives with an
// error is to be removed too.
func deploy(ctx context.Context, c *Config, v visit, run uint32) (d *deployment, err error) {
	d = &deployment{config: c, path: v.path, run: run, dir: c.Results.LogDir(v.path.String(), fmt.Sprint(v.repeat))}
	choice := spec.Choice{Substrate: v.path.Substrate, Fabric: v.path.Fabric, CFSPeriod: substrate.DefaultCFSPeriod}
	if d.host, err = c.Backends.Host(ctx, choice); err != nil {
		return d, fmt.Errorf("the place of sender and receiver: %w", err)
	}
	if d.function, err = c.Backends.Substrate(ctx, choice, c.Parts[choice.Substrate]); err != nil {
		return d, fmt.Errorf("substrate %s: %w", v.path.Substrate, err)
	}
	if d.fabric, err = c.Backends.Fabric(ctx, choice, c.Parts[choice.Fabric]); err != nil {
		return d, fmt.Errorf("fabric %s: %w", v.path.Fabric, err)
	}
	if d.accelerator, err = substrate.AcceleratorOf(ctx, d.function); err != nil {
		return d, err
	}
	if v.path.Forwarder == OVS {
		var ok bool
		if d.steer, ok = d.fabric.(steerer); !ok {
			return d, &vitrine.BadInput{File: "--forwarder ovs", Found: "fabric " + v.path.Fabric, Want: "want a fabric whose rules forward, and links that are not impaired"}
		}
	}
	// The order of attaching is that of addresses.
	if d.sender, err = d.place(ctx, d.host, vitrine.Generator, 1, c.CPUs.Generator); err != nil {
		return d, err
	}
	if d.receiver, err = d.place(ctx, d.host, Receiver, 1, c.CPUs.Function); err != nil {
		return d, err
	}
	for number := 1; number <= c.Plan.Settings.most(); number++ {
		hop, err := d.place(ctx, d.function, Hop, number, c.CPUs.Function)
		if hop != nil {
			d.hops = append(d.hops, hop)
		}
		if err != nil {
			return d, err
		}
	}
	if err := d.distinct(); err != nil {
		return d, err
	}
	return d, d.start(ctx)
}

// place makes and wires an instance. It gives it also with an error, once there
// is something to remove.
func (d *deployment) place(ctx context.Context, on substrate.Substrate, component string, index int, cpus []int) (*place, error) {
	p := &place{name: fmt.Sprintf("%s-%d", component, index)}
	dir := filepath.Join(d.dir, p.name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	p.log = filepath.Join(dir, "log")
	var err error
	p.instance, err = on.Create(ctx, substrate.Spec{Run: d.config.RunID, Name: p.name, Component: component, CPUs: cpus, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", p.name, err)
	}
	if p.instance.NetNS() == "" {
		return p, &vitrine.Unsupported{What: "a chain of instances", Missing: "a network namespace for each, which fabric " + d.path.Fabric + " or the privilege does not allow", Do: "run as root, with a fabric such as bridge"}
	}
	if p.end, err = d.fabric.Attach(ctx, fabric.Port{Instance: p.name, NetNS: p.instance.NetNS()}); err != nil {
		return p, err
	}
	err = netns.Do(p.instance.NetNS(), func() error {
		i, err := net.InterfaceByName(p.end.Interface)
		if err != nil {
			return fmt.Errorf("%s of %s: %w", p.end.Interface, p.name, err)
		}
		p.mac = i.HardwareAddr
		return noRouter()
	})
	return p, err
}

// noRouter has the thread's namespace not forward what is addressed to others: it
// is what its forwarder does, and a router in the kernel would do it once more.
// A namespace begins as what the host's own is.
func noRouter() error {
	err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0)
	if err != nil {
		return fmt.Errorf("turning routing off: %w", err)
	}
	return nil
}

// distinct sees to it that every instance has a link-layer address of its own:
// it is by those that frames find their way.
func (d *deployment) distinct() error {
	has := map[string]string{}
	for _, p := range d.all() {
		if other := has[p.mac.String()]; other != "" || len(p.mac) != 6 {
			return &vitrine.Unsupported{What: "a chain on the fabric " + d.path.Fabric, Missing: fmt.Sprintf("a MAC address for each instance: %s has %q, %s too", p.name, p.mac, other), Do: "choose another fabric"}
		}
		has[p.mac.String()] = p.name
	}
	return nil
}

func (d *deployment) all() []*place {
	var list []*place
	for _, p := range append([]*place{d.sender, d.receiver}, d.hops...) {
		if p != nil {
			list = append(list, p)
		}
	}
	return list
}

// start starts the receiver's echo, the forwarders and the sender.
func (d *deployment) start(ctx context.Context) error {
	// Static, so that no packet waits for an ARP answer, and no reply goes astray.
	err := netns.Do(d.receiver.instance.NetNS(), func() error {
		l, err := netlink.LinkByName(d.receiver.end.Interface)
		if err != nil {
			return err
		}
		return netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: d.sender.end.Addr.AsSlice(), HardwareAddr: d.sender.mac, State: netlink.NUD_PERMANENT})
	})
	if err != nil {
		return fmt.Errorf("telling the receiver where the sender is: %w", err)
	}
	if err := d.echo(); err != nil {
		return err
	}
	for number := range d.hops {
		if err := d.forward(ctx, number+1, 0); err != nil {
			return err
		}
	}
	d.sending, err = packet.OpenSender(packet.SenderConfig{
		NetNS: d.sender.instance.NetNS(), Interface: d.sender.end.Interface, CPU: d.config.CPUs.Generator[0],
	})
	return err
}

// echo has the receiver answer.
func (d *deployment) echo() error {
	ctx, cancel := context.WithCancel(context.Background())
	d.hush, d.echoed = cancel, make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		d.echoed <- netns.Do(d.receiver.instance.NetNS(), func() error {
			return packet.Echo(ctx, d.dest(), func() { close(ready) })
		})
	}()
	select {
	case <-ready:
		return nil
	case err := <-d.echoed:
		d.echoed <- nil
		return errors.Join(err, errors.New("the receiver ended"))
	}
}

func (d *deployment) source() netip.AddrPort { return netip.AddrPortFrom(d.sender.end.Addr, port) }
func (d *deployment) dest() netip.AddrPort   { return netip.AddrPortFrom(d.receiver.end.Addr, port) }

// after is where the hop sends to.
func (d *deployment) after(number int) *place {
	if number == 1 {
		return d.receiver
	}
	return d.hops[number-2]
}

// entry is where a chain of that length begins.
func (d *deployment) entry(length int) *place { return d.after(length + 1) }

// forward starts the hop's forwarder, in place of the one that may run there.
func (d *deployment) forward(ctx context.Context, number int, hold time.Duration) error {
	hop := d.hops[number-1]
	if hop.process != nil {
		if err := hop.instance.Stop(ctx, stopGrace); err != nil {
			return fmt.Errorf("stopping the forwarder of %s: %w", hop.name, err)
		}
		hop.process = nil
	}
	next := d.after(number).mac.String()
	s := d.config.Plan.Settings
	command := vitrine.Command{Env: []string{
		"INTERFACE=" + hop.end.Interface, "NEXT_MAC=" + next, "ADDRESS=" + hop.end.Addr.String(),
		"VITRINE_INSTANCE=" + hop.name, fmt.Sprintf("VITRINE_INDEX=%d", number),
	}}
	switch d.path.Forwarder {
	case Script:
		command.Args = s.Program
	default:
		mode := d.path.Forwarder
		if mode == OVS {
			mode = Packet
		}
		command.Args = []string{d.config.Backends.Self, "reference", "forwarder", "--in", hop.end.Interface, "--next-mac", next, "--mode", mode}
		if mode == XDP && s.Attach != "" {
			command.Args = append(command.Args, "--attach", s.Attach)
		}
		if hold > 0 {
			command.Args = append(command.Args, "--delay", hold.String())
		}
	}
	var err error
	if hop.process, err = hop.instance.Start(ctx, command); err != nil {
		return fmt.Errorf("starting the forwarder of %s: %w", hop.name, err)
	}
	return nil
}

// said is the last lines of what the hop's forwarder said.
func (p *place) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(len(lines)-3, 0):], "\n")
}

// forwarding is how the hops of a chain of that length said that they forward.
func (d *deployment) forwarding(length int) []string {
	var list []string
	for _, p := range d.hops[:length] {
		for line := range strings.Lines(p.said()) {
			if _, ready, ok := strings.Cut(line, "ready: "); ok {
				mode, _, _ := strings.Cut(strings.TrimSpace(ready), ": ")
				list = append(list, mode)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// remove takes all of it away.
func (d *deployment) remove(ctx context.Context) error {
	var errs []error
	if d.sending != nil {
		errs = append(errs, d.sending.Close())
	}
	if d.hush != nil {
		d.hush()
		errs = append(errs, <-d.echoed)
	}
	for _, p := range d.all() {
		if d.fabric != nil {
			errs = append(errs, d.fabric.Detach(ctx, p.name))
		}
		errs = append(errs, p.instance.Remove(ctx))
	}
	if d.fabric != nil {
		errs = append(errs, d.fabric.Close(ctx))
	}
	for _, s := range []substrate.Substrate{d.function, d.host} {
		if s != nil {
			errs = append(errs, s.Close(ctx))
		}
	}
	return errors.Join(errs...)
}
