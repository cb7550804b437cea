package sip

import (
	"net/netip"

	"vitrine/director/table"
)

// sources indexes the instances of one table by their addresses.
type sources struct {
	table  *table.Table
	exact  map[netip.AddrPort]*table.Target
	hosts  map[netip.Addr]struct{}
	filter [1 << 10]uint64 // bitmap of hashed addresses; most clients are not in it
}

// sources returns the index of the table in force. The first worker that sees a new table
// builds the index for all.
func (c *core) sources() *sources {
	t := c.epochs.View().Table
	if s := c.known.Load(); s != nil && s.table == t {
		return s
	}
	s := newSources(t)
	c.known.Store(s)
	return s
}

func newSources(t *table.Table) *sources {
	s := &sources{table: t, exact: make(map[netip.AddrPort]*table.Target, t.Len()), hosts: make(map[netip.Addr]struct{}, t.Len())}
	for i := range int32(t.Len()) {
		target := t.Target(i)
		if _, ok := s.exact[target.Address]; !ok {
			s.exact[target.Address] = target // the first, if several types share the address
		}
		s.hosts[target.Address.Addr()] = struct{}{}
		n := filterOf(target.Address)
		s.filter[n>>6] |= 1 << (n & 63)
	}
	return s
}

// find returns the instance that sends from its own address, or nil.
func (s *sources) find(a netip.AddrPort) *table.Target {
	if n := filterOf(a); s.filter[n>>6]&(1<<(n&63)) == 0 {
		return nil
	}
	return s.exact[a]
}

// trusted reports whether an instance has that IP address.
func (s *sources) trusted(a netip.Addr) bool {
	_, ok := s.hosts[a]
	return ok
}

// filterOf returns a 16-bit hash of an address.
func filterOf(a netip.AddrPort) uint16 {
	ip := a.Addr().As16()
	h := uint64(a.Port())<<32 | uint64(ip[12])<<24 | uint64(ip[13])<<16 | uint64(ip[14])<<8 | uint64(ip[15])
	h = (h ^ uint64(ip[7])<<40) * 0x9e3779b97f4a7c15
	return uint16(h >> 48)
}
