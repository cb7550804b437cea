package s1ap

import (
	"errors"
	"fmt"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// Only the system calls of open, shutdown and abort tell Go's scheduler that they
// may block. The engine blocks only in thread.Sleep, briefly.

// open starts a connection to the address.
func open(to netip.AddrPort) (fd int, err error) {
	family := unix.AF_INET
	if to.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open TCP socket: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err == nil {
		err = unix.Connect(fd, mmsg.Sockaddr(to))
	}
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		return fd, nil
	}
	return -1, errors.Join(fmt.Errorf("connect to %v: %w", to, err), unix.Close(fd))
}

// connected reports whether a connection that was started has been made.
func connected(fd int) bool {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	return err == nil && code == 0
}

// shutdown says that no more will be sent. What was sent arrives.
func shutdown(fd int) { _ = unix.Shutdown(fd, unix.SHUT_WR) } // fails if the peer has closed

// abort closes the connection at once, with a reset.
func abort(fd int) error {
	return errors.Join(
		unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
		unix.Close(fd))
}

func send(fd int, data []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(data))), uintptr(len(data)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

func receive(fd int, into []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(len(into)), 0, 0, 0)
	return int(n), errno
}

// pollEvents returns the pending events of the epoll instance, without waiting.
func pollEvents(poll int, into []unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(len(into)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
