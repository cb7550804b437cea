package sip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	batch       = 64      // datagrams sent or received by one system call
	sendRoom    = 2048    // bytes kept for a message to send; a longer one is allocated
	receiveRoom = 8192    // bytes of a received message; a longer one is dropped
	socketRoom  = 8 << 20 // bytes of the kernel's buffers, so that bursts are not lost
)

// mmsghdr is the kernel's struct mmsghdr.
type mmsghdr struct {
	header unix.Msghdr
	length uint32
	_      [4]byte
}

// A socket sends and receives UDP datagrams in batches. The system calls are
// raw: the runtime does not know that they may block, which is right here (only
// wait blocks, briefly, and signals interrupt it) and saves the scheduler's work
// at each of them.
type socket struct {
	fd    int
	local netip.AddrPort // in contacts: never the unspecified address
	via   []byte         // "Via: SIP/2.0/UDP local;branch=z9hG4bKv"
	host  []byte         // local as text

	queue   [batch]mmsghdr
	vectors [batch]unix.Iovec
	names   [batch]unix.RawSockaddrInet6
	owners  [batch]owner
	room    [batch][]byte
	queued  int

	inbox     [batch]mmsghdr
	inVectors [batch]unix.Iovec
	inNames   [batch]unix.RawSockaddrInet6
	inRoom    []byte
	connected bool
}

// An owner is the call that a queued message belongs to.
type owner struct {
	call       *call // nil: no call
	generation uint32
	first      bool // the call's first request
}

// newSocket binds to local; it is connected to peer when that is valid.
func newSocket(local, peer netip.AddrPort) (_ *socket, err error) {
	family := unix.AF_INET
	if peer.Addr().Is6() || local.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open UDP socket: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	growBuffers(fd)
	if local.IsValid() {
		if err := unix.Bind(fd, sockaddr(local)); err != nil {
			return nil, fmt.Errorf("bind UDP %v: %w", local, err)
		}
	}
	if peer.IsValid() {
		if err := unix.Connect(fd, sockaddr(peer)); err != nil {
			return nil, fmt.Errorf("connect UDP to %v: %w", peer, err)
		}
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return nil, fmt.Errorf("read the address of a UDP socket: %w", err)
	}
	s := &socket{fd: fd, local: addrPort(name), connected: peer.IsValid()}
	s.prepare()
	return s, nil
}

// growBuffers asks for large buffers; the privileged way passes the system's limit.
func growBuffers(fd int) {
	for _, o := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[0], socketRoom) != nil {
			// What is granted is granted: losses are counted by drops.
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, o[1], socketRoom)
		}
	}
}

// prepare points the headers at their buffers, once.
func (s *socket) prepare() {
	out := make([]byte, batch*sendRoom)
	s.inRoom = make([]byte, batch*receiveRoom)
	for i := range batch {
		s.room[i] = out[i*sendRoom : i*sendRoom : (i+1)*sendRoom]
		s.queue[i].header.Iov = &s.vectors[i]
		s.queue[i].header.SetIovlen(1)
		s.inVectors[i].Base = &s.inRoom[i*receiveRoom]
		s.inVectors[i].SetLen(receiveRoom)
		s.inbox[i].header.Iov = &s.inVectors[i]
		s.inbox[i].header.SetIovlen(1)
	}
}

// announce sets the address that messages name.
func (s *socket) announce(addr netip.Addr) {
	s.local = netip.AddrPortFrom(addr, s.local.Port())
	s.host = []byte(s.local.String())
	s.via = append(append([]byte("Via: SIP/2.0/UDP "), s.host...), ";branch="+branchPrefix...)
}

func (s *socket) close() error {
	if err := unix.Close(s.fd); err != nil {
		return fmt.Errorf("close UDP socket: %w", err)
	}
	return nil
}

// next is the room for one more message; full says to flush first.
func (s *socket) next() []byte { return s.room[s.queued][:0] }
func (s *socket) full() bool   { return s.queued == batch }

