package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"vitrine/internal/netns"
)

// Configure names the instance's interface Inside and gives it its address.
// Unless end.Loose is set, it waits until the interface and its outer part
// work.
func (s *Segment) Configure(end *End) error {
	err := In(end.NetNS, func(links *netlink.Handle) error { return configure(links, end) })
	if err == nil && end.Index != 0 && !end.Loose {
		err = Settle(s.outside(end), end.Index)
	}
	return err
}

// configure names the instance's interface Inside and brings it up. links are
// the links of the instance's namespace.
func configure(links *netlink.Handle, end *End) error {
	link, err := links.LinkByName(end.Inner)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", end.Inner, err)
	}
	if end.Inner != Inside {
		if err := links.LinkSetName(link, Inside); err != nil {
			return fmt.Errorf("naming %s %s: %w", end.Inner, Inside, err)
		}
		end.Inner = Inside
	}
	if err := Sysctl("net/ipv6/conf/"+Inside+"/disable_ipv6", "1"); err != nil {
		return err
	}
	err = links.AddrAdd(link, &netlink.Addr{IPNet: IPNet(end.Addr)})
	if err != nil {
		return fmt.Errorf("giving %s the address %s: %w", Inside, end.Addr, err)
	}
	if err := links.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing %s up: %w", Inside, err)
	}
	if end.Loose {
		return nil
	}
	return Settle(links, link.Attrs().Index)
}

// settleLimit is how long an interface with a carrier may take to work. The
// kernel looks at carriers at least once a second.
const settleLimit = 10 * time.Second

// errNoCarrier means that an interface that is up did not get a carrier in time.
var errNoCarrier = errors.New("has no carrier")

// Settle waits until an interface that is up works. The kernel may notice its
// carrier up to a second later, and only then lets it forward in a bridge.
// Until then frames are lost. From Linux 6.7 on, the query itself makes the
// kernel look at the carrier.
func Settle(links *netlink.Handle, index int) error { return settle(links, index, settleLimit) }

func settle(links *netlink.Handle, index int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		link, err := links.LinkByIndex(index)
		switch {
		case err != nil:
			return fmt.Errorf("waiting for an interface to work: %w", err)
		case link.Attrs().OperState == netlink.OperUp, link.Attrs().OperState == netlink.OperUnknown:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s %w after %v: its state is %s", link.Attrs().Name, errNoCarrier, limit, link.Attrs().OperState)
		}
		time.Sleep(time.Millisecond)
	}
}

// SettleInside is like Settle, for the interface of an attached instance.
func SettleInside(end *End) error {
	return In(end.NetNS, func(links *netlink.Handle) error {
		link, err := links.LinkByName(Inside)
		if err != nil {
			return fmt.Errorf("looking for %s of %s: %w", Inside, end.Instance, err)
		}
		return Settle(links, link.Attrs().Index)
	})
}

// OpenHere opens the calling thread's network namespace.
func OpenHere() (*os.File, error) {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("opening a network namespace: %w", err)
	}
	return here, nil
}

// Host opens a netlink handle in the calling thread's network namespace.
func Host() (*netlink.Handle, error) { return netlink.NewHandle(unix.NETLINK_ROUTE) }

// In calls f on a thread in a network namespace, with a netlink handle there.
func In(path string, f func(links *netlink.Handle) error) error {
	return netns.Do(path, func() error {
		links, err := Host()
		if err != nil {
			return err
		}
		defer links.Close()
		return f(links)
	})
}

// IsGone reports whether an error means that an interface does not exist.
func IsGone(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV)
}

// listTries bounds how often List lists.
const listTries = 10

// List calls list, which lists objects of the kernel. It calls list again if
// objects were added or removed meanwhile, because the kernel may then leave
// others out (netlink.ErrDumpInterrupted).
func List[T any](list func() ([]T, error)) (all []T, err error) {
	for range listTries {
		if all, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return all, err
}

// IPNet converts an address with its prefix length for netlink.
func IPNet(addr netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: addr.Addr().AsSlice(), Mask: net.CIDRMask(addr.Bits(), addr.Addr().BitLen())}
}

// Bridge makes a bridge in the segment's namespace, brings it up and returns
// its index.
func (s *Segment) Bridge(name string) (int, error) { return s.BridgeAt(s.Links, name) }

// BridgeAt is like Bridge, in the namespace of links.
func (s *Segment) BridgeAt(links *netlink.Handle, name string) (int, error) {
	snooping := false // of multicast: it serves hosts that are not in this segment
	br := &netlink.Bridge{
		LinkAttrs:         netlink.LinkAttrs{Name: name, MTU: s.MTU, TxQLen: -1, Flags: net.FlagUp},
		MulticastSnooping: &snooping,
	}
	if err := links.LinkAdd(br); err != nil {
		return 0, fmt.Errorf("making a bridge: %w", err)
	}
	return br.Index, nil
}

// pairs is the interface group of the outer ends of veth pairs.
const pairs = 1

// Pair makes a veth pair. One end is outside the instance, up, with the name
// end.Outer and the given master (0: none). The other end is made in the
// instance's namespace. Pair sets end.Index to the index of the outer end.
func (s *Segment) Pair(end *End, master int) error {
	veth := netlink.NewVeth(netlink.LinkAttrs{
		Name: end.Outer, Alias: end.Instance, MTU: s.MTU, TxQLen: -1, MasterIndex: master, Flags: net.FlagUp, Group: pairs,
	})
	veth.PeerName, veth.PeerMTU, veth.PeerNamespace = Inside, uint32(s.MTU), netlink.NsFd(end.NS)
	if err := s.outside(end).LinkAdd(veth); err != nil {
		return fmt.Errorf("making a pair of interfaces: %w", err)
	}
	end.Index = veth.Index
	return nil
}

