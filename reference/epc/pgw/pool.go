package pgw

import (
	"fmt"
	"net/netip"

	"vitrine/internal/fifo"
)

// A pool gives out the IPv4 addresses of a prefix, without the first one, which
// names the network, and the last one. An address that was given back is given out
// again as late as possible. A pool is not for use by several goroutines at once.
type pool struct {
	next, last netip.Addr // addresses that were never given out
	back       fifo.Queue[netip.Addr]
}

func newPool(prefix netip.Prefix) (*pool, error) {
	bits := prefix.Bits()
	if !prefix.Addr().Is4() || bits < 8 || bits > 30 {
		return nil, fmt.Errorf("pool %s: want an IPv4 prefix of 8 to 30 bits", prefix)
	}
	network := prefix.Masked().Addr()
	b := network.As4()
	size := uint32(1) << (32 - bits)
	end := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) + size - 1
	return &pool{
		next: network.Next(),
		last: netip.AddrFrom4([4]byte{byte(end >> 24), byte(end >> 16), byte(end >> 8), byte(end)}).Prev(),
	}, nil
}

// take returns an address. It returns false if none is left.
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

// give gives an address back.
func (p *pool) give(a netip.Addr) { p.back.Push(a) }
