package datagram

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// socketRoom is the kernel buffer size to ask for in each direction, in bytes. It holds a
// burst while the worker is not scheduled.
const socketRoom = 8 << 20

// A socket is one UDP socket of a listener.
type socket struct {
	fd       int
	listener int
	local    netip.AddrPort
}

// open binds a socket that shares its address with other sockets of the same user.
func open(address netip.AddrPort) (fd int, err error) {
	family := unix.AF_INET6
	if address.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open UDP socket: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return -1, os.NewSyscallError("setsockopt SO_REUSEPORT", err)
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return -1, os.NewSyscallError("setsockopt IPV6_V6ONLY", err)
		}
	}
	mmsg.GrowReceive(fd, socketRoom)
	mmsg.GrowSend(fd, socketRoom)
	// The kernel may then deliver a burst from one sender as one piece, and process it once
	// instead of once per datagram. Kernels before 5.0 do not support this.
	_ = unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1)
	if err := unix.Bind(fd, mmsg.Sockaddr(address)); err != nil {
		return -1, fmt.Errorf("bind UDP %v: %w; is another program listening there?", address, err)
	}
	return fd, nil
}

// adopt duplicates an inherited descriptor if it is a UDP socket; local is its address.
// For another kind of descriptor it returns fd -1 and no error.
func adopt(file *os.File) (fd int, local netip.AddrPort, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return -1, local, fmt.Errorf("inherited descriptor: %w", err)
	}
	fd = -1
	controlErr := raw.Control(func(old uintptr) {
		kind, kindErr := unix.GetsockoptInt(int(old), unix.SOL_SOCKET, unix.SO_TYPE)
		if kindErr != nil || kind != unix.SOCK_DGRAM {
			return // a file, a pipe or a TCP listener: for others
		}
		if local, err = mmsg.Local(int(old)); err == nil && local.IsValid() {
			fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
		}
	})
	if err = errors.Join(err, controlErr); err != nil {
		return -1, local, fmt.Errorf("inherited socket: %w", err)
	}
	return fd, local, nil
}
