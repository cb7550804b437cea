package machine

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/netns"
)

// A Link connects a machine to a fabric. The fabric gave the namespace an interface; the
// machine takes over its MAC address, IP address and MTU. The kernel's redirection (tc,
// mirred) forwards frames between that interface and the machine's tap, as in Kata
// Containers' network model "tcfilter". QEMU opens a macvtap interface directly.
type Link struct {
	MAC     net.HardwareAddr // the machine's own
	MTU     int              // bytes
	Address netip.Prefix     // the machine's; invalid: the interface had none
	Routes  []Route          // besides the route to the prefix
	Tap     string           // interface in the namespace that QEMU opens; empty: QEMU opens the macvtap
	Device  string           // file of the macvtap; empty: not a macvtap
}

// A Route is a route of a machine.
type Route struct {
	To  netip.Prefix `json:"to"`
	Via netip.Addr   `json:"via"` // invalid: no gateway, all addresses are on-link
}

const tapName = "tap0"

// Wire takes over the interface segment.Inside in the namespace for a machine. It returns nil
// if there is no such interface. Call it once in a namespace's life, because a restarted
// machine uses the same Link. Wire makes the device file of a macvtap in dir.
func Wire(namespace, dir string) (*Link, error) {
	var l *Link
	err := netns.Do(namespace, func() (err error) {
		l, err = wire(dir)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("wiring a machine to %s: %w", segment.Inside, err)
	}
	return l, nil
}

func wire(dir string) (*Link, error) {
	links, err := segment.Host()
	if err != nil {
		return nil, err
	}
	defer links.Close()
	outer, err := links.LinkByName(segment.Inside)
	if segment.IsGone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	attrs := outer.Attrs()
	l := &Link{MAC: attrs.HardwareAddr, MTU: attrs.MTU}
	if err := l.take(links, outer); err != nil {
		return nil, err
	}
	if outer.Type() == "macvtap" {
		return l, l.device(attrs.Index, dir)
	}
	return l, l.tap(links, outer)
}

// take reads the interface's routes and addresses, and removes the addresses. It refuses
// ipvlan, which receives no unicast without its addresses.
func (l *Link) take(links *netlink.Handle, outer netlink.Link) error {
	if outer.Type() == "ipvlan" {
		return &vitrine.Unsupported{
			What: "a machine on the fabric ipvlan", Missing: "delivery of frames to an interface whose IP address the machine has taken over",
			Do: "use the fabric macvlan or bridge",
		}
	}
	routes, err := links.RouteList(outer, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("reading routes: %w", err)
	}
	for _, r := range routes {
		if r.Protocol == unix.RTPROT_KERNEL {
			continue // the prefix's own route comes with the address
		}
		to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if r.Dst != nil {
			to = prefix(r.Dst)
		}
		via, _ := netip.AddrFromSlice(r.Gw.To4())
		l.Routes = append(l.Routes, Route{To: to, Via: via})
	}
	addrs, err := links.AddrList(outer, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("reading addresses: %w", err)
	}
	for i, a := range addrs {
		if i == 0 {
			l.Address = prefix(a.IPNet)
		}
		if err := links.AddrDel(outer, &netlink.Addr{IPNet: a.IPNet}); err != nil {
			return fmt.Errorf("removing the address: %w", err)
		}
	}
	return nil
}

func prefix(n *net.IPNet) netip.Prefix {
	addr, _ := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), ones)
}

// tap makes the interface that QEMU opens, and connects it with outer.
func (l *Link) tap(links *netlink.Handle, outer netlink.Link) error {
	if err := segment.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil {
		return err
	}
	tap := &netlink.Tuntap{
		LinkAttrs: netlink.LinkAttrs{Name: tapName, MTU: l.MTU, TxQLen: 1000},
		Mode:      netlink.TUNTAP_MODE_TAP,
		Flags:     netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_ONE_QUEUE,
	}
	if err := links.LinkAdd(tap); err != nil {
		return fmt.Errorf("making a tap: %w", err)
	}
	inner, err := links.LinkByName(tapName)
	if err != nil {
		return err
	}
	if err := links.LinkSetMTU(inner, l.MTU); err != nil {
		return fmt.Errorf("setting the tap's MTU: %w", err)
	}
	if err := errors.Join(links.LinkSetUp(inner), links.LinkSetUp(outer)); err != nil {
		return err
	}
	l.Tap = tapName
	return errors.Join(segment.Redirect(links, outer, inner), segment.Redirect(links, inner, outer))
}

// device makes the device file of a macvtap. The kernel makes it only for interfaces in
// the host's own namespace.
func (l *Link) device(index int, dir string) error {
	var numbers []byte
	err := netns.Sysfs(func(sysfs string) (err error) {
		numbers, err = os.ReadFile(filepath.Join(sysfs, fmt.Sprintf("class/net/%s/macvtap/tap%d/dev", segment.Inside, index)))
		return err
	})
	if err != nil {
		return fmt.Errorf("finding the device of a macvtap: %w", err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(numbers), "%d:%d", &major, &minor); err != nil {
		return fmt.Errorf("parsing the device number of a macvtap, %q: %w", numbers, err)
	}
	l.Device = filepath.Join(dir, "macvtap")
	if err := os.Remove(l.Device); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(l.Device, unix.S_IFCHR|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return fmt.Errorf("making the device of a macvtap: %w", err)
	}
	return nil
}
