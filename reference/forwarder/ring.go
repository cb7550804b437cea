package forwarder

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	ringSlots = 2048    // frames that can wait: a tenth of a second of 20,000 a second
	blockSize = 1 << 18 // bytes; the kernel needs that much in one piece
	// slotHead is the most that lies in a slot before the frame.
	slotHead = 128
)

// A ring is a packet socket's receive ring of the kind TPACKET_V2 (the
// kernel's Documentation/networking/packet_mmap.rst): its frames are handed
// over one by one. V3 hands over blocks, whole milliseconds late.
type ring struct {
	fd       int
	memory   []byte
	slotSize int
	perBlock int
	at       int // slot to be looked at next
}

// A received frame lies in the ring's memory until its slot is released.
type received struct {
	bytes  []byte // without a tag that the kernel has taken out
	before []byte // the tag's room, right before bytes
	tag    [tagSize]byte
	hasTag bool
	cut    bool // it did not fit the slot
}

func newRing(index, mtu int) (r *ring, err error) {
	r = &ring{slotSize: 1 << 11}
	for r.slotSize < mtu+headerSize+maxTags*tagSize+slotHead {
		r.slotSize *= 2
	}
	block := max(blockSize, r.slotSize)
	r.perBlock = block / r.slotSize
	if r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
			r = nil
		}
	}()
	for _, option := range []struct{ name, value int }{
		{unix.PACKET_VERSION, unix.TPACKET_V2},
		{unix.PACKET_RESERVE, tagSize},
		{unix.PACKET_IGNORE_OUTGOING, 1},
	} {
		if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, option.name, option.value); err != nil {
			return r, fmt.Errorf("set option %d of a packet socket: %w", option.name, err)
		}
	}
	err = unix.SetsockoptTpacketReq(r.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq{
		Block_size: uint32(block), Block_nr: uint32(ringSlots / r.perBlock),
		Frame_size: uint32(r.slotSize), Frame_nr: ringSlots,
	})
	if err != nil {
		return r, fmt.Errorf("make a receive ring of %d frames: %w", ringSlots, err)
	}
	r.memory, err = unix.Mmap(r.fd, 0, ringSlots*r.slotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return r, fmt.Errorf("map the receive ring: %w", err)
	}
	// Last, so that nothing comes in before the ring is there.
	err = unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: index})
	if err != nil {
		return r, fmt.Errorf("bind a packet socket to interface %d: %w", index, err)
	}
	return r, nil
}

// bigEndian is the number whose bytes in this machine's order are n's in the network's.
func bigEndian(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

func (r *ring) close() error {
	var err error
	if r.memory != nil {
		err = unix.Munmap(r.memory)
		r.memory = nil
	}
	return errors.Join(err, unix.Close(r.fd))
}

// next gives the next frame and its slot, once the kernel has handed it over.
func (r *ring) next() (f received, slot int, ok bool) {
	slot = r.at
	head := r.header(slot)
	status := atomic.LoadUint32(&head.Status)
	if status&unix.TP_STATUS_USER == 0 {
		return f, slot, false
	}
	r.at = (r.at + 1) % ringSlots
	start := slot * r.slotSize
	frame := r.memory[start : start+r.slotSize]
	mac, end := int(head.Mac), int(head.Mac)+int(head.Snaplen)
	f.bytes = frame[mac:end:end]
	f.before = frame[mac-tagSize : end : end]
	f.cut = head.Len > head.Snaplen
	if status&unix.TP_STATUS_VLAN_VALID != 0 {
		f.hasTag = true
		kind := uint16(unix.ETH_P_8021Q)
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			kind = head.Vlan_tpid
		}
		binary.BigEndian.PutUint16(f.tag[:], kind)
		binary.BigEndian.PutUint16(f.tag[2:], head.Vlan_tci)
	}
	return f, slot, true
}

// tagged is the frame with the VLAN tag back that the kernel took out of it.
func (f *received) tagged() []byte {
	if !f.hasTag {
		return f.bytes
	}
	copy(f.before, f.bytes[:2*macSize])
	copy(f.before[2*macSize:], f.tag[:])
	return f.before
}

// release gives the slot back to the kernel.
func (r *ring) release(slot int) {
	atomic.StoreUint32(&r.header(slot).Status, unix.TP_STATUS_KERNEL)
}

func (r *ring) header(slot int) *unix.Tpacket2Hdr {
	return (*unix.Tpacket2Hdr)(unsafe.Pointer(&r.memory[slot*r.slotSize]))
}

// fault is the socket's pending error.
func (r *ring) fault() error {
	code, err := unix.GetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = unix.Errno(code)
	}
	return err
}

// lost is how many frames found no slot.
func (r *ring) lost() (uint64, error) {
	s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read a packet socket's counters: %w", err)
	}
	return uint64(s.Drops), nil
}
