package capture

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"time"
)

// Disorder is how much later than its successor a frame may be, because several CPUs
// capture. If a frame is later by more, a clock was set back.
const Disorder = time.Second

// maxTunnels bounds the nesting of tunnels.
const maxTunnels = 8

// A Walker splits frames into packets. The zero value is not valid: use NewWalker.
type Walker struct {
	counts Counts
	packet Packet
	ready  bool // packet is ready for Next

	at      int64 // time of the frame
	setBack bool  // a clock was set back since the last packet

	src, dst  netip.Addr // addresses of the innermost IP header so far
	tunnels   int        // number of tunnels around it
	fragments table[datagramKey]
	datagrams [64]datagram // see Walker.lastDatagram

	// The rest of an SCTP packet.
	chunks     []byte
	missing    int // bytes that the capture cut off after chunks
	messages   table[messageKey]
	assembled  []byte
	completed  [64]completion    // the last messages that were reassembled, as a ring
	incomplete func(ppid uint32) // Options.Incomplete
}

// NewWalker returns a Walker.
func NewWalker(o Options) *Walker {
	w := &Walker{}
	w.init(o)
	return w
}

func (w *Walker) init(o Options) {
	o.MaxMemory = cmp.Or(o.MaxMemory, 64<<20)
	o.FragmentTimeout = cmp.Or(o.FragmentTimeout, 30*time.Second)
	w.counts.Unknown = map[LinkType]uint64{}
	w.incomplete = o.Incomplete
	w.fragments.init(o.MaxMemory/2, o.FragmentTimeout, &w.counts.IP, w.countDatagram)
	w.messages.init(o.MaxMemory/2, o.FragmentTimeout, &w.counts.Messages, w.countMessages)
}

// Walk begins a frame. Next returns its packets.
func (w *Walker) Walk(link LinkType, at int64, where Where, frame []byte) {
	w.ready, w.chunks, w.missing, w.tunnels = false, nil, 0, 0
	w.fragments.recycle()
	w.messages.recycle()
	w.packet = Packet{Time: at, Where: where}
	if w.counts.Frames > 0 && at < w.at-int64(Disorder) {
		w.counts.SetBack++
		w.setBack = true
	}
	w.at = at
	w.counts.Frames++
	w.counts.Bytes += uint64(len(frame))
	w.link(link, frame)
}

// Next returns the next packet of the frame, or nil. The packet is valid until the
// next call of Next or Walk.
func (w *Walker) Next() *Packet {
	if !w.ready && !w.chunk() {
		return nil
	}
	w.ready = false
	w.packet.SetBack, w.setBack = w.setBack, false
	if w.packet.Missing > 0 {
		w.counts.Cut++
	}
	return &w.packet
}

// finish drops and counts the datagrams and messages that are incomplete at the end of the
// capture.
func (w *Walker) finish() {
	w.fragments.expireAll()
	w.messages.expireAll()
}

// Counts returns the counts up to now. The caller must not change them.
func (w *Walker) Counts() *Counts { return &w.counts }

// transport reads a packet of a transport. missing is the number of its bytes that the
// capture cut off.
func (w *Walker) transport(protocol uint8, b []byte, missing int) {
	switch Transport(protocol) {
	case UDP:
		w.udp(b, missing)
	case TCP:
		w.tcp(b, missing)
	case SCTP:
		w.sctp(b, missing)
	default:
		w.counts.NotTransport++
	}
}

// udp reads a UDP datagram (RFC 768), and the packet inside if the datagram belongs to a
// tunnel.
func (w *Walker) udp(b []byte, missing int) {
	const header = 8
	if len(b) < header {
		w.counts.Malformed++
		return
	}
	// Zero means a jumbogram (RFC 2675), or a packet that the network card segments.
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length == 0 || length > len(b)+missing {
		length = len(b) + missing
	}
	if length < header {
		w.counts.Malformed++
		return
	}
	payload := b[header:min(length, len(b))]
	if w.tunnel(binary.BigEndian.Uint16(b[2:]), payload) {
		return
	}
	w.counts.UDP++
	w.deliver(UDP, b, payload, length-header-len(payload))
}

// tcp reads a TCP segment (RFC 9293 section 3.1).
func (w *Walker) tcp(b []byte, missing int) {
	const header = 20
	if len(b) < header {
		w.counts.Malformed++
		return
	}
	length := int(b[12]>>4) * 4
	if length < header || length > len(b)+missing {
		w.counts.Malformed++
		return
	}
	if length > len(b) { // the capture cut off some options
		missing -= length - len(b)
		length = len(b)
	}
	w.packet.Seq = binary.BigEndian.Uint32(b[4:])
	w.packet.Ack = binary.BigEndian.Uint32(b[8:])
	w.packet.Flags = Flags(b[13])
	w.counts.TCP++
	w.deliver(TCP, b, b[length:], missing)
}

// deliver makes the packet ready for Next. b begins with the ports.
func (w *Walker) deliver(t Transport, b, payload []byte, missing int) {
	w.endpoints(t, b)
	w.packet.Payload, w.packet.Missing = payload, missing
	w.ready = true
}

// endpoints sets the transport and the endpoints of the packet. b begins with the
// ports.
func (w *Walker) endpoints(t Transport, b []byte) {
	p := &w.packet
	p.Transport = t
	p.Src = netip.AddrPortFrom(w.src, binary.BigEndian.Uint16(b))
	p.Dst = netip.AddrPortFrom(w.dst, binary.BigEndian.Uint16(b[2:]))
}