// Hand moves the outer end of a veth pair into another instance, so that the
// pair joins the two.
func (s *Segment) Hand(from, to *End) error {
	outer := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: from.Index}}
	if err := s.Links.LinkSetNsFd(outer, to.NS); err != nil {
		return fmt.Errorf("moving interface %s into %s: %w", from.Outer, to.Instance, err)
	}
	to.Inner, from.Index = from.Outer, 0
	return nil
}

// Again joins an attached instance once more, by join, at the same address.
func (s *Segment) Again(end *End, join func() error) error {
	fd, err := unix.Open(end.NetNS, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", end.NetNS, err)
	}
	defer unix.Close(fd)
	end.NS, end.Inner = fd, Inside
	if err := join(); err != nil {
		return err
	}
	return s.Configure(end)
}

// Cable makes a veth pair with both ends in the segment's namespace, up. One is
// the outer end, with the given master (0: none). Cable returns the index of
// the other.
func (s *Segment) Cable(end *End, master int) (int, error) {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: end.Outer, MTU: s.MTU, TxQLen: -1, MasterIndex: master, Flags: net.FlagUp, Group: pairs})
	veth.PeerName = end.Outer + "i"
	if err := s.Links.LinkAdd(veth); err != nil {
		return 0, fmt.Errorf("making a pair of interfaces: %w", err)
	}
	end.Index = veth.Index
	peer, err := s.Links.LinkByName(veth.PeerName)
	if err == nil {
		err = s.Links.LinkSetUp(peer)
	}
	if err == nil {
		err = errors.Join(Settle(s.Links, end.Index), Settle(s.Links, peer.Attrs().Index))
	}
	if err != nil {
		return 0, errors.Join(fmt.Errorf("bringing %s up: %w", veth.PeerName, err), s.Unpair(end))
	}
	return peer.Attrs().Index, nil
}

// outside returns the links of the namespace that the outer part of an end is
// in.
func (s *Segment) outside(end *End) *netlink.Handle {
	if end.Links != nil {
		return end.Links
	}
	return s.Links
}

// Unpair removes a veth pair by its outer end.
func (s *Segment) Unpair(end *End) error {
	if end.Index == 0 {
		return nil
	}
	if err := remove(s.outside(end), end.Index); err != nil {
		return fmt.Errorf("removing interface %s: %w", end.Outer, err)
	}
	end.Index = 0
	return nil
}

// unpairAll removes all veth pairs whose outer ends are in the segment's
// namespace, by one request. The kernel waits some 20 ms for each request,
// however many interfaces it removes.
func (s *Segment) unpairAll() error {
	var there []*End
	for _, end := range s.attached {
		if end.Index != 0 && end.Links == nil {
			there = append(there, end)
		}
	}
	if len(there) < 2 {
		return nil
	}
	err := netns.Do(s.Path(), func() error {
		request := nl.NewNetlinkRequest(unix.RTM_DELLINK, unix.NLM_F_ACK)
		request.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
		request.AddData(nl.NewRtAttr(unix.IFLA_GROUP, nl.Uint32Attr(pairs)))
		_, err := request.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // a failed Close removed the namespace's name: detach them one by one
		return nil
	}
	if err != nil && !errors.Is(err, unix.ENODEV) { // all are gone with their instances
		return fmt.Errorf("removing the interfaces of %d instances: %w", len(there), err)
	}
	for _, end := range there {
		end.Index = 0
	}
	return nil
}

// remove removes an interface. If it is already gone, that is no error.
func remove(links *netlink.Handle, index int) error {
	err := links.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}})
	if IsGone(err) {
		return nil
	}
	return err
}

// RemoveByName removes an interface. If it is already gone, that is no error.
func RemoveByName(links *netlink.Handle, name string) error {
	link, err := links.LinkByName(name)
	if IsGone(err) {
		return nil
	}
	if err == nil {
		err = remove(links, link.Attrs().Index)
	}
	if err != nil {
		return fmt.Errorf("removing interface %s: %w", name, err)
	}
	return nil
}

// RemoveInside removes the instance's interface from its namespace, for fabrics
// whose interfaces have no outer part. If the interface or the namespace is
// already gone, that is no error.
func RemoveInside(end *End) error {
	err := netns.Do(end.NetNS, func() error {
		link, err := netlink.LinkByName(end.Inner)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		return err
	})
	if IsGone(err) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing %s of %s: %w", end.Inner, end.Instance, err)
	}
	return nil
}

// Quiet keeps unwanted traffic and work out of the calling thread's namespace.
// It turns IPv6 off on all interfaces, because its neighbor discovery is
// traffic that nobody offered. It also turns off the packet filter for bridged
// frames.
func Quiet() error {
	for _, key := range []string{"net/ipv6/conf/all/disable_ipv6", "net/ipv6/conf/default/disable_ipv6"} {
		if err := Sysctl(key, "1"); err != nil {
			return err
		}
	}
	return Sysctl("net/bridge/bridge-nf-call-iptables", "0")
}

// Sysctl sets a kernel parameter in the calling thread's namespace. It ignores
// a parameter that the kernel does not have. It also ignores a read-only
// /proc/sys, as in some containers, because fabrics work without the setting.
func Sysctl(key, value string) error {
	err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return fmt.Errorf("setting %s: %w", key, err)
}
