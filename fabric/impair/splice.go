package impair

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
)

// A splice is a cut in an instance's link. The fabric's interface is in the
// emulators' namespace, under the name outer. In its place the instance has one
// end of a veth pair, whose other end, inner, is in the emulators' namespace.
type splice struct {
	run          string
	middle       string // path of the emulators' namespace
	netns        string // path of the instance's namespace
	name         string // of the interface in the instance: "eth0"
	outer, inner string
	was          *settings // the fabric's interface before the cut; nil: not read yet
	moved        bool      // the fabric's interface is in the emulators' namespace
}

// settings are those of an interface in its namespace.
type settings struct {
	attrs  netlink.LinkAttrs
	addrs  []netlink.Addr
	routes []netlink.Route // without those that the kernel made itself
	quiet  string          // disable_ipv6, as the kernel writes it
}

// cut makes the splice. If it fails, undo removes what it made.
func (s *splice) cut() error {
	err := netns.Do(s.netns, func() (err error) {
		if s.was, err = readSettings(s.name); err != nil {
			return err
		}
		return keepApart(s.name)
	})
	if err != nil {
		return err
	}
	middle, err := unix.Open(s.middle, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the emulators' network namespace: %w", err)
	}
	defer unix.Close(middle)
	err = netns.Do(s.netns, func() error { return move(s.name, s.outer, middle) })
	if err != nil {
		return err
	}
	s.moved = true
	place, err := unix.Open(s.netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening the instance's network namespace: %w", err)
	}
	defer unix.Close(place)
	if err := netns.Do(s.middle, func() error { return s.pair(place) }); err != nil {
		return err
	}
	err = netns.Do(s.netns, func() error { return s.was.apply(s.name) })
	if err == nil {
		err = settle(s.netns, s.name)
	}
	if err == nil {
		err = settle(s.middle, s.inner)
	}
	if err == nil && !isLent(s.run, s.was.attrs.Alias) { // a lent interface may have no carrier yet
		err = settle(s.middle, s.outer)
	}
	return err
}

// settle waits until an interface of a namespace works.
func settle(namespace, name string) error {
	return segment.In(namespace, func(links *netlink.Handle) error {
		link, err := links.LinkByName(name)
		if err == nil {
			err = segment.Settle(links, link.Attrs().Index)
		}
		if err != nil {
			return fmt.Errorf("waiting for %s: %w", name, err)
		}
		return nil
	})
}

// readSettings returns the settings of an interface of the thread's namespace.
func readSettings(name string) (*settings, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("looking for the instance's %s: %w", name, err)
	}
	if err := canCut(link); err != nil {
		return nil, err
	}
	f := &settings{attrs: *link.Attrs()}
	if f.addrs, err = netlink.AddrList(link, netlink.FAMILY_V4); err != nil {
		return nil, fmt.Errorf("reading the addresses of %s: %w", name, err)
	}
	routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
	if err != nil {
		return nil, fmt.Errorf("reading the routes of %s: %w", name, err)
	}
	for _, r := range routes {
		if r.Protocol != unix.RTPROT_KERNEL {
			f.routes = append(f.routes, r)
		}
	}
	quiet, err := os.ReadFile(quietKey(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f.quiet = strings.TrimSpace(string(quiet))
	return f, nil
}

// canCut returns a *vitrine.Unsupported if the interface would receive nothing
// in the emulators' namespace.
func canCut(link netlink.Link) error {
	switch {
	case link.Type() == "ipvlan":
		return &vitrine.Unsupported{
			What: "impaired links of the fabric ipvlan", Missing: "delivery of frames to an interface that lost its IP address when it was moved",
			Do: "use the fabric macvlan or bridge",
		}
	case link.Attrs().RawFlags&unix.IFF_NOARP != 0:
		return &vitrine.Unsupported{What: "impaired links of a fabric without ARP", Missing: "link-layer addresses of " + link.Attrs().Name, Do: "use another fabric"}
	}
	return nil
}

func quietKey(name string) string {
	return filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
}

// move moves an interface of the thread's namespace to another namespace, under
// another name.
func move(name, as string, to int) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", name, err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("taking %s down: %w", name, err)
	}
	if err := netlink.LinkSetName(link, as); err != nil {
		return fmt.Errorf("renaming %s to %s: %w", name, as, err)
	}
	if err := netlink.LinkSetNsFd(link, to); err != nil {
		return fmt.Errorf("moving %s to another network namespace: %w", as, err)
	}
	return nil
}

