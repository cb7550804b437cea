package guest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"vitrine/fabric/segment"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// setUp applies the machine's name and network configuration. It may be called again.
func setUp(s Setup) error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("naming the machine: %w", err)
	}
	if err := os.WriteFile("/etc/hostname", []byte(s.Hostname+"\n"), 0o644); err != nil {
		return err
	}
	hosts := "127.0.0.1 localhost\n127.0.1.1 " + s.Hostname + "\n"
	if err := os.WriteFile("/etc/hosts", []byte(hosts), 0o644); err != nil {
		return err
	}
	// As in the namespaces of the fabrics: no IPv6, so no unsolicited traffic.
	for _, which := range []string{"all", "default"} {
		if err := segment.Sysctl("net/ipv6/conf/"+which+"/disable_ipv6", "1"); err != nil {
			return err
		}
	}
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("bringing lo up: %w", err)
	}
	if s.MAC == "" {
		return nil
	}
	if err := connect(s); err != nil {
		return fmt.Errorf("setting up %s: %w", s.Interface, err)
	}
	return nil
}

// connect gives the interface its name, MTU, address and routes.
func connect(s Setup) error {
	mac, err := net.ParseMAC(s.MAC)
	if err != nil {
		return err
	}
	link, err := byMAC(mac)
	if err != nil {
		return err
	}
	if link.Attrs().Name != s.Interface {
		if err := errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, s.Interface)); err != nil {
			return err
		}
	}
	if err := errors.Join(netlink.LinkSetMTU(link, s.MTU), netlink.LinkSetUp(link)); err != nil {
		return err
	}
	if err := segment.Settle(new(netlink.Handle), link.Attrs().Index); err != nil {
		return err
	}
	if s.Address == "" {
		return nil
	}
	addr, err := netlink.ParseAddr(s.Address)
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("address %s: %w", s.Address, err)
	}
	for _, r := range s.Routes {
		if err := route(link, r); err != nil {
			return fmt.Errorf("route to %s: %w", r.To, err)
		}
	}
	return nil
}

func byMAC(mac net.HardwareAddr) (netlink.Link, error) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range all {
		if bytes.Equal(link.Attrs().HardwareAddr, mac) {
			return link, nil
		}
	}
	return nil, fmt.Errorf("no interface with the hardware address %s", mac)
}

func route(link netlink.Link, r Route) error {
	to, err := netip.ParsePrefix(r.To)
	if err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: segment.IPNet(to)}
	if r.Via == "" {
		route.Scope = netlink.SCOPE_LINK
		return netlink.RouteReplace(route)
	}
	via, err := netip.ParseAddr(r.Via)
	if err != nil {
		return err
	}
	route.Gw = via.AsSlice()
	return netlink.RouteReplace(route)
}
