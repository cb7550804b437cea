// Package tap receives all frames that pass network interfaces, in both directions. It uses the
// receive ring of a packet socket, version TPACKET_V3 (the kernel's
// Documentation/networking/packet_mmap.rst). V3 packs frames of any size into blocks, which uses
// the memory well.
//
// One socket serves all interfaces, so the kernel puts the frames in order.
package tap

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/mmsg"
)

const (
	blockSize = 1 << 17 // bytes; longer frames are cut
	tagSize   = 4       // bytes of a VLAN tag

	// Linger is how long the kernel holds back frames while their block is not full.
	Linger = 20 * time.Millisecond
)

// A Config describes a Tap.
type Config struct {
	Interfaces  []Interface
	Memory      int  // bytes of frames that can wait; at least two blocks of 128 KiB are used
	Promiscuous bool // also receive frames for other hosts, while the Tap is open
}

// A Tap is a packet socket with its receive ring.
type Tap struct {
	fd         int
	interfaces []Interface   // that Check looks for
	index      map[int32]int // in Config.Interfaces, by the kernel's index
	memory     []byte
	blocks     int

	block  int  // block that Next reads
	held   bool // the kernel has handed over the block
	left   int  // frames of the block that Next has not returned yet
	offset int  // offset of the next frame in memory
}

// A Frame is a frame of an interface. Bytes is valid until the next call of Next.
type Frame struct {
	Bytes     []byte // as far as it was captured, with its VLAN tag
	Length    int    // bytes of the whole frame
	At        int64  // nanoseconds of CLOCK_REALTIME, by the kernel
	Interface int    // index in Config.Interfaces
}

// Open opens a Tap. The caller closes it, which also undoes the changes to the interfaces.
// Without the privilege to capture, the error is a *vitrine.Unsupported.
func Open(c Config) (t *Tap, err error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return nil, &vitrine.Unsupported{What: "capturing at interfaces", Missing: "the right CAP_NET_RAW",
			Do: "run as root, or give the program the right: setcap cap_net_raw+ep FILE"}
	}
	if err != nil {
		return nil, fmt.Errorf("open a packet socket: %w", err)
	}
	t = &Tap{fd: fd, interfaces: slices.Clone(c.Interfaces), index: map[int32]int{}, blocks: max(2, c.Memory/blockSize)}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Close())
			t = nil
		}
	}()
	for i, at := range c.Interfaces {
		t.index[int32(at.Index)] = i
	}
	if err := t.filter(); err != nil {
		return t, err
	}
	if err := t.ring(); err != nil {
		return t, err
	}
	for _, at := range c.Interfaces {
		if !c.Promiscuous {
			break
		}
		err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{Ifindex: int32(at.Index), Type: unix.PACKET_MR_PROMISC})
		if err != nil {
			return t, fmt.Errorf("receive frames for other hosts at %s: %w", at.Name, err)
		}
	}
	// Bind last, because no frame may arrive before the filter and the ring exist.
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: mmsg.NetworkOrder(unix.ETH_P_ALL)}); err != nil {
		return t, fmt.Errorf("bind a packet socket: %w", err)
	}
	return t, nil
}

// program returns a filter that drops frames of other interfaces. It also drops frames that leave
// a loopback interface, because each of them arrives there again. After Any, the filter passes the
// frames of all other interfaces, and Next drops those of interfaces that Any did not find: a host
// may have thousands of interfaces, and the kernel limits the length of a filter.
func program(interfaces []Interface) []bpf.Instruction {
	all := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtInterfaceIndex}}
	var others bpf.RetConstant
	for _, at := range interfaces {
		if at.Optional {
			others.Val = blockSize
		}
		switch {
		case at.Loopback:
			all = append(all,
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(at.Index), SkipFalse: 4},
				bpf.LoadExtension{Num: bpf.ExtType},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1},
				bpf.RetConstant{Val: blockSize}, bpf.RetConstant{})
		case !at.Optional:
			all = append(all, bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(at.Index), SkipFalse: 1}, bpf.RetConstant{Val: blockSize})
		}
	}
	return append(all, others)
}

// filter gives the socket its filter.
func (t *Tap) filter() error {
	raw, err := bpf.Assemble(program(t.interfaces))
	if err != nil {
		return fmt.Errorf("assemble a filter: %w", err)
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.SetsockoptSockFprog(t.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}); err != nil {
		return fmt.Errorf("filter a packet socket: %w", err)
	}
	return nil
}

