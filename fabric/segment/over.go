package segment

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/runstate"
)

// Interfaces that Make makes.
const (
	switchName = "sw0" // the end of the veth pair at the switch; the other end, sw0i, is the parent
	bridgeName = "br0" // the switch
)

// Over is the Wiring of interfaces over a parent, such as macvlan.
type Over struct {
	Parent  string                               // an interface of the host; empty: Make makes one in the segment's namespace
	Hairpin bool                                 // Make connects its parent to a switch that also sends frames back out of the port they came from
	Link    func(netlink.LinkAttrs) netlink.Link // describes an interface over the parent

	links  *netlink.Handle // in the parent's namespace
	host   bool            // links are the host's, and Unmake closes them
	parent int             // index of the parent
	run    *runstate.Run
}

// NewOver makes a segment of interfaces over a parent. It looks for a parent
// that the user named in the calling thread's network namespace. If the parent
// is absent, down or in a bridge, the error is a *vitrine.BadInput, even if the
// kernel lacks the interfaces too.
//
// The kernel reports that it lacks the interfaces only when the first one is
// made, after a run has deployed. So NewOver makes one in a temporary
// namespace.
func NewOver(config Config, over *Over) (*Segment, error) {
	if err := (&Segment{Config: config}).resolve(); err != nil {
		return nil, err
	}
	if err := over.openHost(&config); err != nil {
		return nil, fmt.Errorf("making the %s fabric: %w", config.Name, err)
	}
	if err := Try(config.Kind, &Over{Link: over.Link}); err != nil {
		return nil, errors.Join(fmt.Errorf("making the %s fabric: %w", config.Name, err), over.Unmake(nil))
	}
	s, err := New(config, over)
	if err != nil {
		return nil, errors.Join(err, over.Unmake(nil))
	}
	return s, nil
}

func (o *Over) openHost(config *Config) error {
	if o.Parent == "" {
		return nil
	}
	links, err := Host()
	if err != nil {
		return err
	}
	o.links, o.host, o.run = links, true, config.Run
	parent, err := Uplink(links, o.run, config.Name, o.Parent)
	if err == nil {
		err = config.Fit(parent.Attrs().MTU, o.Parent)
	}
	if err == nil {
		err = o.agree(config.Name, parent.Attrs().Index)
	}
	if err != nil {
		return errors.Join(err, o.Unmake(nil))
	}
	config.Outward = true
	o.parent = parent.Attrs().Index
	return nil
}

// uplinkKind is the kind of the records of interfaces that a run's instances go
// out by.
const uplinkKind = "uplink"

// Uplink finds an interface of the host that instances can go out by. Until
// LeaveUplink nobody can borrow the interface. If it is absent, a loopback,
// down, without a carrier or part of a bridge or bond, the error is a
// *vitrine.BadInput.
func Uplink(links *netlink.Handle, run *runstate.Run, fabric, name string) (netlink.Link, error) {
	return uplink(links, run, fabric, name, settleLimit)
}

// uplink is Uplink. The limit is how long a carrier may take.
func uplink(links *netlink.Handle, run *runstate.Run, fabric, name string, limit time.Duration) (netlink.Link, error) {
	bad := func(found, want string) (netlink.Link, error) {
		return nil, &vitrine.BadInput{File: "fabric " + fabric, Found: found, Want: want}
	}
	link, err := find(links, fabric, name)
	switch {
	case err != nil:
		return nil, err
	case link.Attrs().MasterIndex != 0:
		return bad(fmt.Sprintf("the interface %s is in use: it is part of a bridge or bond", name), "name the bridge or bond, or take it out (ip link set "+name+" nomaster)")
	case link.Attrs().Flags&net.FlagLoopback != 0:
		return bad(fmt.Sprintf("the interface %s leads to no other host", name), "an interface that does")
	case link.Attrs().Flags&net.FlagUp == 0:
		return bad(fmt.Sprintf("the interface %s is down", name), "bring it up (ip link set "+name+" up)")
	}
	err = settle(links, link.Attrs().Index, limit)
	if errors.Is(err, errNoCarrier) {
		return bad(fmt.Sprintf("the interface %s has no carrier", name), "plug its cable in, or name another interface")
	}
	if err != nil {
		return nil, err
	}
	return link, run.Record(uplinkKind, name, nil)
}

// common returns the settings that all interfaces over one parent share, or ""
// if each has its own. The kernel applies those of the latest ipvlan interface
// to all of them (ipvlan_link_new).
func common(link netlink.Link) string {
	var v *netlink.IPVlan
	switch link := link.(type) {
	case *netlink.IPVlan:
		v = link
	case *netlink.IPVtap:
		v = &link.IPVlan
	default:
		return ""
	}
	modes := map[netlink.IPVlanMode]string{netlink.IPVLAN_MODE_L2: "l2", netlink.IPVLAN_MODE_L3: "l3", netlink.IPVLAN_MODE_L3S: "l3s"}
	flags := map[netlink.IPVlanFlag]string{netlink.IPVLAN_FLAG_BRIDGE: "bridge", netlink.IPVLAN_FLAG_PRIVATE: "private", netlink.IPVLAN_FLAG_VEPA: "vepa"}
	return "mode " + modes[v.Mode] + " " + flags[v.Flag]
}

