package pgw

import (
	"net/netip"

	"vitrine/internal/fifo"
)

// A pool allocates the IPv4 addresses of a prefix, except the first one, which is
// the network's, and the last one. It reuses a freed address as late as possible.
// Only one goroutine may use a pool at a time.
type pool struct {
	next, last netip.Addr // addresses that were never allocated
	back       fifo.Queue[netip.Addr]
}

// newPool returns the pool of an IPv4 prefix of 8 to 30 bits. It returns false for any other
// prefix.
func newPool(prefix netip.Prefix) (*pool, bool) {
	bits := prefix.Bits()
	if !prefix.Addr().Is4() || bits < 8 || bits > 30 {
		return nil, false
	}
	network := prefix.Masked().Addr()
	b := network.As4()
	size := uint32(1) << (32 - bits)
	end := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) + size - 1
	return &pool{
		next: network.Next(),
		last: netip.AddrFrom4([4]byte{byte(end >> 24), byte(end >> 16), byte(end >> 8), byte(end)}).Prev(),
	}, true
}

// take allocates an address. It returns false if none is left.
func (p *pool) take() (netip.Addr, bool) {
	if p.next.Compare(p.last) <= 0 {
		a := p.next
		p.next = a.Next()
		return a, true
	}
	if p.back.Len() == 0 {
		return netip.Addr{}, false
	}
	return p.back.Pop(), true
}

// give frees an address.
func (p *pool) give(a netip.Addr) { p.back.Push(a) }
