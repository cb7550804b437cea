package segment

import (
	"fmt"
	"net/netip"

	"vitrine"
)

const (
	defaultMTU = 1500 // bytes
	leastMTU   = 68   // bytes: RFC 791
	mostMTU    = 65535
)

// network is where addresses are from by default: the range for benchmarking of
// network devices (RFC 2544, appendix C.2.2), which nothing else is in. It ends
// at the segment, so that every run can have it.
var network = netip.MustParsePrefix("198.18.0.1/16")

// resolve checks the options and fills in what is not said.
func (s *Segment) resolve() error {
	first := network
	if s.First != "" {
		var err error
		if first, err = ParseFirst(s.Name, s.First, network.String()); err != nil {
			return err
		}
	}
	s.pool = pool{first: first, taken: make(map[netip.Addr]bool)}
	if s.MTU == 0 {
		s.MTU = defaultMTU
	}
	if s.MTU < leastMTU || s.MTU > mostMTU {
		return &vitrine.BadInput{File: "fabric " + s.Name, Found: fmt.Sprintf("mtu: %d", s.MTU), Want: fmt.Sprintf("%d to %d bytes", leastMTU, mostMTU)}
	}
	return nil
}

// ParseFirst reads the parameter first of a fabric. What is no address of a
// network with room for two is a *vitrine.BadInput that shows the example.
func ParseFirst(fabric, first, example string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(first)
	if err != nil || !p.Addr().Is4() || p.Bits() > 30 || p.Masked() == p {
		return p, &vitrine.BadInput{File: "fabric " + fabric, Found: fmt.Sprintf("first: %q", first), Want: "an IPv4 address and prefix length of at most 30, as " + example}
	}
	return p, nil
}

// A pool hands out the addresses of a network from the first one on, and
// begins anew at its end: one that was freed is given out last.
type pool struct {
	first netip.Prefix // address of the first, and the network's length
	last  netip.Addr   // taken last; invalid: none yet
	taken map[netip.Addr]bool
}

// next is the address after the last one that is free.
func (p *pool) next() (netip.Prefix, error) {
	network := p.first.Masked()
	addr := p.last.Next() // of the invalid address: the invalid address
	for range p.size() {
		if !network.Contains(addr) || !network.Contains(addr.Next()) { // the last one is for broadcast
			addr = p.first.Addr()
		}
		if !p.taken[addr] {
			return netip.PrefixFrom(addr, network.Bits()), nil
		}
		addr = addr.Next()
	}
	return netip.Prefix{}, fmt.Errorf("all addresses of %s from %s on are taken", network, p.first.Addr())
}

// size is how many addresses the network has, about.
func (p *pool) size() int { return 1 << (32 - p.first.Bits()) }

// pass has next go on after an address that is somebody else's.
func (p *pool) pass(addr netip.Prefix) { p.last = addr.Addr() }

func (p *pool) take(addr netip.Prefix) { p.taken[addr.Addr()], p.last = true, addr.Addr() }

func (p *pool) give(addr netip.Prefix) { delete(p.taken, addr.Addr()) }
