// Package packet sends probes at scheduled times and receives them with the
// kernel's time stamps.
//
// A probe is an Ethernet frame with an IPv4 and a UDP header. The first
// PayloadSize bytes after them hold its Probe. Sizes of frames are in bytes
// without the frame check sequence. All times are nanoseconds of CLOCK_REALTIME,
// the clock of the kernel's stamps. During a stream they follow the steady clock,
// from the value of CLOCK_REALTIME at the stream's beginning (Clock).
package packet

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"vitrine"
)

// Sizes, in bytes.
const (
	HeaderSize  = 14 + 20 + 8              // of Ethernet, IPv4 and UDP
	PayloadSize = 22                       // of a Probe
	MinSize     = HeaderSize + PayloadSize // 64: the minimum frame size
	MaxSize     = 9216                     // the largest that any network card takes
	etherSize   = 14
)

const (
	offEtherType = 12
	offIP        = 14
	offFragment  = offIP + 6
	offProtocol  = offIP + 9
	offSource    = offIP + 12
	offDest      = offIP + 16
	offUDP       = offIP + 20
)

// Sizes returns the frame sizes of RFC 2544, section 9.1, as the container
// networking paper uses them: without the frame check sequence.
func Sizes() []int { return []int{64, 128, 256, 512, 1024, 1280, 1514} }

// A Probe is the content of a frame.
type Probe struct {
	Run       uint32 // label of the measurement, which other frames do not have
	Stream    uint16 // number within the run, from 1
	Sequence  uint32 // from 0
	Scheduled int64  // when it should have been sent; ns
	Sent      int64  // when it was sent: just before the send call; ns. At most 4.29 s after Scheduled.
}

// Ends are the source and the destination of a frame.
type Ends struct {
	SourceMAC, DestMAC net.HardwareAddr // six bytes each
	Source, Dest       netip.AddrPort   // IPv4
}

// Check returns a *vitrine.BadInput if a frame cannot have these ends.
func (e Ends) Check() error {
	switch {
	case len(e.SourceMAC) != 6 || len(e.DestMAC) != 6:
		return &vitrine.BadInput{File: "frame", Found: fmt.Sprintf("MAC addresses %q and %q", e.SourceMAC, e.DestMAC), Want: "want six bytes each"}
	case !e.Source.Addr().Is4() || !e.Dest.Addr().Is4() || e.Source.Port() == 0 || e.Dest.Port() == 0:
		return &vitrine.BadInput{File: "frame", Found: fmt.Sprintf("addresses %v and %v", e.Source, e.Dest), Want: "want IPv4 addresses with ports"}
	}
	return nil
}

// Build writes the headers of a frame of the length of b, and zeroes the rest of b. It omits the
// UDP checksum, as RFC 768 allows, because the payload changes with every probe.
func Build(b []byte, e Ends) error {
	if err := e.Check(); err != nil {
		return err
	}
	if len(b) < MinSize || len(b) > MaxSize {
		return &vitrine.BadInput{File: "frame size", Found: fmt.Sprintf("%d bytes", len(b)), Want: fmt.Sprintf("want %d to %d, without the frame check sequence", MinSize, MaxSize)}
	}
	clear(b)
	copy(b, e.DestMAC)
	copy(b[6:], e.SourceMAC)
	binary.BigEndian.PutUint16(b[offEtherType:], 0x0800)
	ip := b[offIP:offUDP]
	ip[0] = 0x45
	binary.BigEndian.PutUint16(ip[2:], uint16(len(b)-etherSize))
	binary.BigEndian.PutUint16(ip[6:], 0x4000) // do not fragment
	ip[8], ip[9] = 64, 17                      // time to live, UDP
	source, dest := e.Source.Addr().As4(), e.Dest.Addr().As4()
	copy(b[offSource:], source[:])
	copy(b[offDest:], dest[:])
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	udp := b[offUDP:HeaderSize]
	binary.BigEndian.PutUint16(udp, e.Source.Port())
	binary.BigEndian.PutUint16(udp[2:], e.Dest.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(b)-offUDP))
	return nil
}

// checksum returns the checksum of an IPv4 header whose checksum field is zero (RFC 1071).
func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// Put writes the probe into a payload of at least PayloadSize bytes.
//
//go:nosplit
func (p Probe) Put(payload []byte) {
	_ = payload[PayloadSize-1]
	binary.BigEndian.PutUint32(payload, p.Run)
	binary.BigEndian.PutUint16(payload[4:], p.Stream)
	binary.BigEndian.PutUint32(payload[6:], p.Sequence)
	binary.BigEndian.PutUint64(payload[10:], uint64(p.Scheduled))
	binary.BigEndian.PutUint32(payload[18:], uint32(min(max(p.Sent-p.Scheduled, 0), 1<<32-1)))
}

// ParsePayload reads the probe from a datagram.
func ParsePayload(b []byte) (Probe, bool) {
	if len(b) < PayloadSize {
		return Probe{}, false
	}
	p := Probe{
		Run:       binary.BigEndian.Uint32(b),
		Stream:    binary.BigEndian.Uint16(b[4:]),
		Sequence:  binary.BigEndian.Uint32(b[6:]),
		Scheduled: int64(binary.BigEndian.Uint64(b[10:])),
	}
	p.Sent = p.Scheduled + int64(binary.BigEndian.Uint32(b[18:]))
	return p, true
}

// Parse reads the probe and the destination port from a frame. ok is false for a frame of another
// kind, for a fragment, and for a truncated frame.
func Parse(frame []byte) (p Probe, port uint16, ok bool) {
	if len(frame) < MinSize || binary.BigEndian.Uint16(frame[offEtherType:]) != 0x0800 ||
		frame[offIP] != 0x45 || frame[offProtocol] != 17 || binary.BigEndian.Uint16(frame[offFragment:])&0x3fff != 0 {
		return Probe{}, 0, false
	}
	length := int(binary.BigEndian.Uint16(frame[offUDP+4:]))
	if length < 8+PayloadSize || offUDP+length > len(frame) {
		return Probe{}, 0, false
	}
	p, ok = ParsePayload(frame[HeaderSize : offUDP+length])
	return p, binary.BigEndian.Uint16(frame[offUDP+2:]), ok
}
