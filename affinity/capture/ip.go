package capture

import (
	"encoding/binary"
	"net/netip"
)

// ipv4 removes an IPv4 header (RFC 791).
func (w *Walker) ipv4(b []byte) {
	const header = 20
	if len(b) < header || b[0]>>4 != 4 {
		w.counts.Malformed++
		return
	}
	length, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if total == 0 { // a packet that the network card segments (TSO)
		total = len(b)
	}
	if length < header || length > len(b) || length > total {
		w.counts.Malformed++
		return
	}
	w.src = netip.AddrFrom4([4]byte(b[12:]))
	w.dst = netip.AddrFrom4([4]byte(b[16:]))
	w.packet.ID = binary.BigEndian.Uint16(b[4:])
	protocol, fragment := b[9], binary.BigEndian.Uint16(b[6:])
	payload, missing := trim(b[length:], total-length)

	const more, offset = 0x2000, 0x1fff
	if fragment&(more|offset) != 0 {
		key := datagramKey{src: w.src, dst: w.dst, id: uint32(w.packet.ID), protocol: protocol, where: w.packet.Where, tunnels: w.tunnels}
		payload, _ = w.defragment(key, protocol, int(fragment&offset)*8, fragment&more != 0, payload, missing)
		if missing = 0; payload == nil {
			return
		}
	}
	w.transport(protocol, payload, missing)
}

// trim removes link-layer padding after an IP payload of n bytes. It returns the number of
// payload bytes that the capture lacks.
func trim(b []byte, n int) (payload []byte, missing int) {
	if n <= len(b) {
		return b[:n], 0
	}
	return b, n - len(b)
}

// The IPv6 headers that may precede the transport (RFC 8200 section 4).
const (
	hopByHop       = 0
	routing        = 43
	fragmentHeader = 44
	authentication = 51 // RFC 4302
	destination    = 60
	mobility       = 135 // RFC 6275
	hostIdentity   = 139 // RFC 7401
	shim6          = 140 // RFC 5533
)

// ipv6 removes an IPv6 header and its extension headers.
func (w *Walker) ipv6(b []byte) {
	const header = 40
	if len(b) < header || b[0]>>4 != 6 {
		w.counts.Malformed++
		return
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n == 0 { // a jumbogram (RFC 2675), or a packet that the network card segments
		n = len(b) - header
	}
	w.src = netip.AddrFrom16([16]byte(b[8:]))
	w.dst = netip.AddrFrom16([16]byte(b[24:]))
	w.packet.ID = 0
	payload, missing := trim(b[header:], n)
	w.extensions(b[6], payload, missing)
}

// extensions removes extension headers.
func (w *Walker) extensions(next uint8, b []byte, missing int) {
	for {
		length := 8
		switch next {
		case hopByHop, routing, destination, mobility, hostIdentity, shim6, authentication, fragmentHeader:
			if len(b) < length {
				w.counts.Malformed++
				return
			}
		default:
			w.transport(next, b, missing)
			return
		}
		switch next {
		case authentication:
			length = (int(b[1]) + 2) * 4
		case fragmentHeader:
			field := binary.BigEndian.Uint16(b[2:])
			offset, more := int(field&^7), field&1 != 0
			if offset == 0 && !more { // RFC 6946
				break
			}
			key := datagramKey{src: w.src, dst: w.dst, id: binary.BigEndian.Uint32(b[4:]), where: w.packet.Where, tunnels: w.tunnels}
			whole, protocol := w.defragment(key, b[0], offset, more, b[length:], missing)
			if whole == nil {
				return
			}
			next, b, missing = protocol, whole, 0
			continue
		default:
			length += int(b[1]) * 8
		}
		if length > len(b) {
			w.counts.Malformed++
			return
		}
		next, b = b[0], b[length:]
	}
}

// tunnel reads the packet inside a UDP datagram, and reports whether the datagram belongs
// to a tunnel.
func (w *Walker) tunnel(port uint16, b []byte) bool {
	const vxlan, gtpu = 4789, 2152 // RFC 7348 section 5; TS 29.281 clause 4.4.2
	const linux = 8472             // default VXLAN port of Linux (vxlan_udp_port of drivers/net/vxlan)
	if w.tunnels == maxTunnels {
		return false
	}
	switch port {
	case vxlan, linux:
		const header, valid, plain = 8, 0x08, 0x08000000
		if len(b) < header || b[0]&valid == 0 || port == linux && binary.BigEndian.Uint32(b) != plain {
			return false
		}
		w.tunnels++
		w.ethernet(b[header:])
		return true
	case gtpu:
		inner := userPlane(b)
		if inner == nil {
			return false
		}
		w.tunnels++
		w.raw(inner)
		return true
	}
	return false
}

// userPlane returns the IP packet in a G-PDU (TS 29.281 clause 5), or nil.
func userPlane(b []byte) []byte {
	const header, optional, packet = 8, 4, 255
	const version1, hasExtension, hasOptional = 0x30, 4, 7 // version 1 of GTP, not of GTP'
	if len(b) < header || b[0]&0xf0 != version1 || b[1] != packet {
		return nil
	}
	flags, b := b[0], b[header:]
	if flags&hasOptional != 0 {
		if len(b) < optional {
			return nil
		}
		next := b[optional-1]
		for b = b[optional:]; flags&hasExtension != 0 && next != 0; {
			// The first byte is the header's length in units of 4 bytes, the last is the
			// type of the next one (clause 5.2.1).
			if len(b) == 0 || b[0] == 0 || int(b[0])*4 > len(b) {
				return nil
			}
			length := int(b[0]) * 4
			next, b = b[length-1], b[length:]
		}
	}
	if len(b) == 0 || b[0]>>4 != 4 && b[0]>>4 != 6 {
		return nil
	}
	return b
}
