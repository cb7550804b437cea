package monitor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The calls of a sample go to the kernel without telling Go's scheduler, which
// would wake its watching thread for each: that costs more than the reading.
// They are fit for it, for none of them waits: the files are the kernel's own
// memory.

func pread(fd int, buf []byte, offset int) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), uintptr(offset), 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// poll looks which files are ready, without waiting for any.
func poll(fds []unix.PollFd) (ready int, err error) {
	if len(fds) == 0 {
		return 0, nil
	}
	var now unix.Timespec
	n, _, errno := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// clock reads a clock; ns.
func clock(id int32) (int64, error) {
	var t unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		return 0, errno
	}
	return t.Nano(), nil
}