// pair makes the veth pair and brings up the interfaces in the emulators'
// namespace.
func (s *splice) pair(place int) error {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: s.inner, MTU: s.was.attrs.MTU, TxQLen: -1})
	veth.PeerName, veth.PeerNamespace = s.name, netlink.NsFd(place)
	veth.PeerMTU, veth.PeerHardwareAddr = uint32(s.was.attrs.MTU), s.was.attrs.HardwareAddr
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("making a pair of interfaces: %w", err)
	}
	for _, name := range []string{s.outer, s.inner} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("bringing %s up: %w", name, err)
		}
	}
	return nil
}

// apply applies the settings to an interface of the thread's namespace.
func (f *settings) apply(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for the new %s: %w", name, err)
	}
	if f.quiet != "" {
		if err := os.WriteFile(quietKey(name), []byte(f.quiet), 0); err != nil && !errors.Is(err, unix.EROFS) {
			return fmt.Errorf("setting IPv6 of %s: %w", name, err)
		}
	}
	for _, a := range f.addrs {
		err := netlink.AddrAdd(link, &netlink.Addr{IPNet: a.IPNet, Broadcast: a.Broadcast, Scope: a.Scope})
		if err != nil {
			return fmt.Errorf("giving %s the address %s: %w", name, a.IPNet, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing the new %s up: %w", name, err)
	}
	for _, r := range f.routes {
		r.LinkIndex = link.Attrs().Index
		if err := netlink.RouteReplace(&r); err != nil {
			return fmt.Errorf("giving %s the route %s: %w", name, r, err)
		}
	}
	return nil
}

// undo removes the veth pair and gives the fabric's interface back to the
// instance, without its addresses, so that the fabric can detach it. If the
// instance's namespace is gone, undo removes the interface, or moves it to the
// host if it is the host's.
func (s *splice) undo() error {
	err := segment.In(s.middle, func(links *netlink.Handle) error { return segment.RemoveByName(links, s.inner) })
	if err != nil || !s.moved {
		return err
	}
	place, err := unix.Open(s.netns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return s.drop()
	}
	if err != nil {
		return fmt.Errorf("opening the instance's network namespace: %w", err)
	}
	defer unix.Close(place)
	err = netns.Do(s.middle, func() error {
		if _, err := netlink.LinkByName(s.outer); segment.IsGone(err) {
			return nil
		}
		return move(s.outer, s.name, place)
	})
	s.moved = err != nil
	return err
}

// drop removes the fabric's interface from the emulators' namespace, or moves
// it to the host if it is lent.
func (s *splice) drop() error {
	here, err := segment.OpenHere()
	if err != nil {
		return err
	}
	defer here.Close()
	return segment.In(s.middle, func(links *netlink.Handle) error {
		link, err := links.LinkByName(s.outer)
		if err == nil && isLent(s.run, link.Attrs().Alias) {
			return giveBack(link, here)
		}
		return segment.RemoveByName(links, s.outer)
	})
}

// isStale reports whether the fabric has removed its interface.
func (s *splice) isStale() (stale bool, err error) {
	err = netns.Do(s.middle, func() error {
		_, err := netlink.LinkByName(s.outer)
		if stale = s.moved && segment.IsGone(err); stale {
			return nil
		}
		return err
	})
	return stale, err
}

// whole limits the packets that an interface of the thread's namespace sends to
// one segment, so that a link sees packets as a line would.
func whole(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for the instance's %s: %w", name, err)
	}
	if err := netlink.LinkSetGSOMaxSegs(link, 1); err != nil {
		return fmt.Errorf("switching segmentation of %s off: %w", name, err)
	}
	return nil
}

// keepApart makes the kernel pass on each packet that an interface of the
// thread's namespace receives, instead of merging several into one (GRO). Before
// Linux 5.17 the kernel ignores the request.
func keepApart(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for the instance's %s: %w", name, err)
	}
	// The limit is the bytes of a merged packet, of IPv4 too. A kernel that wants a
	// higher limit goes on merging.
	err = netlink.LinkSetGROMaxSize(link, 1)
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("switching the merging of packets of %s off: %w", name, err)
	}
	return nil
}
