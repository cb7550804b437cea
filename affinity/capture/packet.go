// Package capture reads packet captures and returns UDP datagrams, TCP segments and SCTP
// user messages.
//
// It reads pcap and pcapng files, also compressed by gzip or zstd, and merges several files
// by time in one pass. It can also capture on network interfaces. It removes link layers,
// VLAN tags, VXLAN and GTP-U, and reassembles the fragments of IP and SCTP. It does not
// verify checksums: with checksum offload, a sender's capture has wrong ones.
//
// Options bounds the memory. Counts has the number of datagrams and messages dropped to
// stay within it.
package capture

import (
	"fmt"
	"net/netip"
)

// A Packet is one message of a transport: a UDP datagram, a TCP segment or an SCTP
// user message. One frame can carry several SCTP messages.
type Packet struct {
	Time      int64 // nanoseconds since 1970 UTC, after Options.Correct; of the last fragment
	SetBack   bool  // a clock was set back by more than Disorder since the packet before
	Where     Where
	Transport Transport
	Src, Dst  netip.AddrPort // of the innermost IP header
	ID        uint16         // identification of the innermost IPv4 header; zero for IPv6

	Payload []byte // valid until the next packet
	Missing int    // bytes of the payload that the capture cut off after Payload

	Seq, Ack uint32 // TCP
	Flags    Flags  // TCP

	Tag    uint32 // SCTP: verification tag
	TSN    uint32 // SCTP: of the message's first fragment
	PPID   uint32 // SCTP: payload protocol identifier
	Stream uint16 // SCTP: stream identifier
}

// Where is the place where a packet was captured.
type Where struct {
	File      uint16 // index in the list that Open received
	Interface uint16 // in the file, in the order of its interface descriptions over all sections
	Link      uint32 // LINUX_SLL2: index of the interface on its host; LINUX_SLL: a hash that mostly tells interfaces apart
}

// A Transport is the protocol number of a transport.
type Transport uint8

// The transports of packets.
const (
	TCP  Transport = 6
	UDP  Transport = 17
	SCTP Transport = 132
)

func (t Transport) String() string {
	switch t {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return fmt.Sprintf("protocol %d", uint8(t))
}

// Flags are the control bits of a TCP segment (RFC 9293 section 3.1).
type Flags uint8

// The control bits that matter to reassembly.
const (
	FIN Flags = 1
	SYN Flags = 2
	RST Flags = 4
	ACK Flags = 16
)

// Counts has numbers of what the captures contained and of what was dropped.
type Counts struct {
	Frames uint64 // read from files or interfaces
	Bytes  uint64 // captured bytes of those frames
	Lost   uint64 // frames at interfaces that the kernel dropped, because they were read too slowly

	UDP, TCP, SCTP uint64 // packets delivered

	Cut          uint64 // packets delivered with bytes missing, and SCTP packets that lack whole chunks
	Malformed    uint64 // frames with a header that contradicts itself or ends too early
	NotIP        uint64 // frames of other network layers, such as ARP
	NotTransport uint64 // packets of other transports, such as ICMP
	Interleaved  uint64 // SCTP chunks of I-DATA (RFC 8260), which are not read
	SetBack      uint64 // frames more than 1 s earlier than the one before: a clock was set back

	IP       Reassembly // fragments of IPv4 and IPv6
	Messages Reassembly // fragments of SCTP user messages

	Unknown map[LinkType]uint64 // frames of link types that cannot be read
}

// Reassembly counts fragments, and the datagrams or messages that they belong to.
type Reassembly struct {
	Fragments  uint64
	Complete   uint64 // datagrams or messages
	Repeated   uint64 // fragments that repeat an earlier one
	Overlapped uint64 // datagrams dropped because two fragments overlap (RFC 5722, RFC 8200 section 4.5)
	Expired    uint64 // datagrams or messages that lacked a fragment for too long, or at the end of the capture
	GivenUp    uint64 // datagrams or messages dropped for lack of memory, or because they are too large
}
