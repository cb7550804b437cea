package impair

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"vitrine/fabric"
)

// peers are the addresses whose packets a direction impairs; nil: all packets.
type peers map[netip.Addr]struct{}

func peersOf(addresses []netip.Addr) peers {
	p := peers{}
	for _, a := range addresses {
		p[a.Unmap()] = struct{}{}
	}
	return p
}

// impairs reports whether the frame, behind its virtio header, is to or from a
// peer. way is Out if the peer is the receiver, and In if the peer is the sender.
// Frames without IP, such as ARP, belong to no peer.
func (p peers) impairs(frame []byte, way string) bool {
	if p == nil {
		return true
	}
	address, ok := addressIn(frame, way)
	if !ok {
		return false
	}
	_, is := p[address]
	return is
}

// addressIn returns the IP address of the frame's receiver (Out) or sender (In).
func addressIn(frame []byte, way string) (netip.Addr, bool) {
	const tag, v4Source, v6Source, v4Size, v6Size = 4, 12, 8, 20, 40
	at := macSize
	for range 2 { // 802.1Q and 802.1ad
		if len(frame) < at+2 {
			return netip.Addr{}, false
		}
		if kind := binary.BigEndian.Uint16(frame[at:]); kind != unix.ETH_P_8021Q && kind != unix.ETH_P_8021AD {
			break
		}
		at += tag
	}
	if len(frame) < at+2 {
		return netip.Addr{}, false
	}
	kind, packet := binary.BigEndian.Uint16(frame[at:]), frame[at+2:]
	switch {
	case kind == unix.ETH_P_IP && len(packet) >= v4Size:
		from := v4Source
		if way == Out {
			from += 4
		}
		return netip.AddrFrom4([4]byte(packet[from:])), true
	case kind == unix.ETH_P_IPV6 && len(packet) >= v6Size:
		from := v6Source
		if way == Out {
			from += 16
		}
		return netip.AddrFrom16([16]byte(packet[from:])), true
	}
	return netip.Addr{}, false
}

// meets reports whether the link impairs packets to and from the instance.
func (l Link) meets(p fabric.Port) bool {
	return slices.ContainsFunc(names(p), func(name string) bool { return slices.Contains(l.Peers, name) })
}

// introduce sends the emulator the peers' addresses for every link that has
// peers. It is called after an instance was attached or detached.
func (f *Fabric) introduce(ctx context.Context) error {
	running := f.process.Load()
	for name, p := range f.attached {
		if len(p.link.Peers) == 0 || p.splice == nil || p.finished || running == nil {
			continue
		}
		met := meeting{Instance: name}
		for _, q := range f.attached {
			if p.link.meets(q.at) {
				met.Addresses = append(met.Addresses, q.end.Addr)
			}
		}
		if _, err := running.do(ctx, order{Meet: &met}); err != nil {
			return err
		}
	}
	return nil
}
