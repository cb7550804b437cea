package sctp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/mmsg"
)

// streams is the maximum number of streams of an association, in each direction.
const streams = 16

// Possible returns nil if the kernel has SCTP, or else a *vitrine.Unsupported.
func Possible() error {
	fd, err := open(unix.AF_INET)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// open makes a non-blocking socket.
func open(family int) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT):
		return -1, &vitrine.Unsupported{
			What: "SCTP", Missing: "SCTP in the kernel (CONFIG_IP_SCTP)",
			Do: "load its module as root (modprobe sctp), or choose the transport tcp at both ends",
		}
	case err != nil:
		return -1, fmt.Errorf("open SCTP socket: %w", err)
	}
	if err := configure(fd); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// configure sets a socket's options. Accepted sockets inherit the listener's options.
func configure(fd int) error {
	// struct sctp_initmsg: number of outgoing and incoming streams. 0 keeps the kernel's number of
	// attempts and time limit.
	initial := binary.NativeEndian.AppendUint16(make([]byte, 0, 8), streams)
	initial = binary.NativeEndian.AppendUint16(initial, streams)[:8]
	return os.NewSyscallError("setsockopt", errors.Join(
		unix.SetsockoptString(fd, unix.IPPROTO_SCTP, initMessage, string(initial)),
		unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, noDelay, 1),
		unix.SetsockoptInt(fd, unix.IPPROTO_SCTP, receiveInfo, 1),
	))
}

// Connect starts an association with the address, on a non-blocking socket.
func Connect(to netip.AddrPort) (fd int, err error) {
	fd, err = open(family(to))
	if err != nil {
		return -1, err
	}
	err = unix.Connect(fd, mmsg.Sockaddr(to))
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		return fd, nil
	}
	return -1, errors.Join(fmt.Errorf("connect to %v by SCTP: %w", to, err), unix.Close(fd))
}

func family(at netip.AddrPort) int {
	if at.Addr().Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}
