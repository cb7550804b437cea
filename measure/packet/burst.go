package packet

import (
	"unsafe" // also for go:linkname

	"golang.org/x/sys/unix"
)

// burst sends packets next to end-1, each at its own time. It stops before a packet
// whose time is far, and returns the number of that packet.
//
// To the Go scheduler, burst is one system call. So the scheduler does not preempt the
// goroutine every 10 ms to look for other work. Such preemption made one packet in a
// hundred some 100 µs late. The garbage collector does not wait for burst either. So
// burst must not grow the stack, allocate or store a pointer, and the caller must keep
// its data alive.
//
//go:nosplit
//go:norace
func (l *loop) burst(next, end int) (int, unix.Errno) {
	entersyscall()
	var errno unix.Errno
	for due := l.due(next); ; due = l.due(next) {
		now := l.spin(due)
		l.probe.Sequence, l.probe.Scheduled, l.probe.Sent = uint32(next), due, now
		l.probe.Put(l.frame[HeaderSize:])
		if errno = l.send(); errno != 0 {
			break
		}
		if next == 0 {
			l.sent.First = now
		}
		l.sent.Last, l.sent.Behind = now, now-due
		l.errors[next] = now - due
		next++
		if next == end || l.due(next)-now > int64(far) {
			break
		}
	}
	l.done = next
	exitsyscall()
	return next, errno
}

// spin waits until due, which may have passed, and returns the time.
//
//go:nosplit
//go:norace
func (l *loop) spin(due int64) int64 {
	for {
		now := l.clock.Now()
		l.sent.Spins++
		if now >= due {
			return now
		}
	}
}

// send hands the frame to the kernel. If the kernel's queue stays full, send counts a
// failure and returns 0.
//
//go:nosplit
//go:norace
func (l *loop) send() unix.Errno {
	for range fullRetries {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(l.fd), uintptr(unsafe.Pointer(&l.out[0])), uintptr(len(l.out)), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			l.sent.Packets++
			return 0
		case unix.ENOBUFS, unix.EAGAIN, unix.EINTR:
			continue
		}
		return errno
	}
	l.sent.Failed++
	return 0
}

// The runtime keeps these functions for other libraries that also link to them
// (go.dev/issue/67401).

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()
