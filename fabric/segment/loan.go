package segment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/runstate"
)

// recordKind is the kind of the records of lent interfaces.
const recordKind = "interface"

// A Lender moves interfaces of the host into instances and puts them back. It
// records each loan before it makes it, so that cleaning can put back the
// interfaces of a killed run. The host is the network namespace of the thread
// that calls NewLender.
type Lender struct {
	Links *netlink.Handle // in the host's namespace
	run   *runstate.Run   // nil: the lender only puts back
	here  *os.File        // the host's namespace
}

// A Loan is an interface of the host that is in an instance, and its former
// settings.
type Loan struct {
	Name   string            `json:"name"`
	Mark   string            `json:"mark"`  // its alias while it is lent, which it keeps in every namespace
	NetNS  string            `json:"netns"` // path of the instance's
	Alias  string            `json:"alias"`
	MTU    int               `json:"mtu"`
	Cuts   uint32            `json:"cuts"`   // limit on the segments of a packet (GSO); 0: not known
	Merges [2]uint32         `json:"merges"` // limits on merged packets (GRO), in bytes: of all but IPv4, and of IPv4; 0: not known
	RPS    map[string]string `json:"steer"`  // CPUs that do its receive work, by queue: see rps
	Up     bool              `json:"up"`
	Addrs  []netlink.Addr    `json:"addrs"`
	Routes []netlink.Route   `json:"routes"` // without those that the kernel adds with the addresses
}

// NewLender makes a lender for a run. Without a run it only puts interfaces
// back.
func NewLender(run *runstate.Run) (*Lender, error) {
	here, err := OpenHere()
	if err != nil {
		return nil, err
	}
	links, err := Host()
	if err != nil {
		return nil, errors.Join(err, here.Close())
	}
	return &Lender{Links: links, run: run, here: here}, nil
}

// Close closes the host's namespace. Lent interfaces stay lent. Idempotent.
func (l *Lender) Close() error {
	if l.Links == nil {
		return nil
	}
	l.Links.Close()
	l.Links = nil
	return l.here.Close()
}

// Free finds an interface that may be lent. The error is a *vitrine.BadInput if
// the interface is absent, carries a route for which the host must keep it, is
// part of or below another interface, or if instances of a run go out by it. The
// same holds for an interface with addresses if inUse is false. Link-local
// addresses of IPv6 do not count, because unused interfaces have them too.
func (l *Lender) Free(fabric, name string, inUse bool) (*Loan, error) {
	bad := func(found, want string) (*Loan, error) {
		return nil, &vitrine.BadInput{File: "fabric " + fabric, Found: found, Want: want}
	}
	link, err := find(l.Links, fabric, name)
	if vitrine.IsBadInput(err) {
		if all := runsWithRecord(l.run.Root, recordKind, name); len(all) > 0 {
			return bad(fmt.Sprintf("the interface %s is in use: run %s has it", name, all[0]), "another interface, or wait until that run ends; if it was killed, run `vitrine clean`")
		}
	}
	if err != nil {
		return nil, err
	}
	for _, run := range runsWithRecord(l.run.Root, uplinkKind, name) {
		if runstate.Alive(l.run.Root, run) {
			return bad(fmt.Sprintf("the interface %s is in use: instances of run %s go out by it", name, run), "another interface, or wait until that run ends")
		}
	}
	a := link.Attrs()
	loan := &Loan{
		Name: name, Alias: a.Alias, MTU: a.MTU, Cuts: a.GSOMaxSegs, Merges: [2]uint32{a.GROMaxSize, a.GROIPv4MaxSize},
		RPS: l.rps(name), Up: a.RawFlags&unix.IFF_UP != 0,
	}
	if loan.Addrs, err = l.addresses(link); err != nil {
		return nil, err
	}
	var keeps string
	if loan.Routes, keeps, err = l.routes(a.Index, loan.Addrs); err != nil {
		return nil, err
	}
	over, err := l.over(a.Index)
	used := slices.IndexFunc(loan.Addrs, func(addr netlink.Addr) bool { return !isLinkLocal6(addr.IP) })
	switch {
	case err != nil:
		return nil, err
	case keeps != "":
		return bad(fmt.Sprintf("the interface %s carries %s", name, keeps), "an interface that this host does not need")
	case a.MasterIndex != 0 || over != "":
		return bad(fmt.Sprintf("the interface %s is in use: it is part of a bridge or bond, or has %q over it", name, over), "take it out first")
	case used >= 0 && !inUse:
		return bad(fmt.Sprintf("the interface %s is in use: it has the address %s", name, loan.Addrs[used].IPNet), "another interface, or `in_use: true`; its addresses and routes are then put back at the end")
	}
	return loan, nil
}

