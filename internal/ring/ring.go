// Package ring receives frames of an interface in memory that it shares with the kernel. It uses
// the receive ring of a packet socket, version TPACKET_V2 (the kernel's
// Documentation/networking/packet_mmap.rst). V2 passes on each frame as soon as it is written. V3
// passes on blocks of frames, whole milliseconds late.
package ring

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// blockSize is the size in bytes of the contiguous blocks that the kernel allocates.
const blockSize = 1 << 18

// A Config describes a Ring.
type Config struct {
	Interface int      // index, in the network namespace of the calling thread
	Slots     int      // frames that can wait; a power of two
	SlotSize  int      // bytes; a power of two
	Head      int      // bytes in Frame.Bytes before the Ethernet frame
	Options   []Option // set before the ring is made
}

// An Option is a socket option.
type Option struct{ Level, Name, Value int }

// A Ring is a packet socket with its receive ring. It receives frames that arrive at the
// interface, but not frames that leave it.
type Ring struct {
	fd     int
	config Config
	memory []byte
	at     int // slot that Next reads
}

// A Frame is a received frame. Bytes is valid until its slot is released.
type Frame struct {
	Bytes   []byte // Head bytes and the Ethernet frame, as far as it fits the slot
	Length  int    // bytes of the whole Ethernet frame
	Arrived int64  // nanoseconds of CLOCK_REALTIME
	Tag     uint32 // VLAN tag that the kernel removed: TPID<<16 | TCI; 0: none
	Queued  bool   // the whole frame also waits in the socket (PACKET_COPY_THRESH)
}

// Open opens a Ring; the caller closes it.
func Open(config Config) (r *Ring, err error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	r = &Ring{fd: fd, config: config}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
			r = nil
		}
	}()
	for _, o := range append([]Option{
		{unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2},
		{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
	}, config.Options...) {
		if err := unix.SetsockoptInt(fd, o.Level, o.Name, o.Value); err != nil {
			return r, fmt.Errorf("set option %d of a packet socket: %w", o.Name, err)
		}
	}
	size, block := config.Slots*config.SlotSize, max(blockSize, config.SlotSize)
	err = unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(size / block),
		Frame_size: uint32(config.SlotSize), Frame_nr: uint32(config.Slots),
	})
	if err != nil {
		return r, fmt.Errorf("make a receive ring of %d frames: %w", config.Slots, err)
	}
	r.memory, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return r, fmt.Errorf("map the receive ring: %w", err)
	}
	// Bind last, because no frame may arrive before the ring exists.
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: mmsg.NetworkOrder(unix.ETH_P_ALL), Ifindex: config.Interface})
	if err != nil {
		return r, fmt.Errorf("bind a packet socket to interface %d: %w", config.Interface, err)
	}
	return r, nil
}

// FD returns the socket, for polling and sending.
func (r *Ring) FD() int { return r.fd }

// Close unmaps the memory and closes the socket.
func (r *Ring) Close() error {
	var err error
	if r.memory != nil {
		err = unix.Munmap(r.memory)
		r.memory = nil
	}
	return errors.Join(err, unix.Close(r.fd))
}

// Next returns the next frame and its slot once the kernel has passed it on. The caller must hold
// fewer than Slots frames.
func (r *Ring) Next(f *Frame) (slot int, ok bool) {
	slot = r.at
	head := r.header(slot)
	status := atomic.LoadUint32(&head.Status)
	if status&unix.TP_STATUS_USER == 0 {
		return slot, false
	}
	r.at = (r.at + 1) & (r.config.Slots - 1)
	start := slot*r.config.SlotSize + int(head.Mac)
	end := start + int(head.Snaplen)
	*f = Frame{
		Bytes:   r.memory[start-r.config.Head : end : end],
		Length:  int(head.Len),
		Arrived: int64(head.Sec)*1e9 + int64(head.Nsec),
		Queued:  status&unix.TP_STATUS_COPY != 0,
	}
	if status&unix.TP_STATUS_VLAN_VALID != 0 {
		kind := uint16(unix.ETH_P_8021Q)
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			kind = head.Vlan_tpid
		}
		f.Tag = uint32(kind)<<16 | uint32(head.Vlan_tci)
	}
	return slot, true
}

// Release returns a slot to the kernel.
func (r *Ring) Release(slot int) {
	atomic.StoreUint32(&r.header(slot).Status, unix.TP_STATUS_KERNEL)
}

func (r *Ring) header(slot int) *unix.Tpacket2Hdr {
	return (*unix.Tpacket2Hdr)(unsafe.Pointer(&r.memory[slot*r.config.SlotSize]))
}

// Dropped returns how many frames found no free slot since the last call.
func (r *Ring) Dropped() (uint64, error) {
	s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read a packet socket's counters: %w", err)
	}
	return uint64(s.Drops), nil
}

// Err returns and clears the socket's pending error, such as ENETDOWN.
func (r *Ring) Err() error {
	code, err := unix.GetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}
