package segment

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vitrine/fabric/mirror"
)

// Redirect makes the frames that one interface receives leave by another
// (tc-mirred(8)). links are the links of their namespace. The interface must have
// no filters yet.
func Redirect(links *netlink.Handle, from, to netlink.Link) error {
	fail := func(options string, err error) error {
		return fmt.Errorf("redirecting %s to %s (%s): %w", from.Attrs().Name, to.Attrs().Name, options, err)
	}
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: from.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS,
	}}
	if err := links.QdiscAdd(ingress); err != nil {
		return fail("CONFIG_NET_SCH_INGRESS", err)
	}
	attrs := netlink.FilterAttrs{LinkIndex: from.Attrs().Index, Parent: ingress.Handle, Priority: 1, Protocol: unix.ETH_P_ALL}
	if _, err := mirror.Everything(links, attrs, []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)}); err != nil {
		return fail("CONFIG_NET_ACT_MIRRED, and CONFIG_NET_CLS_MATCHALL or CONFIG_NET_CLS_U32", err)
	}
	return nil
}
