// Package host wires instances that share the host's network. The interface
// stays with the host, and each instance has an address of its own on it. On
// lo, the default, the fabric is loopback: instances get addresses of
// 127.0.0.0/8. On another interface instances get addresses that it already
// has, which needs no privilege. Or they get addresses that are added to it and
// removed at the end.
package host

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
	"vitrine/fabric/loopback"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// Config is the part servers.host of a deployment.
type Config struct {
	Run *runstate.Run `yaml:"-" json:"-"` // the run whose instances are wired

	// Interface is an interface of the host; the default is lo.
	Interface string `yaml:"interface,omitempty" json:"interface,omitempty"`
	// First is an address and the prefix length of its network: 192.0.2.16/24.
	// Instances get addresses from this one on, which are added to the interface.
	// Nobody else in that network may have them. Without First, instances get the
	// addresses that the interface already has.
	First string `yaml:"first,omitempty" json:"first,omitempty"`
}

func kind() segment.Kind { return segment.Kind{Name: "host", Needs: "CONFIG_INET"} }

const loopbackName = "lo"

// New makes the fabric. It looks for the interface in the calling thread's
// network namespace. If the interface is absent, down or part of a bridge, the
// error is a *vitrine.BadInput. Without the privilege to add addresses it is a
// *vitrine.Unsupported.
func New(config Config) (fabric.Fabric, error) {
	switch {
	case config.Interface != "" && config.Interface != loopbackName:
		f, err := open(config)
		if err != nil {
			return nil, err
		}
		return f, nil
	case config.First != "":
		return nil, &vitrine.BadInput{File: "fabric host", Found: "first: " + config.First + " without an interface", Want: "`interface: NAME`; lo has enough addresses"}
	}
	return loopback.New(loopback.Config{Run: config.Run}), nil
}

// A Fabric gives out the addresses of one interface of the host.
type Fabric struct {
	config Config
	claims *segment.Claims
	links  *netlink.Handle // in the host's namespace; nil: closed
	link   netlink.Link
	adder  *adder // nil: addresses are not added

	mu       sync.Mutex
	choice   []netip.Addr // the interface's own addresses, if none are added
	next     int          // index of the address to try next, in choice or from First on
	attached map[string]*place
}

// A place is the address of an instance, and the claim on it.
type place struct {
	addr  netip.Addr
	claim net.Conn
}

var _ fabric.Fabric = (*Fabric)(nil)

func open(config Config) (_ *Fabric, err error) {
	f := &Fabric{config: config, attached: make(map[string]*place)}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("making the host fabric: %w", err), f.release())
		}
	}()
	if f.claims, err = segment.NewClaims(); err != nil {
		return nil, err
	}
	if f.links, err = segment.Host(); err != nil {
		return nil, err
	}
	if f.link, err = segment.Uplink(f.links, config.Run, kind().Name, config.Interface); err != nil {
		return nil, err
	}
	if config.First != "" {
		f.adder, err = newAdder(f.config, f.links, f.link)
		return f, err
	}
	f.choice, err = addressesOf(f.links, f.link)
	return f, err
}

// addressesOf returns the addresses at which others reach the interface. If it
// has none, the error is a *vitrine.BadInput.
func addressesOf(links *netlink.Handle, link netlink.Link) (all []netip.Addr, err error) {
	found, err := segment.List(func() ([]netlink.Addr, error) { return links.AddrList(link, netlink.FAMILY_V4) })
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, a := range found {
		if addr, ok := netip.AddrFromSlice(a.IP.To4()); ok && a.Scope == unix.RT_SCOPE_UNIVERSE {
			all = append(all, addr)
		}
	}
	if len(all) == 0 {
		return nil, &vitrine.BadInput{File: "fabric host", Found: fmt.Sprintf("the interface %s has no IPv4 address", link.Attrs().Name), Want: "an address, or `first: ADDRESS/LENGTH` to add addresses from ADDRESS on"}
	}
	return all, nil
}

// Attach gives the instance an address that no other instance of any run has.
func (f *Fabric) Attach(ctx context.Context, port fabric.Port) (fabric.Endpoint, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.attach(ctx, port)
	if err != nil {
		return fabric.Endpoint{}, fmt.Errorf("attaching %s to the host fabric: %w", port.Instance, err)
	}
	f.attached[port.Instance] = p
	return fabric.Endpoint{Addr: p.addr, Interface: f.config.Interface}, nil
}

func (f *Fabric) attach(ctx context.Context, port fabric.Port) (*place, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if port.NetNS != "" {
		return nil, &vitrine.BadInput{File: "fabric host", Found: fmt.Sprintf("%s has a network namespace, %s", port.Instance, port.NetNS),
			Want: "an instance that shares the host's network; otherwise use the fabric macvlan or macvtap with the parent " + f.config.Interface}
	}
	if f.links == nil {
		return nil, errors.New("the fabric is closed")
	}
	if _, has := f.attached[port.Instance]; has {
		return nil, errors.New("it is already attached")
	}
	for range f.count() {
		p, err := f.take(f.at(f.next))
		f.next = (f.next + 1) % f.count()
		if p != nil || err != nil {
			return p, err
		}
	}
	return nil, &vitrine.BadInput{File: "fabric host", Found: fmt.Sprintf("%s has no free address: instances of this run and others use all %d", f.config.Interface, f.count()),
		Want: "fewer instances, or `first: ADDRESS/LENGTH` to add addresses from ADDRESS on"}
}

// count returns the number of addresses to choose from.
func (f *Fabric) count() int {
	if f.adder != nil {
		return f.adder.count
	}
	return len(f.choice)
}

func (f *Fabric) at(i int) netip.Addr {
	if f.adder != nil {
		return f.adder.at(i)
	}
	return f.choice[i]
}

// take claims an address, and adds it to the interface if this fabric adds
// addresses. It returns nil when the address is already in use.
func (f *Fabric) take(addr netip.Addr) (*place, error) {
	claim, err := f.claims.Take(addr)
	if err != nil || claim == nil {
		return nil, err
	}
	if f.adder == nil {
		return &place{addr, claim}, nil
	}
	added, err := f.adder.add(addr)
	if err != nil || !added {
		return nil, errors.Join(err, claim.Close())
	}
	return &place{addr, claim}, nil
}

// Detach frees the instance's address.
func (f *Fabric) Detach(_ context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.detach(instance)
}

func (f *Fabric) detach(instance string) error {
	p, has := f.attached[instance]
	if !has {
		return nil
	}
	if f.adder != nil {
		if err := f.adder.remove(p.addr); err != nil {
			return fmt.Errorf("detaching %s from the host fabric: %w", instance, err)
		}
	}
	delete(f.attached, instance)
	return p.claim.Close()
}

// Close frees all addresses and leaves the interface as it was.
func (f *Fabric) Close(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.links == nil {
		return nil
	}
	for instance := range f.attached {
		if err := f.detach(instance); err != nil {
			return err
		}
	}
	if f.adder != nil {
		if err := f.adder.close(); err != nil {
			return fmt.Errorf("closing the host fabric: %w", err)
		}
	}
	return f.release()
}

// release closes the claims and the netlink handle, and gives up the interface.
func (f *Fabric) release() error {
	err := f.claims.Close()
	if f.links != nil {
		f.links.Close()
		f.links = nil
		err = errors.Join(err, segment.LeaveUplink(f.config.Run, f.config.Interface))
	}
	return err
}
