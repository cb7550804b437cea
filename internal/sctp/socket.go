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
		limitSilence(fd),
	))
}

// How long an association waits for a peer whose host may be gone. With these values the association ends
// after about 20 s if something waits for an acknowledgement, and within about a minute if nothing does.
// With the kernel's defaults, both take 5 to 10 minutes.
const (
	firstTimeout    = 1000 // ms until the first retransmission; also the minimum
	maxTimeout      = 3000 // ms between two retransmissions
	heartbeats      = 3000 // ms between two heartbeats, in addition to one timeout
	retransmissions = 7    // and heartbeats without an answer until the association ends
)

// limitSilence sets these limits.
func limitSilence(fd int) error {
	order := binary.NativeEndian
	timeouts := make([]byte, 16) // struct sctp_rtoinfo
	order.PutUint32(timeouts[4:], firstTimeout)
	order.PutUint32(timeouts[8:], maxTimeout)
	order.PutUint32(timeouts[12:], firstTimeout)
	limits := make([]byte, 20) // struct sctp_assocparams; 0 keeps a value
	order.PutUint16(limits[4:], retransmissions)
	path := make([]byte, 152) // struct sctp_paddrparams, which is packed, without the fields that Linux 4.19 added
	order.PutUint32(path[132:], heartbeats)
	order.PutUint16(path[136:], retransmissions)
	order.PutUint32(path[146:], 1) // SPP_HB_ENABLE
	return errors.Join(
		unix.SetsockoptString(fd, unix.IPPROTO_SCTP, rtoInfo, string(timeouts)),
		unix.SetsockoptString(fd, unix.IPPROTO_SCTP, assocInfo, string(limits)),
		unix.SetsockoptString(fd, unix.IPPROTO_SCTP, addressInfo, string(path)),
	)
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
