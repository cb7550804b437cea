package capture

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// The endpoints of the packets that tests build.
var (
	src4, dst4 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	src6, dst6 = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
)

const (
	srcPort = 5060
	dstPort = 5062
)

// build serializes layers from the outermost to the innermost.
func build(t testing.TB, all ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, all...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

func ip4Layer(protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Id: 7, Protocol: protocol, SrcIP: src4.AsSlice(), DstIP: dst4.AsSlice()}
}

func ip6Layer(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: next, SrcIP: src6.AsSlice(), DstIP: dst6.AsSlice()}
}

func udpLayer() *layers.UDP { return &layers.UDP{SrcPort: srcPort, DstPort: dstPort} }

// udp4 returns an IPv4 packet with a UDP datagram.
func udp4(t testing.TB, payload string) []byte {
	return build(t, ip4Layer(layers.IPProtocolUDP), udpLayer(), gopacket.Payload(payload))
}

// udp6 returns an IPv6 packet with a UDP datagram.
func udp6(t testing.TB, payload string) []byte {
	return build(t, ip6Layer(layers.IPProtocolUDP), udpLayer(), gopacket.Payload(payload))
}

// join returns slices one after the other.
func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// be16 returns numbers in network byte order.
func be16(numbers ...uint16) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b
}

// be32 returns numbers in network byte order.
func be32(numbers ...uint32) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// framed puts an Ethernet header of some type and tags before an IP packet.
func framed(packet []byte, types ...uint16) []byte {
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for i, kind := range types {
		if b = append(b, be16(kind)...); i < len(types)-1 {
			b = append(b, be16(uint16(100+i))...) // VLAN
		}
	}
	return append(b, packet...)
}

// fragments4 divides an IPv4 packet without options into fragments with n bytes of
// payload each.
func fragments4(packet []byte, n int) (all [][]byte) {
	const header, more = 20, 0x2000
	payload := packet[header:]
	for at := 0; at < len(payload); at += n {
		end := min(at+n, len(payload))
		f := join(packet[:header], payload[at:end])
		binary.BigEndian.PutUint16(f[2:], uint16(len(f)))
		field := uint16(at / 8)
		if end < len(payload) {
			field |= more
		}
		binary.BigEndian.PutUint16(f[6:], field)
		all = append(all, f)
	}
	return all
}

// fragments6 divides an IPv6 packet without extension headers.
func fragments6(packet []byte, n int) (all [][]byte) {
	const header = 40
	payload := packet[header:]
	for at := 0; at < len(payload); at += n {
		end := min(at+n, len(payload))
		field := uint16(at)
		if end < len(payload) {
			field |= 1
		}
		f := join(packet[:header], []byte{packet[6], 0}, be16(field), be32(77), payload[at:end])
		f[6] = fragmentHeader
		binary.BigEndian.PutUint16(f[4:], uint16(len(f)-header))
		all = append(all, f)
	}
	return all
}

// dataChunk returns an SCTP DATA chunk with its padding.
func dataChunk(flags byte, tsn uint32, stream, number uint16, ppid uint32, payload string) []byte {
	b := join([]byte{0, flags}, be16(uint16(16+len(payload))), be32(tsn), be16(stream, number), be32(ppid), []byte(payload))
	return append(b, make([]byte, padding(len(b)))...)
}

// sctp4 returns an IPv4 packet with an SCTP packet of some chunks.
func sctp4(t testing.TB, chunks ...[]byte) []byte {
	t.Helper()
	return build(t, ip4Layer(layers.IPProtocolSCTP), gopacket.Payload(join(be16(srcPort, dstPort), be32(0xabcd, 0), join(chunks...))))
}

// vxlan returns a VXLAN packet around a frame.
func vxlan(t testing.TB, frame []byte) []byte {
	t.Helper()
	outer := &layers.UDP{SrcPort: 55555, DstPort: 4789}
	return build(t, ip4Layer(layers.IPProtocolUDP), outer, gopacket.Payload(join([]byte{8, 0, 0, 0, 0, 0, 42, 0}, frame)))
}

// gtpu returns a GTP-U packet around what follows its header of 8 bytes.
func gtpu(t testing.TB, flags, kind byte, rest []byte) []byte {
	t.Helper()
	outer := &layers.UDP{SrcPort: 2152, DstPort: 2152}
	return build(t, ip4Layer(layers.IPProtocolUDP), outer, gopacket.Payload(join([]byte{flags, kind}, be16(uint16(len(rest))), be32(0x1234), rest)))
}