// agree records the common settings of this run's interfaces over the host's
// parent. If interfaces of a live run or of the host have others, the error is a
// *vitrine.BadInput. agree cannot see interfaces in namespaces of others.
func (o *Over) agree(fabric string, parent int) error {
	mine := common(o.Link(netlink.LinkAttrs{}))
	if mine == "" {
		return nil
	}
	// The record comes first: of two runs that begin at the same time, at least
	// one sees the other.
	if err := o.run.Record(uplinkKind, o.Parent, []byte(mine)); err != nil {
		return err
	}
	check := func(who, theirs string) error {
		if theirs == "" || theirs == mine {
			return nil
		}
		return &vitrine.BadInput{File: "fabric " + fabric,
			Found: fmt.Sprintf("the interface %s is in use: %s over it in %s, and the kernel would change that to %s", o.Parent, who, theirs, mine),
			Want:  "another interface, the same mode, or wait until that has ended"}
	}
	for _, id := range runsWithRecord(o.run.Root, uplinkKind, o.Parent) {
		records, err := runstate.Records(o.run.Root, id, uplinkKind)
		if err != nil {
			return err
		}
		if err := check("run "+id+" has interfaces", string(records[o.Parent])); err != nil && runstate.Alive(o.run.Root, id) {
			return err
		}
	}
	all, err := List(o.links.LinkList)
	if err != nil {
		return fmt.Errorf("listing interfaces: %w", err)
	}
	for _, link := range all {
		if a := link.Attrs(); a.ParentIndex == parent {
			if err := check(a.Name+" is", common(link)); err != nil {
				return err
			}
		}
	}
	return nil
}

// LeaveUplink records that the run's instances do not go out by the interface
// any more.
func LeaveUplink(run *runstate.Run, name string) error { return run.Erase(uplinkKind, name) }

// Fit limits the default MTU to most, the MTU of the host's interface name. If
// the user set a larger MTU, the error is a *vitrine.BadInput.
func (c *Config) Fit(most int, name string) error {
	if c.MTU > most {
		return &vitrine.BadInput{File: "fabric " + c.Name, Found: fmt.Sprintf("mtu: %d", c.MTU), Want: fmt.Sprintf("at most %d, the limit of %s", most, name)}
	}
	if c.MTU == 0 && most < DefaultMTU {
		c.MTU = most
	}
	return nil
}

// Make makes the parent, unless the user named one.
func (o *Over) Make(s *Segment) error {
	if o.links != nil {
		return nil
	}
	o.links = s.Links
	master := 0
	if o.Hairpin {
		var err error
		if master, err = s.Bridge(bridgeName); err != nil {
			return err
		}
	}
	cable := End{Outer: switchName}
	parent, err := s.Cable(&cable, master)
	if err != nil {
		return err
	}
	o.parent = parent
	if o.Hairpin {
		if err := s.Links.LinkSetHairpin(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: cable.Index}}, true); err != nil {
			return fmt.Errorf("having the switch send frames back: %w", err)
		}
	}
	return nil
}

// Join makes the interface in the instance's namespace.
func (o *Over) Join(s *Segment, end *End) error {
	if o.host {
		// Older kernels need a name that is free on the host, too. The run's joins can
		// share one, because Configure renames the interface before the next join.
		end.Inner = "vt" + o.run.ID
	}
	return o.Put(s, end, o.links, o.parent)
}

// Put makes an interface over a parent in the instance's namespace.
func (o *Over) Put(s *Segment, end *End, links *netlink.Handle, parent int) error {
	link := o.Link(netlink.LinkAttrs{Name: end.Inner, MTU: s.MTU, TxQLen: -1, ParentIndex: parent, Namespace: netlink.NsFd(end.NS)})
	if err := links.LinkAdd(link); err != nil {
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EINVAL) && o.host {
			return &vitrine.BadInput{File: "fabric " + s.Name, Found: fmt.Sprintf("the interface %s cannot be a parent: %v", o.Parent, err), Want: "an interface without virtual interfaces of another kind over it"}
		}
		return fmt.Errorf("making an interface of type %s: %w", link.Type(), err)
	}
	return nil
}

// Cut removes the instance's interface.
func (o *Over) Cut(_ *Segment, end *End) error { return RemoveInside(end) }

// Unmake closes the host's links and gives up the parent, which is unchanged.
func (o *Over) Unmake(*Segment) error {
	if !o.host {
		return nil
	}
	o.links.Close()
	o.host = false
	return LeaveUplink(o.run, o.Parent)
}
