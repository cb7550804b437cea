package segment

import (
	"fmt"
	"net/netip"

	"vitrine"
)

// The MTUs of instances' interfaces.
const (
	DefaultMTU = 1500 // bytes; less if an interface of the host has less
	minMTU     = 68   // bytes: RFC 791
	maxMTU     = 65535
)

// network is the default network of instances: the range for benchmarking
// network devices (RFC 2544, appendix C.2.2), which nothing else uses. It ends
// at the segment, so that every run can have it.
var network = netip.MustParsePrefix("198.18.0.1/16")

// resolve checks the options and fills in the defaults.
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
		s.MTU = DefaultMTU
	}
	if s.MTU < minMTU || s.MTU > maxMTU {
		return &vitrine.BadInput{File: "fabric " + s.Name, Found: fmt.Sprintf("mtu: %d", s.MTU), Want: fmt.Sprintf("%d to %d bytes", minMTU, maxMTU)}
	}
	return nil
}

// ParseFirst parses the parameter first of a fabric: an address of an IPv4
// network with room for two, and its prefix length. For anything else the error
// is a *vitrine.BadInput that shows the example.
func ParseFirst(fabric, first, example string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(first)
	if err != nil || !p.Addr().Is4() || p.Bits() > 30 || p.Masked() == p {
		return p, &vitrine.BadInput{File: "fabric " + fabric, Found: fmt.Sprintf("first: %q", first), Want: "an IPv4 address with a prefix length of at most 30, such as " + example}
	}
	return p, nil
}

// A pool gives out the addresses of a network in order, from the first one on,
// and starts again at its end. So a freed address is reused as late as
// possible.
type pool struct {
	first netip.Prefix // the first address, and the prefix length of the network
	last  netip.Addr   // taken or skipped last; invalid: none yet
	taken map[netip.Addr]bool
}

// next returns the next free address after the last one.
func (p *pool) next() (netip.Prefix, error) {
	network := p.first.Masked()
	addr := p.last.Next() // the invalid address stays invalid
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

// size returns the size of the network, which is a little more than the number
// of addresses to give out.
func (p *pool) size() int { return 1 << (32 - p.first.Bits()) }

// skip skips an address that another run has.
func (p *pool) skip(addr netip.Prefix) { p.last = addr.Addr() }

func (p *pool) take(addr netip.Prefix) { p.taken[addr.Addr()], p.last = true, addr.Addr() }

func (p *pool) give(addr netip.Prefix) { delete(p.taken, addr.Addr()) }
