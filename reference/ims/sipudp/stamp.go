package sipudp

import (
	"errors"
	"net"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine/internal/mmsg"
)

// oobSize is the size of one control message with a timespec.
var oobSize = unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{})))

// stampArrivals makes the kernel attach the arrival time to each datagram
// (socket(7), SO_TIMESTAMPNS).
func stampArrivals(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var opt error
	if err := raw.Control(func(fd uintptr) {
		opt = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	}); err != nil {
		return err
	}
	return opt
}

// arrivalTime returns the arrival time in a datagram's control messages.
func arrivalTime(oob []byte) (time.Time, bool) {
	stamp := mmsg.Control(oob, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS)
	if len(stamp) < int(unsafe.Sizeof(unix.Timespec{})) {
		return time.Time{}, false
	}
	return time.Unix(0, mmsg.Nanoseconds(stamp)), true
}

// longestWait bounds the time that a datagram counts as waiting in the receive queue, in case
// the host's clock was set forward meanwhile.
const longestWait = 10 * time.Second

// arrivedAt returns the arrival time by the clock of read, which is monotonic. The kernel's
// stamp is a time of day: it is used only for the time from the arrival to the read.
func arrivedAt(read, stamp time.Time) time.Time {
	return read.Add(-min(max(read.Sub(stamp), 0), longestWait))
}

// fromICMP reports whether a read failed because of an ICMP message. The kernel reports
// each message once, so the next read may succeed.
func fromICMP(err error) bool {
	errno, _ := errors.AsType[unix.Errno](err)
	switch errno {
	case unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENONET, unix.ENOPROTOOPT,
		unix.EMSGSIZE, unix.EPROTO, unix.EACCES: // the errors that Linux returns for ICMP errors about UDP; EACCES only over IPv6
		return true
	}
	return false
}