// addresses returns the addresses to put back with an interface: all but the one
// that the kernel adds itself.
func (l *Lender) addresses(link netlink.Link) ([]netlink.Addr, error) {
	a := link.Attrs()
	all, err := List(func() ([]netlink.Addr, error) { return l.Links.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", a.Name, err)
	}
	return slices.DeleteFunc(all, func(addr netlink.Addr) bool { return isFromMAC(addr.IP, a.HardwareAddr) }), nil
}

func isLinkLocal6(ip net.IP) bool { return ip.To4() == nil && ip.IsLinkLocalUnicast() }

// isFromMAC reports whether an address is the link-local one that the kernel
// makes from the MAC address when the interface comes up (RFC 4291, appendix A).
func isFromMAC(ip net.IP, mac net.HardwareAddr) bool {
	return len(mac) == 6 && isLinkLocal6(ip) &&
		bytes.Equal(ip[8:], []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// routes returns the routes to put back with an interface that has the index and
// the addresses. keeps describes a route for which the host must keep the
// interface; empty: there is none.
func (l *Lender) routes(index int, addrs []netlink.Addr) (back []netlink.Route, keeps string, err error) {
	all, err := List(func() ([]netlink.Route, error) {
		return l.Links.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, "", fmt.Errorf("listing routes: %w", err)
	}
	for _, route := range all {
		switch {
		// A route with several next hops has no LinkIndex.
		case slices.ContainsFunc(route.MultiPath, func(hop *netlink.NexthopInfo) bool { return hop.LinkIndex == index }):
			return nil, "a route with several next hops", nil
		case route.LinkIndex != index:
		case maskLength(route) == 0:
			return nil, "the default route", nil
		case route.Via != nil || route.Encap != nil || route.NewDst != nil: // cannot be read from the record of a killed run
			return nil, "a route with an encapsulation or with a next hop of another family", nil
		case route.Protocol != unix.RTPROT_KERNEL || isSeparateRoute(route, addrs):
			back = append(back, route)
		}
	}
	return back, "", nil
}

// runsWithRecord returns the runs, alive or dead, that have a record of an
// interface.
func runsWithRecord(root, kind, name string) (ids []string) {
	records, _ := filepath.Glob(filepath.Join(root, "*", kind, name)) // the only error is a bad pattern
	for _, record := range records {
		ids = append(ids, filepath.Base(filepath.Dir(filepath.Dir(record))))
	}
	return ids
}

// find finds an interface. If it is absent, or the name is an alternative one
// (ip-link(8), altname), the error is a *vitrine.BadInput. Records and sysfs have
// an interface's own name. An interface cannot be renamed to its alternative
// name, so PutBack would fail.
func find(links *netlink.Handle, fabric, name string) (netlink.Link, error) {
	link, err := links.LinkByName(name)
	if IsGone(err) {
		return nil, &vitrine.BadInput{File: "fabric " + fabric, Found: fmt.Sprintf("no interface %q on this host", name), Want: "one that `ip -br link` lists"}
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", name, err)
	}
	if own := link.Attrs().Name; own != name {
		return nil, &vitrine.BadInput{File: "fabric " + fabric, Found: fmt.Sprintf("%s is another name of the interface %s", name, own), Want: own}
	}
	return link, nil
}

// maskLength returns the prefix length of the route's destination: 0 for the
// default route.
func maskLength(route netlink.Route) int {
	if route.Dst == nil {
		return 0
	}
	ones, _ := route.Dst.Mask.Size()
	return ones
}

// isSeparateRoute reports whether a route leads to the network of an address
// that does not bring this route along (IFA_F_NOPREFIXROUTE).
func isSeparateRoute(route netlink.Route, addrs []netlink.Addr) bool {
	return route.Type == unix.RTN_UNICAST && route.Dst != nil && slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		return a.Flags&unix.IFA_F_NOPREFIXROUTE != 0 && route.Dst.Contains(a.IP)
	})
}

// over returns the name of an interface of the host, such as a VLAN or a macvlan,
// that is over the interface with the index. It cannot see interfaces in other
// namespaces.
func (l *Lender) over(index int) (string, error) {
	all, err := List(l.Links.LinkList)
	if err != nil {
		return "", fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range all {
		if a := link.Attrs(); a.ParentIndex == index && link.Type() != "veth" { // a veth's parent is its peer
			return a.Name, nil
		}
	}
	return "", nil
}

// Lend moves the interface into the instance, where it keeps its name and is
// down. Lend sets end.Inner and end.Loose. When it fails, everything is as
// before.
func (l *Lender) Lend(s *Segment, loan *Loan, end *End) error {
	link, err := find(l.Links, s.Name, loan.Name)
	if err != nil {
		return err
	}
	loan.Mark, loan.NetNS = "vitrine "+l.run.ID+" "+loan.Name, end.NetNS
	if err := l.run.RecordJSON(recordKind, loan.Name, loan); err != nil {
		return err
	}
	end.Inner, end.Loose = loan.Name, true
	for _, step := range []func() error{
		func() error { return l.Links.LinkSetAlias(link, loan.Mark) },
		func() error { return l.Links.LinkSetDown(link) },
		func() error { return l.Links.LinkSetMTU(link, s.MTU) },
		func() error { return l.Links.LinkSetNsFd(link, end.NS) },
	} {
		if err := step(); err != nil {
			err = fmt.Errorf("moving the interface %s into %s: %w", loan.Name, end.Instance, err)
			return errors.Join(err, l.PutBack(loan))
		}
	}
	return nil
}

// backLimit is how long PutBack waits for the kernel to put an interface back.
// The kernel does so with real interfaces when nothing uses their namespace any
// more.
const backLimit = 5 * time.Second

// ErrNowhere means that a lent interface does not exist any more.
var ErrNowhere = errors.New("it is neither in the instance nor on the host; it may have been removed")

// PutBack moves the interface from wherever it is back to the host and restores
// its settings. Then it erases the record of the loan. After an error,
// including ErrNowhere, PutBack can be called again; cleaning does so.
func (l *Lender) PutBack(loan *Loan) error {
	back, err := l.fetch(loan)
	for deadline := time.Now().Add(backLimit); err == nil && !back && time.Now().Before(deadline); back, err = l.fetch(loan) {
		time.Sleep(10 * time.Millisecond)
	}
	if err == nil && !back {
		err = fmt.Errorf("putting the interface %s back: %w", loan.Name, ErrNowhere)
	}
	if err == nil {
		err = l.restore(loan)
	}
	if err != nil || l.run == nil {
		return err
	}
	return l.run.Erase(recordKind, loan.Name)
}

// fetch moves the interface from the instance to the host, where it gets its
// name back. It reports whether the interface is on the host.
func (l *Lender) fetch(loan *Loan) (back bool, err error) {
	err = In(loan.NetNS, func(links *netlink.Handle) error {
		link, err := loan.findMarked(links)
		if err != nil || link == nil {
			return err
		}
		return links.LinkSetNsFd(link, int(l.here.Fd()))
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("putting the interface %s back: %w", loan.Name, err)
	}
	link, err := loan.findMarked(l.Links)
	if link == nil && err == nil { // the run may have been killed before it marked the interface
		link, _ = l.Links.LinkByName(loan.Name)
	}
	return link != nil, err
}

// findMarked finds the interface by its mark, brings it down and gives it its name
// back. It returns nil if there is no such interface.
func (loan *Loan) findMarked(links *netlink.Handle) (netlink.Link, error) {
	all, err := List(links.LinkList)
	if err != nil {
		return nil, fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range all {
		if link.Attrs().Alias != loan.Mark {
			continue
		}
		if err := links.LinkSetDown(link); err != nil {
			return nil, err
		}
		if link.Attrs().Name == loan.Name {
			return link, nil
		}
		return link, links.LinkSetName(link, loan.Name)
	}
	return nil, nil
}

// restore restores the settings of the interface, which is on the host.
func (l *Lender) restore(loan *Loan) error {
	link, err := l.Links.LinkByName(loan.Name)
	if err == nil {
		err = errors.Join(l.Links.LinkSetMTU(link, loan.MTU), l.Links.LinkSetAlias(link, loan.Alias))
	}
	if err == nil && loan.Cuts > 0 {
		err = l.Links.LinkSetGSOMaxSegs(link, int(loan.Cuts))
	}
	if err == nil && loan.Up {
		err = l.Links.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("setting the interface %s up again: %w", loan.Name, err)
	}
	failed := errors.Join(l.setRPS(loan.Name, loan.RPS), l.restoreMerging(link, loan))
	for _, addr := range loan.Addrs {
		if err := l.Links.AddrReplace(link, &addr); err != nil {
			failed = errors.Join(failed, fmt.Errorf("giving %s its address %s again: %w", loan.Name, addr.IPNet, err))
		}
	}
	slices.SortStableFunc(loan.Routes, func(a, b netlink.Route) int { return len(a.Gw) - len(b.Gw) }) // routes by gateways need the others
	for _, route := range loan.Routes {
		route.LinkIndex = link.Attrs().Index
		route.Flags &= unix.RTNH_F_ONLINK // the other flags show the route's state and cannot be set
		if err := l.Links.RouteReplace(&route); err != nil {
			failed = errors.Join(failed, fmt.Errorf("making the route %s again: %w", route, err))
		}
	}
	return failed
}

// restoreMerging restores the limits on merged packets, which impaired links
// lower. The limit for IPv4 comes last, because the other can change it too.
func (l *Lender) restoreMerging(link netlink.Link, loan *Loan) (err error) {
	if loan.Merges[0] > 0 {
		err = l.Links.LinkSetGROMaxSize(link, int(loan.Merges[0]))
	}
	if err == nil && loan.Merges[1] > 0 {
		err = l.Links.LinkSetGROIPv4MaxSize(link, int(loan.Merges[1]))
	}
	if err != nil {
		return fmt.Errorf("restoring the limits on merged packets of %s: %w", loan.Name, err)
	}
	return nil
}

// putBackDead returns a function that puts back an interface that a dead run
// had lent.
func putBackDead(run string) func(string, []byte) (string, error) {
	return func(name string, record []byte) (string, error) {
		var loan Loan
		if err := json.Unmarshal(record, &loan); err != nil {
			return "", err
		}
		l, err := NewLender(nil)
		if err != nil {
			return "", err
		}
		defer l.Close()
		err = l.PutBack(&loan)
		if errors.Is(err, ErrNowhere) {
			return "the record of interface " + name + " of run " + run + ": the interface no longer exists", nil
		}
		if err != nil {
			return "", err
		}
		return "interface " + name + " from an instance of run " + run + ", and put it back on the host", nil
	}
}
