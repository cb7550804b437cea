package capture

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/gopacket/gopacket/layers"
)

// A LinkType is the type of the header at the beginning of frames. The numbers are from
// tcpdump.org/linktypes.html.
type LinkType uint16

// The supported link types. Some systems use other numbers for DLT_RAW in files.
const (
	Null     LinkType = 0 // BSD loopback: address family in the byte order of the host
	Ethernet LinkType = 1
	rawBSD   LinkType = 12
	rawOpen  LinkType = 14
	Raw      LinkType = 101 // IPv4 or IPv6
	Loop     LinkType = 108 // OpenBSD loopback: address family in network byte order
	SLL      LinkType = 113 // Linux "any" interface
	IPv4     LinkType = 228
	IPv6     LinkType = 229
	SLL2     LinkType = 276 // Linux "any" interface, with the index of the real interface
)

func (l LinkType) String() string {
	return fmt.Sprintf("link type %d (%s)", uint16(l), layers.LinkType(l))
}

// The EtherTypes of the network layers and tags that are read.
const (
	etherIPv4   = 0x0800
	etherIPv6   = 0x86dd
	etherVLAN   = 0x8100 // IEEE 802.1Q
	etherQinQ   = 0x88a8 // IEEE 802.1ad
	etherVendor = 0x9100 // QinQ before 802.1ad
)

// link removes the link-layer header.
func (w *Walker) link(link LinkType, b []byte) {
	switch link {
	case Ethernet:
		w.ethernet(b)
	case Raw, IPv4, IPv6, rawBSD, rawOpen:
		w.raw(b)
	case Null, Loop:
		w.loopback(b)
	case SLL:
		const header, length, address, protocol = 16, 4, 6, 14
		if len(b) < header {
			w.counts.Malformed++
			return
		}
		// SLL does not name the interface. Interfaces mostly differ in the direction or in the sender's
		// link-layer address. The bytes behind a shorter address are undefined.
		n := min(int(binary.BigEndian.Uint16(b[length:])), protocol-address)
		w.packet.Where.Link = uint32(xxhash.Sum64(b[:address+n])) | 1
		w.network(binary.BigEndian.Uint16(b[protocol:]), b[header:])
	case SLL2:
		const header, index = 20, 4
		if len(b) < header {
			w.counts.Malformed++
			return
		}
		w.packet.Where.Link = binary.BigEndian.Uint32(b[index:])
		w.network(binary.BigEndian.Uint16(b), b[header:])
	default:
		w.counts.Unknown[link]++
	}
}

// ethernet removes an Ethernet header. A length in place of an EtherType means IEEE 802.2,
// which does not carry IP.
func (w *Walker) ethernet(b []byte) {
	const header = 14
	if len(b) < header {
		w.counts.Malformed++
		return
	}
	w.network(binary.BigEndian.Uint16(b[12:]), b[header:])
}

// network removes VLAN tags and reads the network layer.
func (w *Walker) network(kind uint16, b []byte) {
	for kind == etherVLAN || kind == etherQinQ || kind == etherVendor {
		const tag = 4
		if len(b) < tag {
			w.counts.Malformed++
			return
		}
		kind, b = binary.BigEndian.Uint16(b[2:]), b[tag:]
	}
	switch kind {
	case etherIPv4:
		w.ipv4(b)
	case etherIPv6:
		w.ipv6(b)
	default:
		w.counts.NotIP++
	}
}

// raw reads an IP packet of either version.
func (w *Walker) raw(b []byte) {
	switch {
	case len(b) == 0:
		w.counts.Malformed++
	case b[0]>>4 == 4:
		w.ipv4(b)
	case b[0]>>4 == 6:
		w.ipv6(b)
	default:
		w.counts.NotIP++
	}
}

// loopback removes the address family. It may have either byte order, which its value shows
// because all families are below 256. The number of IPv6 depends on the system.
func (w *Walker) loopback(b []byte) {
	const header = 4
	if len(b) < header {
		w.counts.Malformed++
		return
	}
	family := binary.BigEndian.Uint32(b)
	if family > 0xff {
		family = binary.LittleEndian.Uint32(b)
	}
	const inet, linux6, netbsd6, freebsd6, darwin6 = 2, 10, 24, 28, 30
	switch family {
	case inet:
		w.ipv4(b[header:])
	case linux6, netbsd6, freebsd6, darwin6:
		w.ipv6(b[header:])
	default:
		w.counts.NotIP++
	}
}
