// Package mirror copies the frames that pass one interface to another
// interface, for functions that only listen, such as intrusion detection and
// recorders. The kernel copies them, by the action mirred of its traffic
// control (tc-mirred(8)).
package mirror

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine"
)

// directions are the two hooks of an interface for traffic control: on frames
// that the host receives from it, and on frames that the host sends into it.
var directions = [...]uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS}

// priority of the first filter.
const priority = 1

// Port copies all frames that pass the interface of, in both directions, out of
// the interface to. Both are indexes in the namespace of links. Used on the
// outer ends of two instances' veth pairs, it gives the second instance one
// copy of each frame that the first instance sends or receives. The frames
// themselves pass unchanged, even when nobody receives the copies any more.
//
// Port is idempotent. It refuses an interface to that is itself mirrored,
// because copies could then circulate for ever. The mirror ends when either
// interface is removed. When Port fails it leaves nothing behind. If the kernel
// lacks mirred, the error is a *vitrine.Unsupported.
func Port(links *netlink.Handle, of, to int) error {
	if of == to {
		return &vitrine.BadInput{File: "mirror", Found: "an interface mirrored to itself", Want: "another interface as the listener"}
	}
	for _, direction := range directions {
		copies, err := targets(links, to, direction)
		if err != nil {
			return err
		}
		if len(copies) > 0 {
			return &vitrine.BadInput{File: "mirror", Found: "a listener that is itself mirrored", Want: "a listener that is not mirrored: copies could circulate for ever"}
		}
	}
	qdisc := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: of, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}}
	err := links.QdiscAdd(qdisc)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("mirroring interface %d: adding the clsact qdisc: %w", of, unsupported(err))
	}
	var added []netlink.Filter
	for _, direction := range directions {
		filter, err := copyTo(links, of, to, direction)
		if filter != nil {
			added = append(added, filter)
		}
		if err == nil {
			continue
		}
		err = fmt.Errorf("mirroring interface %d to %d: %w", of, to, unsupported(err))
		if made {
			return errors.Join(err, links.QdiscDel(qdisc))
		}
		for _, filter := range added {
			err = errors.Join(err, links.FilterDel(filter))
		}
		return err
	}
	return nil
}

// copyTo adds the filter of one direction. It returns nil if the filter is
// already there.
func copyTo(links *netlink.Handle, of, to int, direction uint32) (netlink.Filter, error) {
	copies, err := targets(links, of, direction)
	if err != nil || slices.Contains(copies, to) {
		return nil, err
	}
	attrs := netlink.FilterAttrs{
		LinkIndex: of, Parent: direction, Protocol: unix.ETH_P_ALL,
		// Each filter has its own priority, so that removing one leaves the others.
		Priority: priority + uint16(len(copies)),
	}
	actions := []netlink.Action{&netlink.MirredAction{
		// With this action later filters see the frame too; with pipe they would not.
		ActionAttrs:  netlink.ActionAttrs{Action: netlink.TC_ACT_UNSPEC},
		MirredAction: netlink.TCA_EGRESS_MIRROR,
		Ifindex:      to,
	}}
	return Everything(links, attrs, actions)
}

// Everything adds a filter that matches all frames. It uses the classifier
// matchall, or else u32, which needs at least 4 bytes after the header.
func Everything(links *netlink.Handle, attrs netlink.FilterAttrs, actions []netlink.Action) (netlink.Filter, error) {
	var filter netlink.Filter = &netlink.MatchAll{FilterAttrs: attrs, Actions: actions}
	err := links.FilterAdd(filter)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) { // a kernel without matchall
		filter = &netlink.U32{FilterAttrs: attrs, Actions: actions} // without keys it matches everything
		err = links.FilterAdd(filter)
	}
	if err != nil {
		return nil, err
	}
	return filter, nil
}

// targets returns the interfaces that receive the copies of one direction.
func targets(links *netlink.Handle, of int, direction uint32) ([]int, error) {
	link := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: of}}
	filters, err := links.FilterList(link, direction)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // the interface has no clsact qdisc
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing the filters of interface %d: %w", of, unsupported(err))
	}
	var found []int
	for _, filter := range filters {
		var actions []netlink.Action
		switch f := filter.(type) {
		case *netlink.MatchAll:
			actions = f.Actions
		case *netlink.U32:
			actions = f.Actions
		}
		for _, action := range actions {
			if m, is := action.(*netlink.MirredAction); is && m.MirredAction == netlink.TCA_EGRESS_MIRROR {
				found = append(found, m.Ifindex)
			}
		}
	}
	return found, nil
}

// unsupported turns a missing kernel feature or privilege into a
// *vitrine.Unsupported.
func unsupported(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return &vitrine.Unsupported{What: "mirror ports", Missing: "the privilege (CAP_NET_ADMIN): " + err.Error(), Do: "run as root"}
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP):
		return &vitrine.Unsupported{
			What:    "mirror ports",
			Missing: "a kernel option (CONFIG_NET_SCH_INGRESS, CONFIG_NET_ACT_MIRRED and CONFIG_NET_CLS_MATCHALL or CONFIG_NET_CLS_U32): " + err.Error(),
			Do:      "modprobe sch_ingress act_mirred cls_matchall, or use the fabric ovs",
		}
	}
	return err
}
