package segment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/runstate"
)

// recordKind is that of the records of lent interfaces.
const recordKind = "interface"

// A Lender moves interfaces of the host into instances and puts them back: also
// those of a run that was killed, for each loan is recorded before it is made.
// The host is the network namespace of the thread that calls NewLender.
type Lender struct {
	Links *netlink.Handle // in the host's namespace
	run   *runstate.Run   // nil: nothing is lent, only put back
	here  *os.File        // the host's namespace
}

// A Loan is an interface of the host that is in an instance, and how it was.
type Loan struct {
	Name   string            `json:"name"`
	Mark   string            `json:"mark"`  // its alias while it is lent, which goes with it wherever it goes
	NetNS  string            `json:"netns"` // the instance's
	Alias  string            `json:"alias"`
	MTU    int               `json:"mtu"`
	Cuts   uint32            `json:"cuts"`  // the most segments that it cuts a packet into; 0: not known
	RPS    map[string]string `json:"steer"` // CPUs that do its receive work, by queue: see rps
	Up     bool              `json:"up"`
	Addrs  []netlink.Addr    `json:"addrs"`
	Routes []netlink.Route   `json:"routes"` // without those that come with the addresses
}

// NewLender makes a lender for a run.
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

// Close lets go of the host's namespace; what is lent stays so. Idempotent.
func (l *Lender) Close() error {
	if l.Links == nil {
		return nil
	}
	l.Links.Close()
	l.Links = nil
	return l.here.Close()
}

// Free finds an interface that may be lent. One that is absent, that carries
// the default route, that is part of or below another interface, or that
// instances of a run go out by is a *vitrine.BadInput; so is one that has
// addresses, unless inUse allows that.
func (l *Lender) Free(fabric, name string, inUse bool) (*Loan, error) {
	bad := func(found, want string) (*Loan, error) {
		return nil, &vitrine.BadInput{File: "fabric " + fabric, Found: found, Want: want}
	}
	link, err := find(l.Links, fabric, name)
	if vitrine.IsBadInput(err) {
		if all := l.recorded(recordKind, name); len(all) > 0 {
			return bad(fmt.Sprintf("the interface %s is in use: run %s has it", name, all[0]), "another one, or wait for that run's end; if it was killed, `vitrine clean`")
		}
	}
	if err != nil {
		return nil, err
	}
	for _, run := range l.recorded(uplinkKind, name) {
		if runstate.Alive(l.run.Root, run) {
			return bad(fmt.Sprintf("the interface %s is in use: instances of run %s go out by it", name, run), "another one, or wait for that run's end")
		}
	}
	a := link.Attrs()
	addrs, err := l.Links.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s: %w", name, err)
	}
	routes, err := l.Links.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{LinkIndex: a.Index, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("listing the routes by %s: %w", name, err)
	}
	loan := &Loan{Name: name, Alias: a.Alias, MTU: a.MTU, Cuts: a.GSOMaxSegs, RPS: l.rps(name), Up: a.RawFlags&unix.IFF_UP != 0}
	for _, addr := range addrs {
		if addr.Scope != int(netlink.SCOPE_LINK) { // those come by themselves
			loan.Addrs = append(loan.Addrs, addr)
		}
	}
	for _, route := range routes {
		if ones := maskLength(route); ones == 0 {
			return bad(fmt.Sprintf("the interface %s carries the default route", name), "one that this host can do without")
		}
		if route.Protocol != unix.RTPROT_KERNEL || alone(route, loan.Addrs) {
			loan.Routes = append(loan.Routes, route)
		}
	}
	over, err := l.over(a.Index)
	switch {
	case err != nil:
		return nil, err
	case a.MasterIndex != 0 || over != "":
		return bad(fmt.Sprintf("the interface %s is in use: it is part of a bridge or bond, or has %q over it", name, over), "take it out first")
	case len(loan.Addrs) > 0 && !inUse:
		return bad(fmt.Sprintf("the interface %s is in use: it has the address %s", name, loan.Addrs[0].IPNet), "another one, or `in_use: true`, with which its addresses and routes are put back at the end")
	}
	return loan, nil
}

