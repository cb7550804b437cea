// Package source identifies senders of traffic, for limits per source.
package source

import (
	"net/netip"
	"slices"
)

// Of returns the source of an address. It is the IPv4 address itself, or the /64 of an IPv6
// address, because one host may use all addresses of its /64.
func Of(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	p, _ := a.Prefix(64) // never fails for IPv6
	return p.Addr()
}

// In reports whether an address is in one of the networks. IPv4 in IPv6 form counts as IPv4.
func In(a netip.Addr, networks []netip.Prefix) bool {
	a = a.Unmap()
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(a) })
}