// ring makes and maps the receive ring.
func (t *Tap) ring() error {
	for name, value := range map[int]int{unix.PACKET_VERSION: unix.TPACKET_V3, unix.PACKET_RESERVE: tagSize} {
		if err := unix.SetsockoptInt(t.fd, unix.SOL_PACKET, name, value); err != nil {
			return fmt.Errorf("set option %d of a packet socket: %w", name, err)
		}
	}
	const slot = 1 << 11 // the ring has no slots of a fixed size, but the kernel checks this one
	size := t.blocks * blockSize
	err := unix.SetsockoptTpacketReq3(t.fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &unix.TpacketReq3{
		Block_size: blockSize, Block_nr: uint32(t.blocks), Frame_size: slot, Frame_nr: uint32(size / slot),
		Retire_blk_tov: uint32(Linger / time.Millisecond),
	})
	if err != nil {
		return fmt.Errorf("make a receive ring of %d MiB: %w", size>>20, err)
	}
	t.memory, err = unix.Mmap(t.fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("map a receive ring of %d MiB: %w", size>>20, err)
	}
	return nil
}

// Size returns the size of the ring in bytes. The frames that wait have fewer bytes.
func (t *Tap) Size() int { return t.blocks * blockSize }

// Close ends the capture.
func (t *Tap) Close() error {
	var err error
	if t.memory != nil {
		err = unix.Munmap(t.memory)
		t.memory = nil
	}
	return errors.Join(err, unix.Close(t.fd))
}

// Next returns the next frame, if the kernel has handed it over. It does not wait.
func (t *Tap) Next(f *Frame) bool {
	for {
		for t.left == 0 {
			if !t.advance() {
				return false
			}
		}
		head := (*unix.Tpacket3Hdr)(unsafe.Pointer(&t.memory[t.offset]))
		address := (*unix.RawSockaddrLinklayer)(unsafe.Pointer(&t.memory[t.offset+int(unsafe.Sizeof(*head))])) // a multiple of TPACKET_ALIGNMENT
		start := t.offset + int(head.Mac)
		t.left--
		t.offset += int(head.Next_offset)
		at, found := t.index[address.Ifindex]
		if !found { // Any did not find the interface
			continue
		}
		f.Bytes = t.memory[start : start+int(head.Snaplen)]
		f.Length, f.At, f.Interface = int(head.Len), int64(head.Sec)*1e9+int64(head.Nsec), at
		if head.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			t.tag(f, head, start)
		}
		return true
	}
}

// advance returns the block to the kernel and moves on to the next block. It reports whether the
// kernel has handed over the next block.
func (t *Tap) advance() bool {
	if t.held {
		atomic.StoreUint32(&t.head().Block_status, unix.TP_STATUS_KERNEL)
		t.block, t.held = (t.block+1)%t.blocks, false
	}
	head := t.head()
	if atomic.LoadUint32(&head.Block_status)&unix.TP_STATUS_USER == 0 {
		return false
	}
	t.held, t.left = true, int(head.Num_pkts)
	t.offset = t.block*blockSize + int(head.Offset_to_first_pkt)
	return true
}

func (t *Tap) head() *unix.TpacketHdrV1 {
	const before = 8 // version, and the offset of private data
	return (*unix.TpacketHdrV1)(unsafe.Pointer(&t.memory[t.block*blockSize+before]))
}

// tag reinserts the VLAN tag that the kernel has removed. PACKET_RESERVE left room for it
// before the frame.
func (t *Tap) tag(f *Frame, head *unix.Tpacket3Hdr, start int) {
	const addresses = 12
	if len(f.Bytes) < addresses {
		return
	}
	kind := uint16(unix.ETH_P_8021Q)
	if head.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		kind = head.Hv1.Vlan_tpid
	}
	b := t.memory[start-tagSize : start+int(head.Snaplen)]
	copy(b, b[tagSize:tagSize+addresses])
	b[addresses], b[addresses+1] = byte(kind>>8), byte(kind)
	b[addresses+2], b[addresses+3] = byte(head.Hv1.Vlan_tci>>8), byte(head.Hv1.Vlan_tci)
	f.Bytes = b
	f.Length += tagSize
}

// Wait waits until the kernel hands over frames, but at most for the given time.
func (t *Tap) Wait(most time.Duration) error {
	wait := unix.NsecToTimespec(int64(most))
	_, err := unix.Ppoll([]unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN | unix.POLLERR}}, &wait, nil)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for frames: %w", err)
	}
	return nil
}

// Dropped returns the number of frames that the ring had no room for since the last call. After Any,
// they may be frames of interfaces that Any did not find.
func (t *Tap) Dropped() (uint64, error) {
	s, err := unix.GetsockoptTpacketStatsV3(t.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read a packet socket's counters: %w", err)
	}
	return uint64(s.Drops), nil
}