// push queues the message built in next's room. to is for a socket that is not
// connected.
func (s *socket) push(message []byte, to netip.AddrPort, of owner) {
	i := s.queued
	s.vectors[i].Base = unsafe.SliceData(message)
	s.vectors[i].SetLen(len(message))
	s.queue[i].header.Name, s.queue[i].header.Namelen = nil, 0
	if !s.connected {
		s.queue[i].header.Name = (*byte)(unsafe.Pointer(&s.names[i]))
		s.queue[i].header.Namelen = putName(&s.names[i], to)
	}
	s.owners[i] = of
	s.queued++
}

// flush sends what is queued and tells of each message whether it was sent. A
// refusal (ICMP) that an earlier message met is reported at a later send, which
// is then tried once more: whether the function listens is not for the
// generator to say.
func (s *socket) flush(sent func(owner, error)) {
	refused := false
	for i := 0; i < s.queued; {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.queue[i])), uintptr(s.queued-i), unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case errno == 0:
			for range n {
				sent(s.owners[i], nil)
				i++
			}
			refused = false
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			wait([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}, time.Millisecond)
		case errno == unix.ECONNREFUSED && !refused:
			refused = true
		default:
			sent(s.owners[i], errno)
			i++
			refused = false
		}
	}
	s.queued = 0
}

// receive reads up to batch datagrams and says how many; fewer than batch: that
// is all there is.
func (s *socket) receive() int {
	for i := range s.inbox {
		s.inbox[i].header.Flags = 0
		if !s.connected {
			s.inbox[i].header.Name = (*byte)(unsafe.Pointer(&s.inNames[i]))
			s.inbox[i].header.Namelen = unix.SizeofSockaddrInet6
		}
	}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.inbox)), batch, unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			return int(n)
		case unix.EINTR, unix.ECONNREFUSED:
		default:
			return 0
		}
	}
}

// datagram is the i-th datagram read; nil when it was too long.
func (s *socket) datagram(i int) []byte {
	if s.inbox[i].header.Flags&unix.MSG_TRUNC != 0 {
		return nil
	}
	return s.inRoom[i*receiveRoom : i*receiveRoom+int(s.inbox[i].length)]
}

// source is where the i-th datagram read came from, on an unconnected socket.
func (s *socket) source(i int) netip.AddrPort { return getName(&s.inNames[i]) }

// drops is how many datagrams the kernel threw away because the socket's buffer
// was full.
func (s *socket) drops() (uint32, error) {
	// SO_MEMINFO: nine 32-bit numbers, the last SK_MEMINFO_DROPS.
	var info [9]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), unix.SOL_SOCKET, unix.SO_MEMINFO, uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0, os.NewSyscallError("getsockopt SO_MEMINFO", errno)
	}
	return info[8], nil
}

// wait blocks until a descriptor is ready or the time is over, or a signal came.
func wait(fds []unix.PollFd, d time.Duration) int {
	ts := unix.NsecToTimespec(max(int64(d), 0))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// sleep waits for so long, or until a signal comes.
func sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func addrPort(name unix.Sockaddr) netip.AddrPort {
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(n.Addr), uint16(n.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(n.Addr), uint16(n.Port))
	}
	return netip.AddrPort{}
}

// putName writes an address as the kernel has it and says its length.
func putName(name *unix.RawSockaddrInet6, a netip.AddrPort) uint32 {
	if a.Addr().Is4() {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		v4.Family, v4.Addr, v4.Port = unix.AF_INET, a.Addr().As4(), swap(a.Port())
		return unix.SizeofSockaddrInet4
	}
	name.Family, name.Addr, name.Port = unix.AF_INET6, a.Addr().As16(), swap(a.Port())
	return unix.SizeofSockaddrInet6
}

func getName(name *unix.RawSockaddrInet6) netip.AddrPort {
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), swap(v4.Port))
	}
	return netip.AddrPortFrom(netip.AddrFrom16(name.Addr), swap(name.Port))
}

// swap turns a port from or into network byte order.
func swap(port uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], port)
	return binary.BigEndian.Uint16(b[:])
}
