package message

import (
	"net/netip"

	"vitrine/affinity/capture"
)

// A path is where one direction of an SCTP association was first seen.
type path struct {
	src, dst netip.AddrPort
	tsn      uint32 // of the first message
	at       int64
}

// pathSize is the memory of a path, in bytes.
const pathSize = 128

// firstPath returns the addresses on which a direction of an SCTP association was first seen. A packet
// may use others, but its verification tag names the receiver's end of the association on all paths.
// If the first message appears again at once with other addresses, these are a translation (NAT), not
// another path.
func (r *reading) firstPath(p *capture.Packet) (src, dst netip.AddrPort) {
	if p.Tag == 0 { // not of an association, but made by a tool
		return p.Src, p.Dst
	}
	own := path{p.Src, p.Dst, p.TSN, p.Time}
	key := join(uint64(p.Tag), uint64(p.Src.Port())<<16|uint64(p.Dst.Port()))
	first := r.path(key, own)
	if first.src == p.Src && first.dst == p.Dst {
		return p.Src, p.Dst
	}
	if p.TSN != first.tsn || p.Time-first.at > int64(window) {
		own = first
	}
	chosen := r.path(join(key, join(hashAddr(p.Src.Addr()), hashAddr(p.Dst.Addr()))), own)
	return chosen.src, chosen.dst
}

// path returns the path of a key. If there is none, it remembers the given one.
func (r *reading) path(key uint64, otherwise path) path {
	known, ok := r.paths[key]
	if ok {
		return known
	}
	if len(r.paths) >= r.o.MaxMemory/64/pathSize {
		clear(r.paths)
	}
	r.paths[key] = otherwise
	return otherwise
}
