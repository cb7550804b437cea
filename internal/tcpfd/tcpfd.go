// Package tcpfd makes the system calls of load generators for TCP connections, on file
// descriptors. Only Connect and Abort notify Go's scheduler that they may block. The other calls
// never block. A generator blocks only in thread.Sleep, which is short and ends at a signal.
package tcpfd

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// Resolve returns the first address of a HOST:PORT.
func Resolve(target string) (netip.AddrPort, error) {
	resolved, err := net.ResolveTCPAddr("tcp", target)
	if err != nil {
		return netip.AddrPort{}, err
	}
	addr := resolved.AddrPort()
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), nil
}

// Connect starts a connection to the address. local is true if the attempt failed because this
// host lacks a resource, such as free ports or files.
func Connect(to netip.AddrPort) (fd int, local bool, err error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, true, fmt.Errorf("open TCP socket: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err == nil {
		err = unix.Connect(fd, mmsg.Sockaddr(to))
	}
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		return fd, false, nil
	}
	local = errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS)
	return -1, local, errors.Join(fmt.Errorf("connect to %v: %w", to, err), unix.Close(fd))
}

// Abort closes the connection at once, with a reset. So it does not wait for a late answer, and no
// port stays in TIME_WAIT. Abort closes the descriptor even if it returns an error.
func Abort(fd int) error {
	return errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.Close(fd))
}

// Send sends what the connection takes now.
func Send(fd int, data []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// Receive receives what has arrived.
func Receive(fd int, into []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(len(into)), 0, 0, 0)
	return int(n), errno
}

// Events returns the pending events of an epoll instance, without waiting.
func Events(poll int, into []unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(len(into)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
