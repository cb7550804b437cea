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

// recordKind is the kind of the records of what a run added to the host.
const recordKind = "host"

// routeRecord is the name of the route's record. The record of an address has
// the address as its name.
const routeRecord = "route"

// An adder adds addresses to an interface of the host, and a route to their
// network. It records each address and route before it adds it.
type adder struct {
	run   *runstate.Run
	links *netlink.Handle
	link  netlink.Link
	first netip.Prefix // the first address, and the prefix length of its network
	count int          // number of addresses, from the first on
	route *addition    // nil: none yet
}

// An addition is an address or a route that was added.
type addition struct {
	Interface string       `json:"interface"`
	Prefix    netip.Prefix `json:"prefix"`
	Priority  int          `json:"priority,omitempty"` // of a route; 0: an address
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

// at returns the i-th address after the first.
func (a *adder) at(i int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], number(a.first.Addr())+uint32(i))
	return netip.AddrFrom4(b)
}

// Each run's route has a priority of its own, so that the run removes only its
// own route. These priorities come after those that people choose.
const (
	leastPriority = 1 << 24
	priorities    = 1 << 24
)

// addRoute makes the network reachable by the interface, as an address with the
// network's prefix length would. The addresses themselves get the prefix length
// 32: otherwise the kernel would remove all of them together with the first.
func (a *adder) addRoute() error {
	h := fnv.New32a()
	fmt.Fprint(h, a.run.ID)
	m := &addition{Interface: a.link.Attrs().Name, Prefix: a.first.Masked(), Priority: leastPriority + int(h.Sum32()%priorities)}
	for {
		if err := a.note(routeRecord, m); err != nil {
			return err
		}
		err := a.links.RouteAdd(m.route(a.link))
		if errors.Is(err, unix.EEXIST) { // another run's route has this priority
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

// keepRoute makes the route again if it is gone: the kernel removes it with the
// interface's last address.
func (a *adder) keepRoute() error {
	err := a.links.RouteAdd(a.route.route(a.link))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return explain(err, "making a route to "+a.route.Prefix.String())
	}
	return nil
}

// add adds an address and reports whether it did. It does not add an address
// that the host already has.
func (a *adder) add(addr netip.Addr) (added bool, err error) {
	had, err := segment.List(func() ([]netlink.Addr, error) { return a.links.AddrList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return false, fmt.Errorf("listing the host's addresses: %w", err)
	}
	for _, h := range had {
		if h.IP.Equal(addr.AsSlice()) {
			return false, nil
		}
	}
	m := &addition{Interface: a.link.Attrs().Name, Prefix: netip.PrefixFrom(addr, addr.BitLen())}
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
	if errors.Is(err, unix.EEXIST) { // another process has just added it
		return false, erased
	}
	return false, errors.Join(explain(err, "giving "+m.Interface+" the address "+addr.String()), erased)
}

func (a *adder) note(name string, m *addition) error {
	return a.run.RecordJSON(recordKind, name, m)
}

// remove takes an address off the interface.
func (a *adder) remove(addr netip.Addr) error {
	m := &addition{Interface: a.link.Attrs().Name, Prefix: netip.PrefixFrom(addr, addr.BitLen())}
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

func (m *addition) address() *netlink.Addr { return &netlink.Addr{IPNet: segment.IPNet(m.Prefix)} }

func (m *addition) route(link netlink.Link) *netlink.Route {
	return &netlink.Route{LinkIndex: link.Attrs().Index, Dst: segment.IPNet(m.Prefix), Scope: netlink.SCOPE_LINK, Priority: m.Priority}
}

// remove removes the address or route from the host. If it is already gone,
// that is no error.
func (m *addition) remove(links *netlink.Handle) error {
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

func (m *addition) String() string {
	if m.Priority != 0 {
		return "the route to " + m.Prefix.String() + " by " + m.Interface
	}
	return "the address " + m.Prefix.Addr().String() + " from " + m.Interface
}

// explain turns a refusal by the kernel for lack of privilege into a
// *vitrine.Unsupported.
func explain(err error, action string) error {
	if errors.Is(err, unix.EPERM) {
		return &vitrine.Unsupported{What: "the host fabric: " + action, Missing: "the privilege (CAP_NET_ADMIN)",
			Do: "run as root, or leave out `first`: instances then use the addresses of the interface"}
	}
	return fmt.Errorf("%s: %w", action, err)
}
