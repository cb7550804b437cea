package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// walk returns a line for each packet of some frames.
func walk(w *Walker, link LinkType, frames ...[]byte) []string {
	var got []string
	for i, frame := range frames {
		w.Walk(link, int64(i)*int64(time.Second), Where{}, frame)
		for p := w.Next(); p != nil; p = w.Next() {
			got = append(got, describe(p))
		}
	}
	return got
}

func describe(p *Packet) string {
	s := fmt.Sprintf("%v %v>%v %q", p.Transport, p.Src, p.Dst, p.Payload)
	if p.Missing > 0 {
		s += fmt.Sprintf(" missing %d", p.Missing)
	}
	if p.Transport == SCTP {
		s += fmt.Sprintf(" stream %d ppid %d tsn %d", p.Stream, p.PPID, p.TSN)
	}
	return s
}

// An encapsulation is a frame with one UDP datagram.
type encapsulation struct {
	name  string
	link  LinkType
	frame []byte
	want  string
}

// encapsulations returns a frame for each link layer, tag, tunnel and extension
// header.
func encapsulations(t testing.TB) []encapsulation {
	hi4, hi6 := udp4(t, "hi"), udp6(t, "hi")
	const want4 = `UDP 192.0.2.1:5060>192.0.2.2:5062 "hi"`
	const want6 = `UDP [2001:db8::1]:5060>[2001:db8::2]:5062 "hi"`
	extended := func(headers ...[]byte) []byte { // the first byte of each header is the type of the next
		chain := join(join(headers...), hi6[40:])
		return build(t, ip6Layer(layers.IPProtocolIPv6HopByHop), gopacket.Payload(chain))
	}
	options := ip4Layer(layers.IPProtocolUDP)
	options.Options = []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}}
	return []encapsulation{
		{"Ethernet", Ethernet, framed(hi4, etherIPv4), want4},
		{"Ethernet with padding", Ethernet, join(framed(hi4, etherIPv4), make([]byte, 20)), want4},
		{"Ethernet IPv6", Ethernet, framed(hi6, etherIPv6), want6},
		{"802.1Q", Ethernet, framed(hi4, etherVLAN, etherIPv4), want4},
		{"802.1ad around 802.1Q", Ethernet, framed(hi6, etherQinQ, etherVLAN, etherIPv6), want6},
		{"three tags", Ethernet, framed(hi4, etherVendor, etherVLAN, etherVLAN, etherIPv4), want4},
		{"SLL", SLL, join(be16(0, 1, 6), make([]byte, 8), be16(etherIPv4), hi4), want4},
		{"SLL with a tag", SLL, join(be16(0, 1, 6), make([]byte, 8), be16(etherVLAN, 5, etherIPv4), hi4), want4},
		{"SLL2", SLL2, join(be16(etherIPv6, 0), be32(3), be16(1), []byte{0, 6}, make([]byte, 8), hi6), want6},
		{"raw IPv4", Raw, hi4, want4},
		{"raw IPv6", Raw, hi6, want6},
		{"IPv4", IPv4, hi4, want4},
		{"IPv6", IPv6, hi6, want6},
		{"null of a little-endian host", Null, join([]byte{2, 0, 0, 0}, hi4), want4},
		{"null of a big-endian host", Null, join([]byte{0, 0, 0, 30}, hi6), want6},
		{"loop", Loop, join([]byte{0, 0, 0, 24}, hi6), want6},
		{"IPv4 options", Raw, build(t, options, udpLayer(), gopacket.Payload("hi")), want4},
		{"IPv6 extension headers", Raw, extended(
			[]byte{destination, 0, 1, 4, 0, 0, 0, 0}, []byte{routing, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
			[]byte{authentication, 0, 0, 0, 0, 0, 0, 0}, []byte{fragmentHeader, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
			[]byte{17, 0, 0, 0, 0, 0, 0, 1}), want6},
		{"total length 0 of TSO", Raw, join(hi4[:2], []byte{0, 0}, hi4[4:]), want4},
		{"UDP length 0", Raw, join(hi4[:24], []byte{0, 0}, hi4[26:]), want4},
		{"VXLAN", Raw, vxlan(t, framed(hi6, etherVLAN, etherIPv6)), want6},
		{"VXLAN in VXLAN", Raw, vxlan(t, framed(vxlan(t, framed(hi4, etherIPv4)), etherIPv4)), want4},
		{"VXLAN without the valid flag", Raw, join(vxlan(t, nil)[:28], []byte{0, 0, 0, 0, 0, 0, 0, 0}), `UDP 192.0.2.1:55555>192.0.2.2:4789 "\x00\x00\x00\x00\x00\x00\x00\x00"`},
		{"GTP-U", Raw, gtpu(t, 0x30, 255, hi4), want4},
		{"GTP-U with a sequence number", Raw, gtpu(t, 0x32, 255, join([]byte{0, 9, 0, 0}, hi6)), want6},
		{"GTP-U with extension headers", Raw, gtpu(t, 0x34, 255, join([]byte{0, 0, 0, 0x85, 1, 0x10, 1, 0x40, 2, 0, 0, 0, 0, 0, 0, 0}, hi4)), want4},
		{"GTP-U echo request", Raw, gtpu(t, 0x30, 1, nil), `UDP 192.0.2.1:2152>192.0.2.2:2152 "0\x01\x00\x00\x00\x00\x124"`},
	}
}

// TestEncapsulations checks that the payload is found.
func TestEncapsulations(t *testing.T) {
	for _, test := range encapsulations(t) {
		t.Run(test.name, func(t *testing.T) {
			w := NewWalker(Options{})
			if got := walk(w, test.link, test.frame); len(got) != 1 || got[0] != test.want {
				t.Errorf("got %v, want %s; %+v", got, test.want, w.Counts())
			}
		})
	}
}

// TestVXLANAtThePortOfLinux is a separate test, because this tshark does not know the port.
func TestVXLANAtThePortOfLinux(t *testing.T) {
	tunnel := vxlan(t, framed(udp4(t, "hi"), etherIPv4))
	got := walk(NewWalker(Options{}), Raw, join(tunnel[:22], be16(8472), tunnel[24:]))
	if want := `UDP 192.0.2.1:5060>192.0.2.2:5062 "hi"`; len(got) != 1 || got[0] != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestTransports checks the fields of each transport.
func TestTransports(t *testing.T) {
	t.Run("TCP", func(t *testing.T) {
		tcp := &layers.TCP{SrcPort: 1, DstPort: 2, Seq: 1000, Ack: 2000, SYN: true, ACK: true, Options: []layers.TCPOption{{OptionType: 1}, {OptionType: 1}}}
		w := NewWalker(Options{})
		w.Walk(Raw, 5, Where{File: 2, Interface: 3}, build(t, ip4Layer(layers.IPProtocolTCP), tcp, gopacket.Payload("x")))
		p := w.Next()
		if p == nil || p.Seq != 1000 || p.Ack != 2000 || p.Flags != SYN|ACK || string(p.Payload) != "x" || p.Time != 5 || p.ID != 7 || p.Where != (Where{File: 2, Interface: 3}) {
			t.Fatalf("%+v", p)
		}
		if w.Next() != nil {
			t.Error("got a second packet")
		}
	})
	t.Run("SCTP chunks", func(t *testing.T) {
		w := NewWalker(Options{})
		got := walk(w, Raw, sctp4(t, dataChunk(3, 10, 1, 0, 46, "one"), []byte{3, 0, 0, 4}, dataChunk(7, 11, 2, 0, 60, "three")))
		want := `SCTP 192.0.2.1:5060>192.0.2.2:5062 "one" stream 1 ppid 46 tsn 10; SCTP 192.0.2.1:5060>192.0.2.2:5062 "three" stream 2 ppid 60 tsn 11`
		if s := strings.Join(got, "; "); s != want {
			t.Errorf("got %s\nwant %s", s, want)
		}
	})
	t.Run("SLL2 says which interface", func(t *testing.T) {
		w := NewWalker(Options{})
		w.Walk(SLL2, 0, Where{}, join(be16(etherIPv4, 0), be32(9), be16(1), []byte{0, 6}, make([]byte, 8), udp4(t, "hi")))
		if p := w.Next(); p == nil || p.Where.Link != 9 {
			t.Errorf("%+v", p)
		}
	})
}

// TestAClockThatIsSetBack checks that the next packet says so, and that the disorder of
// several CPUs does not count.
func TestAClockThatIsSetBack(t *testing.T) {
	w := NewWalker(Options{})
	var marked []int64
	for _, f := range []struct {
		at    int64 // ms
		frame []byte
	}{{5000, udp4(t, "hi")}, {4100, udp4(t, "hi")}, {3200, udp4(t, "hi")}, {2100, nil}, {2200, udp4(t, "hi")}, {2300, udp4(t, "hi")}} {
		w.Walk(Raw, f.at*int64(time.Millisecond), Where{}, f.frame)
		if p := w.Next(); p != nil && p.SetBack {
			marked = append(marked, f.at)
		}
	}
	if n := w.Counts().SetBack; !slices.Equal(marked, []int64{2200}) || n != 1 {
		t.Errorf("got marks %v, counted %d", marked, n)
	}
}

// TestCutFrames checks that a packet has the number of bytes that the capture cut off.
func TestCutFrames(t *testing.T) {
	udp := udp4(t, "hello")
	tcp := build(t, ip4Layer(layers.IPProtocolTCP), &layers.TCP{SrcPort: 5060, DstPort: 5062, Options: []layers.TCPOption{{OptionType: 1}}}, gopacket.Payload("hello"))
	sctp := sctp4(t, dataChunk(3, 1, 0, 0, 46, "hello"), dataChunk(3, 2, 0, 0, 46, "world"))
	const ends = "192.0.2.1:5060>192.0.2.2:5062"
	tests := []struct {
		name  string
		frame []byte
		want  string
	}{
		{"UDP", udp[:len(udp)-2], `UDP ` + ends + ` "hel" missing 2`},
		{"TCP", tcp[:len(tcp)-2], `TCP ` + ends + ` "hel" missing 2`},
		{"TCP options", tcp[:42], `TCP ` + ends + ` "" missing 5`},
		{"SCTP", sctp[:len(sctp)-5], `SCTP ` + ends + ` "hello" stream 0 ppid 46 tsn 1; SCTP ` + ends + ` "wor" missing 2 stream 0 ppid 46 tsn 2`},
		{"SCTP chunk", sctp[:len(sctp)-24], `SCTP ` + ends + ` "hello" stream 0 ppid 46 tsn 1`},
		{"SCTP chunk header", sctp[:len(sctp)-10], `SCTP ` + ends + ` "hello" stream 0 ppid 46 tsn 1`},
		{"UDP header", udp[:27], ""},
		{"IP header", udp[:19], ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := NewWalker(Options{})
			if got := strings.Join(walk(w, Raw, test.frame), "; "); got != test.want {
				t.Errorf("got %s\nwant %s", got, test.want)
			}
			if c := w.Counts(); c.Cut+c.Malformed != 1 {
				t.Errorf("%+v", c)
			}
		})
	}
}

// TestFramesThatAreNotDelivered checks that each kind of them is counted.
func TestFramesThatAreNotDelivered(t *testing.T) {
	hi := udp4(t, "hi")
	edit := func(at int, value byte) []byte {
		b := join(hi)
		b[at] = value
		return b
	}
	tests := []struct {
		name  string
		link  LinkType
		frame []byte
		count func(c *Counts) uint64
	}{
		{"ARP", Ethernet, framed(make([]byte, 28), 0x0806), func(c *Counts) uint64 { return c.NotIP }},
		{"802.2", Ethernet, framed(make([]byte, 60), 60), func(c *Counts) uint64 { return c.NotIP }},
		{"ICMP", Raw, edit(9, 1), func(c *Counts) uint64 { return c.NotTransport }},
		{"ARP in VXLAN", Raw, vxlan(t, framed(make([]byte, 28), 0x0806)), func(c *Counts) uint64 { return c.NotIP }},
		{"unknown link type", 220, hi, func(c *Counts) uint64 { return c.Unknown[220] }},
		{"unknown address family", Null, join(be32(7), hi), func(c *Counts) uint64 { return c.NotIP }},
		{"header length of IP below 20", Raw, edit(0, 0x44), func(c *Counts) uint64 { return c.Malformed }},
		{"total length of IP below its header", Raw, edit(3, 19), func(c *Counts) uint64 { return c.Malformed }},
		{"length of UDP below its header", Raw, edit(25, 7), func(c *Counts) uint64 { return c.Malformed }},
		{"header length of TCP", Raw, join(edit(9, 6)[:20], make([]byte, 20)), func(c *Counts) uint64 { return c.Malformed }},
		{"SCTP chunk of length 0", Raw, sctp4(t, []byte{0, 3, 0, 0}), func(c *Counts) uint64 { return c.Malformed }},
		{"SCTP chunk longer than its packet", Raw, sctp4(t, []byte{0, 3, 0, 200, 1, 2, 3, 4}), func(c *Counts) uint64 { return c.Malformed }},
		{"SCTP chunk of I-DATA", Raw, sctp4(t, []byte{64, 3, 0, 24}, make([]byte, 20)), func(c *Counts) uint64 { return c.Interleaved }},
		{"empty frame", Raw, nil, func(c *Counts) uint64 { return c.Malformed }},
		{"short Ethernet", Ethernet, make([]byte, 13), func(c *Counts) uint64 { return c.Malformed }},
		{"short tag", Ethernet, framed([]byte{1, 2}, etherVLAN), func(c *Counts) uint64 { return c.Malformed }},
		{"short SLL", SLL, make([]byte, 15), func(c *Counts) uint64 { return c.Malformed }},
		{"short SLL2", SLL2, make([]byte, 19), func(c *Counts) uint64 { return c.Malformed }},
		{"short loopback", Loop, make([]byte, 3), func(c *Counts) uint64 { return c.Malformed }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := NewWalker(Options{})
			if got := walk(w, test.link, test.frame); len(got) != 0 || test.count(w.Counts()) != 1 {
				t.Errorf("got %v, counts %+v", got, w.Counts())
			}
		})
	}
	if got := LinkType(220).String(); got != "link type 220 (USB)" {
		t.Error(got)
	}
}

// TestTunnelsAreNotFollowedForEver checks that a packet inside too many tunnels is
// delivered as a packet of the innermost tunnel that is read.
func TestTunnelsAreNotFollowedForEver(t *testing.T) {
	frame := udp4(t, "hi")
	for range maxTunnels + 3 {
		frame = gtpu(t, 0x30, 255, frame)
	}
	w := NewWalker(Options{})
	w.Walk(Raw, 0, Where{}, frame)
	if p := w.Next(); p == nil || p.Dst != netip.AddrPortFrom(dst4, 2152) {
		t.Errorf("%+v", p)
	}
}
