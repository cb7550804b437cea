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

// Configure names the instance's interface Inside, gives it its address, and
// waits until it and its outer part work.
func (s *Segment) Configure(end *End) error {
	err := In(end.NetNS, func(links *netlink.Handle) error { return configure(links, end) })
	if err == nil && end.Index != 0 && !end.Loose {
		err = Settle(s.outside(end), end.Index)
	}
	return err
}

// configure names the instance's interface Inside and sets it up; links are those
// of its namespace.
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

// settleLimit is how long an interface may take to work that has a carrier. The
// kernel looks at carriers once a second at least.
const settleLimit = 10 * time.Second

// Settle waits until an interface that is up works: the kernel may see to its
// carrier, and so to its place in a bridge, up to a second later, and until then
// frames are lost. From Linux 6.7 on, asking is enough to have it done.
func Settle(links *netlink.Handle, index int) error {
	deadline := time.Now().Add(settleLimit)
	for {
		link, err := links.LinkByIndex(index)
		switch {
		case err != nil:
			return fmt.Errorf("waiting for an interface to work: %w", err)
		case link.Attrs().OperState == netlink.OperUp, link.Attrs().OperState == netlink.OperUnknown:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s has no carrier after %v: its state is %s", link.Attrs().Name, settleLimit, link.Attrs().OperState)
		}
		time.Sleep(time.Millisecond)
	}
}

// SettleInside is Settle for the interface of an instance that is attached.
func SettleInside(end *End) error {
	return In(end.NetNS, func(links *netlink.Handle) error {
		link, err := links.LinkByName(Inside)
		if err != nil {
			return fmt.Errorf("looking for %s of %s: %w", Inside, end.Instance, err)
		}
		return Settle(links, link.Attrs().Index)
	})
}

// OpenHere opens the network namespace that the calling thread is in.
func OpenHere() (*os.File, error) {
	here, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("opening a network namespace: %w", err)
	}
	return here, nil
}

// Host opens the links of the namespace that the calling thread is in.
func Host() (*netlink.Handle, error) { return netlink.NewHandle(unix.NETLINK_ROUTE) }

// In calls f with the links of a network namespace, on a thread that is in it.
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

// IsGone says whether an error is that an interface is not there.
func IsGone(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV)
}

// IPNet is an address and the length of its network's prefix, for netlink.
func IPNet(addr netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: addr.Addr().AsSlice(), Mask: net.CIDRMask(addr.Bits(), addr.Addr().BitLen())}
}

// Bridge makes a bridge in the segment's namespace, up, and gives its index.
func (s *Segment) Bridge(name string) (int, error) { return s.BridgeAt(s.Links, name) }

// BridgeAt is Bridge in the namespace of links.
func (s *Segment) BridgeAt(links *netlink.Handle, name string) (int, error) {
	snooping := false // of multicast: it is about hosts that are not here
	br := &netlink.Bridge{
		LinkAttrs:         netlink.LinkAttrs{Name: name, MTU: s.MTU, TxQLen: -1, Flags: net.FlagUp},
		MulticastSnooping: &snooping,
	}
	if err := links.LinkAdd(br); err != nil {
		return 0, fmt.Errorf("making a bridge: %w", err)
	}
	return br.Index, nil
}

// pairs is the group of the outer parts of pairs, in the segment's namespace.
const pairs = 1

// Pair makes a pair of interfaces, one end outside under the name of the outer
// part, up and with the given master (0: none), the other in the instance's
// namespace from the first. It notes the outer part's index.
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

// Hand moves the outer part of a pair into another instance: the two are then
// joined by the pair.
func (s *Segment) Hand(from, to *End) error {
	outer := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: from.Index}}
	if err := s.Links.LinkSetNsFd(outer, to.NS); err != nil {
		return fmt.Errorf("moving interface %s into %s: %w", from.Outer, to.Instance, err)
	}
	to.Inner, from.Index = from.Outer, 0
	return nil
}

// Again joins an instance that is attached anew, by join, at its address.
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

// Cable makes a pair of interfaces of which both ends are in the segment's
// namespace, up: the outer part, with the given master (0: none), and another,
// whose index it gives.
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

// outside is where the outer part of an end is.
func (s *Segment) outside(end *End) *netlink.Handle {
	if end.Links != nil {
		return end.Links
	}
	return s.Links
}

// Unpair removes a pair of interfaces by its outer part.
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

// unpairAll removes all pairs whose outer parts are in the segment's namespace, in
// one call: the kernel waits for each removal, some 20 ms for one and for all.
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
	if errors.Is(err, fs.ErrNotExist) { // a Close that failed had the namespace's name removed: one by one, then
		return nil
	}
	if err != nil && !errors.Is(err, unix.ENODEV) { // all went with their instances
		return fmt.Errorf("removing the interfaces of %d instances: %w", len(there), err)
	}
	for _, end := range there {
		end.Index = 0
	}
	return nil
}

// remove removes an interface. One that has gone is no error.
func remove(links *netlink.Handle, index int) error {
	err := links.LinkDel(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}})
	if IsGone(err) {
		return nil
	}
	return err
}

// RemoveByName removes an interface of the segment's namespace. One that has
// gone is no error.
func (s *Segment) RemoveByName(name string) error {
	link, err := s.Links.LinkByName(name)
	if IsGone(err) {
		return nil
	}
	if err == nil {
		err = remove(s.Links, link.Attrs().Index)
	}
	if err != nil {
		return fmt.Errorf("removing interface %s: %w", name, err)
	}
	return nil
}

// RemoveInside removes the instance's interface from its namespace, for
// fabrics whose interfaces have no part outside. What has gone is no error.
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

// Quiet keeps the calling thread's namespace to what is asked of it: no IPv6
// on its interfaces, whose discovery is traffic that nobody offered, and no
// packet filter between instances.
func Quiet() error {
	for _, key := range []string{"net/ipv6/conf/all/disable_ipv6", "net/ipv6/conf/default/disable_ipv6"} {
		if err := Sysctl(key, "1"); err != nil {
			return err
		}
	}
	return Sysctl("net/bridge/bridge-nf-call-iptables", "0")
}

// Sysctl sets a kernel parameter of the calling thread's namespace. One that the
// kernel does not have need not be set; where they cannot be written, as in some
// containers, things work all the same.
func Sysctl(key, value string) error {
	err := os.WriteFile(filepath.Join("/proc/sys", key), []byte(value), 0)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EROFS) {
		return nil
	}
	return fmt.Errorf("setting %s: %w", key, err)
}