// recorded are the runs, also dead ones, that have a record of an interface.
func (l *Lender) recorded(kind, name string) (ids []string) {
	records, _ := filepath.Glob(filepath.Join(l.run.Root, "*", kind, name)) // the pattern is one
	for _, record := range records {
		ids = append(ids, filepath.Base(filepath.Dir(filepath.Dir(record))))
	}
	return ids
}

// find finds an interface; one that is absent is a *vitrine.BadInput.
func find(links *netlink.Handle, fabric, name string) (netlink.Link, error) {
	link, err := links.LinkByName(name)
	if IsGone(err) {
		return nil, &vitrine.BadInput{File: "fabric " + fabric, Found: fmt.Sprintf("no interface %q on this host", name), Want: "one that `ip -br link` lists"}
	}
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", name, err)
	}
	return link, nil
}

// maskLength is that of the route's destination: 0 for the default route.
func maskLength(route netlink.Route) int {
	if route.Dst == nil {
		return 0
	}
	ones, _ := route.Dst.Mask.Size()
	return ones
}

// alone says whether a route is to the network of an address that does not bring
// it along.
func alone(route netlink.Route, addrs []netlink.Addr) bool {
	return route.Type == unix.RTN_UNICAST && route.Dst != nil && slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
		return a.Flags&unix.IFA_F_NOPREFIXROUTE != 0 && route.Dst.Contains(a.IP)
	})
}

// over names an interface that is over that of the index: a VLAN, a macvlan.
func (l *Lender) over(index int) (string, error) {
	all, err := l.Links.LinkList()
	if err != nil {
		return "", fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range all {
		if a := link.Attrs(); a.ParentIndex == index && link.Type() != "veth" { // of which it is the peer
			return a.Name, nil
		}
	}
	return "", nil
}

// Lend moves the interface into the instance, where it has its own name and is
// down. It notes so in end. When it fails all is as it was.
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

// backLimit is how long an interface is waited for that the kernel puts back,
// as it does with real ones, once the last of a namespace has gone.
const backLimit = 5 * time.Second

// ErrNowhere says that an interface that was lent is nowhere any more.
var ErrNowhere = errors.New("it is neither in its instance nor on the host: was it removed?")

// PutBack moves the interface back to the host, from wherever it is, and has it
// be as it was. The loan is then forgotten; after an error, of which ErrNowhere is
// one, PutBack can be called again, and cleaning does so.
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

// fetch looks for the interface in the instance, and moves it, and on the host,
// where it gets its name back. It says whether it is there then.
func (l *Lender) fetch(loan *Loan) (back bool, err error) {
	err = In(loan.NetNS, func(links *netlink.Handle) error {
		link, err := loan.named(links)
		if err != nil || link == nil {
			return err
		}
		return links.LinkSetNsFd(link, int(l.here.Fd()))
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("putting the interface %s back: %w", loan.Name, err)
	}
	link, err := loan.named(l.Links)
	if link == nil && err == nil { // killed before it was marked?
		link, _ = l.Links.LinkByName(loan.Name)
	}
	return link != nil, err
}

// named finds the interface by its mark, and gives it its name.
func (loan *Loan) named(links *netlink.Handle) (netlink.Link, error) {
	all, err := links.LinkList()
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

// restore has the interface, which is on the host, be as it was.
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
	failed := l.setRPS(loan.Name, loan.RPS)
	for _, addr := range loan.Addrs {
		if err := l.Links.AddrReplace(link, &addr); err != nil {
			failed = errors.Join(failed, fmt.Errorf("giving %s its address %s again: %w", loan.Name, addr.IPNet, err))
		}
	}
	slices.SortStableFunc(loan.Routes, func(a, b netlink.Route) int { return len(a.Gw) - len(b.Gw) }) // gateways are reached by the others
	for _, route := range loan.Routes {
		route.LinkIndex = link.Attrs().Index
		route.Flags &= unix.RTNH_F_ONLINK // the others say how the route is, and cannot be set
		if err := l.Links.RouteReplace(&route); err != nil {
			failed = errors.Join(failed, fmt.Errorf("making the route %s again: %w", route, err))
		}
	}
	return failed
}

// putBackDead puts an interface back that the run, which is dead, had lent.
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
			return "the record of interface " + name + ", which run " + run + " had: it is nowhere any more", nil
		}
		if err != nil {
			return "", err
		}
		return "interface " + name + " from an instance of run " + run + ": it is the host's again", nil
	}
}
