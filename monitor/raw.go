package monitor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of a sample bypass Go's scheduler, which would wake its monitor thread for each
// of them. That would cost more than the reading. The bypass is safe because none of the calls
// blocks: the files are in kernel memory. Offsets fit one register, so this works on 64-bit Linux
// only.

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

func read(fd int, buf []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// epollLook returns how many events are ready. It does not wait.
func epollLook(fd int, events []unix.EpollEvent) (n int) {
	got, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(got)
}

// clock returns the time of a clock, in ns.
func clock(id int32) (int64, error) {
	var t unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		return 0, errno
	}
	return t.Nano(), nil
}
