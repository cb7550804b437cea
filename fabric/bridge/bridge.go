// Package bridge wires instances that have network namespaces by a bridge that
// is itself in a namespace, one that belongs to the run: no interface, address,
// route or rule of the host's own network is touched, and no two runs meet.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric"
	"vitrine/internal/netns"
	"vitrine/internal/runs"
)

const (
	bridgeName = "br0"
	inside     = "eth0" // the interface's name in the instance
	mtu        = 1500   // bytes
)

// network is where addresses are from: the range for benchmarking of network
// devices (RFC 2544, appendix C.2.2), which nothing else is in. It ends at the
// bridge, so that every run can have it.
var network = netip.MustParsePrefix("198.18.0.0/16")

// Config is what a bridge fabric needs.
type Config struct {
	Run *runs.Run // whose instances it wires
}

// A Fabric is a bridge in a namespace of its own.
type Fabric struct {
	run  *runs.Run
	name string // of the namespace

	mu       sync.Mutex
	closed   bool
	links    *netlink.Handle // in the namespace
	bridge   int             // index of the bridge's interface
	last     netip.Addr      // given out last
	number   int             // of interfaces made so far
	attached map[string]port
}

// A port is an instance's place at the bridge.
type port struct {
	link string // the interface's name at the bridge
	addr netip.Addr
}

var _ fabric.Fabric = (*Fabric)(nil)

// New makes the bridge. Without the privilege, or without the kernel's bridges,
// it is a *vitrine.Unsupported.
func New(config Config) (*Fabric, error) {
	f := &Fabric{run: config.Run, name: name(config.Run.ID), last: network.Addr(), attached: make(map[string]port)}
	path, err := netns.Create(f.name)
	if err != nil {
		return nil, fmt.Errorf("making the bridge fabric: %w", err)
	}
	err = netns.Do(path, func() error {
		if err := quiet(); err != nil {
			return err
		}
		if f.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		f.bridge, err = makeBridge(f.links)
		return err
	})
	if err != nil {
		err = fmt.Errorf("making the bridge fabric: %w", unsupported(err))
		return nil, errors.Join(err, f.Close(context.Background()))
	}
	return f, nil
}

// name is that of the run's namespace for the fabric. No instance has it, for
// those end in a number, or are the generator.
func name(run string) string { return "vt-" + run + "-fabric" }

// makeBridge makes the bridge and brings it up.
func makeBridge(links *netlink.Handle) (int, error) {
	snooping := false // of multicast: it is about hosts that are not here
	br := &netlink.Bridge{
		LinkAttrs:         netlink.LinkAttrs{Name: bridgeName, MTU: mtu, TxQLen: -1},
		MulticastSnooping: &snooping,
	}
	if err := links.LinkAdd(br); err != nil {
		return 0, fmt.Errorf("making a bridge: %w", err)
	}
	if err := links.LinkSetUp(br); err != nil {
		return 0, fmt.Errorf("bringing the bridge up: %w", err)
	}
	return br.Index, nil
}

// Attach joins the instance's namespace to the bridge by a pair of interfaces
// and gives it the next address.
func (f *Fabric) Attach(ctx context.Context, p fabric.Port) (fabric.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	addr, err := f.attach(ctx, p)
	if err != nil {
		return fabric.Endpoint{}, fmt.Errorf("attaching %s to the bridge fabric: %w", p.Instance, unsupported(err))
	}
	return fabric.Endpoint{Addr: addr, Interface: inside}, nil
}

func (f *Fabric) attach(ctx context.Context, p fabric.Port) (netip.Addr, error) {
	if err := context.Cause(ctx); err != nil {
		return netip.Addr{}, err
	}
	if p.NetNS == "" {
		return netip.Addr{}, errors.New("it shares the host's network, which this fabric does not touch; use the fabric loopback")
	}
	if f.closed {
		return netip.Addr{}, errors.New("the fabric is closed")
	}
	if _, has := f.attached[p.Instance]; has {
		return netip.Addr{}, errors.New("it is attached already")
	}
	addr, err := f.next()
	if err != nil {
		return netip.Addr{}, err
	}
	f.number++
	made := port{link: fmt.Sprintf("p%d", f.number), addr: addr}
	if err := f.join(p, made); err != nil {
		return netip.Addr{}, errors.Join(err, f.cut(made.link))
	}
	f.attached[p.Instance], f.last = made, addr
	return addr, nil
}

