package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/fabric/segment"
	"vitrine/internal/runstate"
)

// recordKind is that of the records of what was added to the host.
const recordKind = "host"

// routeRecord is the record of the route; those of addresses have their names.
const routeRecord = "route"

// An adder adds addresses to an interface of the host, and a route to the
// network that they are of. Each is recorded before it is made.
type adder struct {
	run   *runstate.Run
	links *netlink.Handle
	link  netlink.Link
	first netip.Prefix // the first address, and its network's length
	count int          // of addresses from the first on
	route *made        // nil: none yet
}

// made is an address or a route that was added.
type made struct {
	Interface string       `json:"interface"`
	Prefix    netip.Prefix `json:"prefix"`
	Priority  int          `json:"priority,omitempty"` // of a route
}

func newAdder(config Config, links *netlink.Handle, link netlink.Link) (*adder, error) {
	first, err := segment.ParseFirst(kind().Name, config.First, "192.0.2.16/24")
	if err != nil {
		return nil, err
	}
	a := &adder{run: config.Run, links: links, link: link, first: first}
	before := number(first.Addr()) - number(first.Masked().Addr())
	a.count = 1<<(32-first.Bits()) - 1 - int(before) // the last one is for broadcast
	return a, a.addRoute()
}

func number(addr netip.Addr) uint32 {
	b := addr.As4()
	return binary.BigEndian.Uint32(b[:])
}

// at is the address so many after the first.
func (a *adder) at(i int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], number(a.first.Addr())+uint32(i))
	return netip.AddrFrom4(b)
}

// Routes of runs have priorities of their own, so that each run removes its
// own, in a range behind those that people choose.
const (
	leastPriority = 1 << 24
	priorities    = 1 << 24
)

// addRoute makes the network reachable by the interface, as it would be with an
// address of that length. The addresses themselves are added alone, of length
// 32: the kernel would remove the others with the first of a network.
func (a *adder) addRoute() error {
	h := fnv.New32a()
	fmt.Fprint(h, a.run.ID)
	m := &made{Interface: a.link.Attrs().Name, Prefix: a.first.Masked(), Priority: leastPriority + int(h.Sum32()%priorities)}
	for {
		if err := a.note(routeRecord, m); err != nil {
			return err
		}
		err := a.links.RouteAdd(m.route(a.link))
		if errors.Is(err, unix.EEXIST) { // another run's
			m.Priority++
			continue
		}
		if err != nil {
			return errors.Join(explain(err, "making a route to "+m.Prefix.String()), a.run.Erase(recordKind, routeRecord))
		}
		a.route = m
		return nil
	}
}

// keepRoute makes the route again where it went with the interface's last
// address.
func (a *adder) keepRoute() error {
	err := a.links.RouteAdd(a.route.route(a.link))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return explain(err, "making a route to "+a.route.Prefix.String())
	}
	return nil
}

// add adds an address, unless the host has it already.
func (a *adder) add(addr netip.Addr) (added bool, err error) {
	had, err := a.links.AddrList(nil, netlink.FAMILY_V4)
	if err != nil {
		return false, fmt.Errorf("listing the host's addresses: %w", err)
	}
	for _, h := range had {
		if h.IP.Equal(addr.AsSlice()) {
			return false, nil
		}
	}
	m := &made{Interface: a.link.Attrs().Name, Prefix: netip.PrefixFrom(addr, addr.BitLen())}
	if err := a.note(addr.String(), m); err != nil {
		return false, err
	}
	err = a.links.AddrAdd(a.link, m.address())
	if err == nil {
		if err := a.keepRoute(); err != nil {
			return false, errors.Join(err, a.remove(addr))
		}
		return true, nil
	}
	erased := a.run.Erase(recordKind, addr.String())
	if errors.Is(err, unix.EEXIST) { // just now
		return false, erased
	}
	return false, errors.Join(explain(err, "giving "+m.Interface+" the address "+addr.String()), erased)
}

func (a *adder) note(name string, m *made) error {
	return a.run.RecordJSON(recordKind, name, m)
}

// remove takes an address off again.
func (a *adder) remove(addr netip.Addr) error {
	m := &made{Interface: a.link.Attrs().Name, Prefix: netip.PrefixFrom(addr, addr.BitLen())}
	if err := m.remove(a.links); err != nil {
		return err
	}
	return a.run.Erase(recordKind, addr.String())
}

// close removes the route.
func (a *adder) close() error {
	if a.route == nil {
		return nil
	}
	if err := a.route.remove(a.links); err != nil {
		return err
	}
	a.route = nil
	return a.run.Erase(recordKind, routeRecord)
}

func (m *made) address() *netlink.Addr { return &netlink.Addr{IPNet: segment.IPNet(m.Prefix)} }

func (m *made) route(link netlink.Link) *netlink.Route {
	return &netlink.Route{LinkIndex: link.Attrs().Index, Dst: segment.IPNet(m.Prefix), Scope: netlink.SCOPE_LINK, Priority: m.Priority}
}

// remove removes it from the host. What is not there any more is no error.
func (m *made) remove(links *netlink.Handle) error {
	link, err := links.LinkByName(m.Interface)
	if segment.IsGone(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking for %s: %w", m.Interface, err)
	}
	if m.Priority != 0 {
		err = links.RouteDel(m.route(link))
	} else {
		err = links.AddrDel(link, m.address())
	}
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing %s: %w", m, err)
	}
	return nil
}

// String says what it is.
func (m *made) String() string {
	if m.Priority != 0 {
		return "the route to " + m.Prefix.String() + " by " + m.Interface
	}
	return "the address " + m.Prefix.Addr().String() + " from " + m.Interface
}

// explain says what is missing when the kernel refuses.
func explain(err error, action string) error {
	if errors.Is(err, unix.EPERM) {
		return &vitrine.Unsupported{What: "the host fabric: " + action, Missing: "the privilege (CAP_NET_ADMIN)",
			Do: "run as root, or leave out `first`: instances then get the addresses that the interface has"}
	}
	return fmt.Errorf("%s: %w", action, err)
}
