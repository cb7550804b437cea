package impair

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/mmsg"
	"vitrine/internal/ring"
)

const (
	slots    = 1 << 12 // 80 ms of 50,000 packets a second
	slotSize = 2048    // bytes; a longer frame, such as one that is not cut into segments yet, is read from the socket itself
	vnetSize = 10      // bytes of struct virtio_net_hdr before each frame
	maxWhole = vnetSize + 1<<16 + 64
	tagSize  = 4  // bytes of a VLAN tag
	macSize  = 12 // bytes of both MAC addresses
)

// A socket receives all frames that an interface receives, and sends frames by
// it. Each frame has a virtio_net_hdr before it, so that checksums and segments
// that are still to be made are passed on as they are.
type socket struct {
	*ring.Ring
	slot  int    // of the latest frame
	whole []byte // buffer for a frame longer than a slot
}

// openSocket opens the socket of an interface in the thread's network namespace.
func openSocket(name string) (*socket, error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("looking for interface %s: %w", name, err)
	}
	const stamps = unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE
	r, err := ring.Open(ring.Config{
		Interface: link.Index, Slots: slots, SlotSize: slotSize, Head: vnetSize,
		Options: []ring.Option{
			{Level: unix.SOL_PACKET, Name: unix.PACKET_VNET_HDR, Value: 1},
			{Level: unix.SOL_PACKET, Name: unix.PACKET_COPY_THRESH, Value: slotSize},
			{Level: unix.SOL_PACKET, Name: unix.PACKET_TIMESTAMP, Value: unix.SOF_TIMESTAMPING_SOFTWARE},
			{Level: unix.SOL_SOCKET, Name: unix.SO_TIMESTAMPING, Value: stamps},
			{Level: unix.SOL_SOCKET, Name: unix.SO_RCVBUFFORCE, Value: 64 << 20},
			{Level: unix.SOL_SOCKET, Name: unix.SO_SNDBUFFORCE, Value: 64 << 20},
		},
	})
	if err != nil {
		return nil, unsupported(fmt.Errorf("receiving by %s: %w", name, err))
	}
	return &socket{Ring: r, whole: make([]byte, maxWhole)}, nil
}

// A frame is a received frame: virtio_net_hdr and Ethernet frame. It is valid
// until release.
type frame struct {
	ring.Frame
	cut bool // incomplete: longer than a slot, and not whole in the socket either
}

// next reads the next frame and reports whether there was one. The frame must
// be released before the next call.
func (s *socket) next(f *frame) (ok bool) {
	if s.slot, ok = s.Next(&f.Frame); !ok {
		return false
	}
	whole := vnetSize + f.Length
	f.cut = len(f.Bytes) < whole
	if f.Queued {
		n, err := unix.Read(s.FD(), s.whole)
		f.cut = err != nil || n < whole
		f.Bytes = s.whole[:max(n, 0)]
	}
	return true
}

// release returns the slot of the latest frame to the kernel.
func (s *socket) release() { s.Release(s.slot) }

// length returns how many bytes the frame needs in a lane.
func (f *frame) length() int {
	if f.Tag != 0 {
		return len(f.Bytes) + tagSize
	}
	return len(f.Bytes)
}

// copyTo copies the frame to b and puts its VLAN tag back where the kernel took
// it out.
func (f *frame) copyTo(b []byte) {
	if f.Tag == 0 {
		copy(b, f.Bytes)
		return
	}
	const head = vnetSize + macSize
	copy(b, f.Bytes[:head])
	b[head], b[head+1], b[head+2], b[head+3] = byte(f.Tag>>24), byte(f.Tag>>16), byte(f.Tag>>8), byte(f.Tag)
	copy(b[head+tagSize:], f.Bytes[head:])
	for _, at := range []int{2, 6} { // hdr_len and csum_start, which count from the frame's start
		if v := uint16(b[at]) | uint16(b[at+1])<<8; v > 0 {
			v += tagSize
			b[at], b[at+1] = byte(v), byte(v>>8)
		}
	}
}

// A batch holds the frames that one sendmmsg(2) sends.
type batch struct {
	messages [batchSize]mmsg.Message
	vectors  [batchSize]unix.Iovec
}

// batchSize bounds how long one direction keeps the others waiting. It is the
// number of bits that send returns.
const batchSize = 32

// set sets the n-th message to the bytes.
func (b *batch) set(n int, bytes []byte) {
	b.vectors[n] = mmsg.Vector(bytes)
	b.messages[n].SetVectors(b.vectors[n : n+1])
}

// send sends the first n messages. Bit i of refused says that the kernel refused
// message i.
func (b *batch) send(s *socket, n int) (refused uint32) {
	for at := 0; at < n; {
		done, errno := mmsg.Send(s.FD(), b.messages[at:n], unix.MSG_DONTWAIT)
		if errno != 0 {
			refused |= 1 << at
			done = 1
		}
		at += done
	}
	return refused
}

// unsupported turns a missing kernel feature or privilege into a
// *vitrine.Unsupported.
func unsupported(err error) error {
	switch {
	case vitrine.IsUnsupported(err):
	case errors.Is(err, unix.EPERM):
		return &vitrine.Unsupported{What: "impaired links", Missing: "the privilege (CAP_NET_ADMIN, CAP_NET_RAW): " + err.Error(), Do: "run as root"}
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EAFNOSUPPORT), errors.Is(err, unix.ENOPROTOOPT):
		return &vitrine.Unsupported{What: "impaired links", Missing: "a kernel option (CONFIG_PACKET, CONFIG_VETH; Linux 4.20): " + err.Error(), Do: "modprobe af_packet veth"}
	}
	return err
}