// next is the address after the last one that is free.
func (f *Fabric) next() (netip.Addr, error) {
	taken := make(map[netip.Addr]bool, len(f.attached))
	for _, p := range f.attached {
		taken[p.addr] = true
	}
	addr := f.last
	for range 1 << (32 - network.Bits()) {
		addr = addr.Next()
		if !network.Contains(addr.Next()) { // the last one is for broadcast
			addr = network.Addr()
			continue
		}
		if !taken[addr] {
			return addr, nil
		}
	}
	return addr, fmt.Errorf("all addresses of %s are taken", network)
}

// join makes the pair, one end at the bridge, the other in the namespace from
// the first, and sets it up.
func (f *Fabric) join(p fabric.Port, made port) error {
	fd, err := unix.Open(p.NetNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", p.NetNS, err)
	}
	defer unix.Close(fd)
	veth := netlink.NewVeth(netlink.LinkAttrs{
		Name: made.link, Alias: p.Instance, MTU: mtu, TxQLen: -1, MasterIndex: f.bridge, Flags: net.FlagUp,
	})
	veth.PeerName, veth.PeerMTU, veth.PeerNamespace = inside, mtu, netlink.NsFd(fd)
	if err := f.links.LinkAdd(veth); err != nil {
		if errors.Is(err, unix.EEXIST) {
			err = fmt.Errorf("%w: it has an interface %s already", err, inside)
		}
		return fmt.Errorf("making a pair of interfaces: %w", err)
	}
	return netns.Do(p.NetNS, func() error { return configure(made.addr) })
}

// configure sets the instance's end up, in its namespace.
func configure(addr netip.Addr) error {
	if err := sysctl("net/ipv6/conf/"+inside+"/disable_ipv6", "1"); err != nil {
		return err
	}
	link, err := netlink.LinkByName(inside)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", inside, err)
	}
	err = netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{
		IP: addr.AsSlice(), Mask: net.CIDRMask(network.Bits(), 32),
	}})
	if err != nil {
		return fmt.Errorf("giving %s the address %s: %w", inside, addr, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing %s up: %w", inside, err)
	}
	return nil
}

// cut removes a pair of interfaces. One that has gone with the instance's
// namespace is no error.
func (f *Fabric) cut(name string) error {
	link, err := f.links.LinkByName(name)
	if err == nil {
		err = f.links.LinkDel(link)
	}
	var gone netlink.LinkNotFoundError
	if err == nil || errors.As(err, &gone) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("removing interface %s: %w", name, err)
}

// Detach removes the instance's interface.
func (f *Fabric) Detach(_ context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, has := f.attached[instance]
	if !has {
		return nil
	}
	if err := f.cut(p.link); err != nil {
		return fmt.Errorf("detaching %s from the bridge fabric: %w", instance, err)
	}
	delete(f.attached, instance)
	return nil
}

// Close removes all interfaces, at once: the kernel would do so with the
// namespace, but later. Then it removes the namespace.
func (f *Fabric) Close(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	for instance, p := range f.attached {
		if err := f.cut(p.link); err != nil {
			return fmt.Errorf("closing the bridge fabric: %w", err)
		}
		delete(f.attached, instance)
	}
	if f.links != nil {
		f.links.Close()
		f.links = nil
	}
	if err := netns.Delete(f.name); err != nil {
		return fmt.Errorf("closing the bridge fabric: %w", err)
	}
	f.closed = true
	return nil
}

// unsupported turns what the kernel has not, or does not let us, into what
// this host cannot do.
func unsupported(err error) error {
	switch {
	case vitrine.IsUnsupported(err):
	case errors.Is(err, unix.EPERM):
		return &vitrine.Unsupported{What: "the bridge fabric", Missing: "the privilege (CAP_NET_ADMIN): " + err.Error(), Do: "run as root, or use the fabric loopback"}
	case errors.Is(err, unix.EOPNOTSUPP):
		return &vitrine.Unsupported{What: "the bridge fabric", Missing: "a kernel option (CONFIG_BRIDGE, CONFIG_VETH): " + err.Error(), Do: "modprobe bridge veth, or use the fabric loopback"}
	}
	return err
}
