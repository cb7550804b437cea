package impair

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/mmsg"
)

// The receive ring (packet_mmap, TPACKET_V2: a slot is seen as soon as it is
// written, where V3 fills blocks). A frame that is longer than a slot, as those
// that the kernel has not cut into segments yet are, comes by the socket itself
// (PACKET_COPY_THRESH).
const (
	slotSize  = 2048
	blockSize = 1 << 20
	slots     = 1 << 12 // 80 ms of 50,000 packets a second
	vnetSize  = 10      // bytes of struct virtio_net_hdr before each frame
	wholeMost = vnetSize + 1<<16 + 64
	tagSize   = 4  // bytes of a VLAN tag
	macSize   = 12 // bytes of both MAC addresses
)

// A socket takes all frames that an interface receives, and sends frames by it.
// Both have a virtio_net_hdr before them, by which checksums and segments that
// are still to be made are passed on as they are.
type socket struct {
	fd    int
	ring  []byte
	slot  int    // that is read next
	whole []byte // a frame that was longer than a slot
}

// openSocket opens the socket of an interface in the thread's network namespace.
func openSocket(name string) (_ *socket, err error) {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("looking for interface %s: %w", name, err)
	}
	s := &socket{whole: make([]byte, wholeMost)}
	s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, unsupported(fmt.Errorf("opening a packet socket: %w", err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	const stamps = unix.SOF_TIMESTAMPING_RX_SOFTWARE | unix.SOF_TIMESTAMPING_SOFTWARE
	for _, option := range []struct {
		level, name, value int
	}{
		{unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2},
		{unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		{unix.SOL_PACKET, unix.PACKET_COPY_THRESH, slotSize},
		{unix.SOL_PACKET, unix.PACKET_TIMESTAMP, unix.SOF_TIMESTAMPING_SOFTWARE},
		{unix.SOL_SOCKET, unix.SO_TIMESTAMPING, stamps},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64 << 20},
		{unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64 << 20},
	} {
		if err := unix.SetsockoptInt(s.fd, option.level, option.name, option.value); err != nil {
			return nil, unsupported(fmt.Errorf("setting option %d of a packet socket: %w", option.name, err))
		}
	}
	request := unix.TpacketReq{Block_size: blockSize, Block_nr: slots * slotSize / blockSize, Frame_size: slotSize, Frame_nr: slots}
	if err := unix.SetsockoptTpacketReq(s.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &request); err != nil {
		return nil, unsupported(fmt.Errorf("making a receive ring: %w", err))
	}
	if s.ring, err = unix.Mmap(s.fd, 0, slots*slotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping the receive ring: %w", err)
	}
	address := &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: link.Index}
	if err := unix.Bind(s.fd, address); err != nil {
		return nil, fmt.Errorf("binding a packet socket to %s: %w", name, err)
	}
	return s, nil
}

func bigEndian(v uint16) uint16 { return v<<8 | v>>8 }

func (s *socket) close() error {
	var errs []error
	if s.ring != nil {
		errs = append(errs, unix.Munmap(s.ring))
	}
	return errors.Join(append(errs, unix.Close(s.fd))...)
}

// A frame is one that was received.
type frame struct {
	bytes   []byte // virtio_net_hdr and Ethernet frame; valid until release
	arrived int64  // nanoseconds of CLOCK_REALTIME
	tag     uint32 // VLAN: TPID<<16 | TCI; 0: none
	cut     bool   // it did not fit and there was no room for the whole of it
}

// next gives the frame that came next, to be released before the one after it
// is asked for; false: there is none yet.
func (s *socket) next(f *frame) bool {
	slot := s.ring[s.slot*slotSize : (s.slot+1)*slotSize]
	header := (*unix.Tpacket2Hdr)(unsafe.Pointer(&slot[0]))
	status := atomic.LoadUint32(&header.Status)
	if status&unix.TP_STATUS_USER == 0 {
		return false
	}
	f.arrived = int64(header.Sec)*1e9 + int64(header.Nsec)
	f.cut = header.Snaplen < header.Len
	f.tag = 0
	if status&unix.TP_STATUS_VLAN_VALID != 0 {
		f.tag = uint32(header.Vlan_tpid)<<16 | uint32(header.Vlan_tci)
	}
	f.bytes = slot[int(header.Mac)-vnetSize : int(header.Mac)+int(header.Snaplen)]
	if status&unix.TP_STATUS_COPY != 0 {
		n, err := unix.Read(s.fd, s.whole)
		f.cut = err != nil || n < vnetSize+int(header.Len)
		f.bytes = s.whole[:max(n, 0)]
	}
	return true
}

// release gives the slot of the latest frame back to the kernel.
func (s *socket) release() {
	header := (*unix.Tpacket2Hdr)(unsafe.Pointer(&s.ring[s.slot*slotSize]))
	atomic.StoreUint32(&header.Status, unix.TP_STATUS_KERNEL)
	s.slot = (s.slot + 1) & (slots - 1)
}

// overrun is how many frames found no slot since it was asked last.
func (s *socket) overrun() (int64, error) {
	stats, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("reading how many frames were missed: %w", err)
	}
	return int64(stats.Drops), nil
}

// length is how many bytes the frame needs in a lane.
func (f *frame) length() int {
	if f.tag != 0 {
		return len(f.bytes) + tagSize
	}
	return len(f.bytes)
}

// copyTo writes the frame, with its VLAN tag back in its place, where the
// kernel took it from.
func (f *frame) copyTo(b []byte) {
	if f.tag == 0 {
		copy(b, f.bytes)
		return
	}
	const head = vnetSize + macSize
	copy(b, f.bytes[:head])
	b[head], b[head+1], b[head+2], b[head+3] = byte(f.tag>>24), byte(f.tag>>16), byte(f.tag>>8), byte(f.tag)
	copy(b[head+tagSize:], f.bytes[head:])
	for _, at := range []int{2, 6} { // hdr_len and csum_start, which count from the frame's start
		if v := uint16(b[at]) | uint16(b[at+1])<<8; v > 0 {
			v += tagSize
			b[at], b[at+1] = byte(v), byte(v>>8)
		}
	}
}

// A batch is what one sendmmsg(2) sends.
type batch struct {
	messages [batchSize]mmsg.Message
	vectors  [batchSize]unix.Iovec
}

// batchSize bounds how long one direction keeps the other waiting.
const batchSize = 32

// set makes the n-th message of the bytes.
func (b *batch) set(n int, bytes []byte) {
	b.vectors[n] = mmsg.Vector(bytes)
	b.messages[n].SetVectors(b.vectors[n : n+1])
}

// send sends the first n messages; it gives how many the kernel did not take.
func (b *batch) send(s *socket, n int) (refused int) {
	for at := 0; at < n; {
		done, errno := mmsg.Send(s.fd, b.messages[at:n], unix.MSG_DONTWAIT)
		if errno != 0 {
			refused++
			done = 1
		}
		at += done
	}
	return refused
}

// unsupported turns a refusal by the kernel into what this host cannot do.
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
