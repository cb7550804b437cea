package sip

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

const (
	batch       = 64      // datagrams sent or received by one system call
	sendRoom    = 2048    // bytes of the buffer for a message to send; a longer message is allocated
	receiveRoom = 8192    // bytes of the buffer for a received message; a longer message is dropped
	socketRoom  = 8 << 20 // bytes of each kernel buffer, large enough for bursts
)

// A socket sends and receives UDP datagrams in batches. Its system calls do not notify the Go
// scheduler that they may block, because only wait blocks, only for a short time, and signals
// interrupt it.
type socket struct {
	fd    int
	local netip.AddrPort // address in contacts; never the unspecified address
	peer  netip.AddrPort // zero if not connected
	via   []byte         // "Via: SIP/2.0/UDP local;branch=z9hG4bKv"
	host  []byte         // local as text

	queue   [batch]mmsg.Message
	vectors [batch]unix.Iovec
	names   [batch]mmsg.Name
	owners  [batch]owner
	room    [batch][]byte
	queued  int

	inbox     [batch]mmsg.Message
	inVectors [batch]unix.Iovec
	inNames   [batch]mmsg.Name
	inRoom    []byte
	connected bool
}

// An owner is the call that a queued message belongs to.
type owner struct {
	call       *call // nil if there is no call
	generation uint32
	first      bool // the call's first request
}

// newSocket returns a socket bound to local. It is connected to peer if peer is
// valid.
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
	mmsg.GrowReceive(fd, socketRoom)
	mmsg.GrowSend(fd, socketRoom)
	if local.IsValid() {
		if err := unix.Bind(fd, mmsg.Sockaddr(local)); err != nil {
			return nil, fmt.Errorf("bind UDP %v: %w", local, err)
		}
	}
	if peer.IsValid() {
		if err := unix.Connect(fd, mmsg.Sockaddr(peer)); err != nil {
			return nil, fmt.Errorf("connect UDP to %v: %w", peer, err)
		}
	}
	if local, err = mmsg.Local(fd); err != nil {
		return nil, fmt.Errorf("read the address of a UDP socket: %w", err)
	}
	s := &socket{fd: fd, local: local, peer: peer, connected: peer.IsValid()}
	s.prepare()
	return s, nil
}

// prepare points the messages at their buffers, once.
func (s *socket) prepare() {
	out := make([]byte, batch*sendRoom)
	s.inRoom = make([]byte, batch*receiveRoom)
	for i := range batch {
		s.room[i] = out[i*sendRoom : i*sendRoom : (i+1)*sendRoom]
		s.queue[i].SetVectors(s.vectors[i : i+1])
		s.inVectors[i] = mmsg.Vector(s.inRoom[i*receiveRoom : (i+1)*receiveRoom])
		s.inbox[i].SetVectors(s.inVectors[i : i+1])
	}
}

// announce sets the address that messages contain.
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

// next returns the buffer for the next message. If full returns true, the caller must flush first.
func (s *socket) next() []byte { return s.room[s.queued][:0] }
func (s *socket) full() bool   { return s.queued == batch }

// push queues a message built in next's buffer. to is used only if the socket is
// not connected.
func (s *socket) push(message []byte, to netip.AddrPort, of owner) {
	i := s.queued
	s.vectors[i] = mmsg.Vector(message)
	if !s.connected {
		s.queue[i].SetName(&s.names[i], s.names[i].Put(to))
	}
	s.owners[i] = of
	s.queued++
}

// flush sends the queued messages and calls sent for each of them with the result. If a send
// fails, flush tries it once more, because the failure may be an ICMP refusal of an earlier
// message. So the generator sends the same messages whether or not the function listens.
func (s *socket) flush(sent func(owner, error)) {
	refused := false
	for i := 0; i < s.queued; {
		n, errno := mmsg.Send(s.fd, s.queue[i:s.queued], unix.MSG_NOSIGNAL)
		switch {
		case errno == 0:
			for range n {
				sent(s.owners[i], nil)
				i++
			}
			refused = false
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

// receive reads up to batch datagrams and returns their number. Fewer than batch
// means that no more are waiting.
func (s *socket) receive() int {
	for i := range s.inbox {
		s.inbox[i].Header.Flags = 0
		if !s.connected {
			s.inbox[i].SetName(&s.inNames[i], mmsg.NameSize)
		}
	}
	return mmsg.Receive(s.fd, s.inbox[:])
}

// datagram returns the i-th datagram read, or nil if it was too long.
func (s *socket) datagram(i int) []byte {
	if s.inbox[i].Header.Flags&unix.MSG_TRUNC != 0 {
		return nil
	}
	return s.inRoom[i*receiveRoom : i*receiveRoom+int(s.inbox[i].Length)]
}

// source returns the sender of the i-th datagram read on an unconnected socket.
func (s *socket) source(i int) netip.AddrPort { return s.inNames[i].AddrPort() }

// wait blocks until a descriptor is ready, the time is over or a signal arrives.
func wait(fds []unix.PollFd, d time.Duration) int {
	ts := unix.NsecToTimespec(max(int64(d), 0))
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(unsafe.SliceData(fds))), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
