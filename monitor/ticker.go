package monitor

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A ticker is the kernel's periodic timer (timerfd_create(2)). It does not drift, it counts missed
// ticks, and it wakes one thread. Go's timers wake three threads per tick, which costs up to a
// third of the reading.
type ticker struct {
	file *os.File
	wait syscall.RawConn
	look func(fd uintptr) bool
	n    uint64 // ticks since the last read
}

func newTicker(first, interval time.Duration) (*ticker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	t := &ticker{file: os.NewFile(uintptr(fd), "timer")}
	err = unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{
		Value:    unix.NsecToTimespec(max(first, 1).Nanoseconds()), // 0 would disarm the timer
		Interval: unix.NsecToTimespec(interval.Nanoseconds()),
	}, nil)
	if err == nil {
		t.wait, err = t.file.SyscallConn()
	}
	if err != nil {
		t.file.Close()
		return nil, fmt.Errorf("set a timer: %w", err)
	}
	var count [8]byte
	t.look = func(fd uintptr) bool {
		if got, err := read(int(fd), count[:]); err != nil || got != len(count) {
			return false
		}
		t.n = binary.NativeEndian.Uint64(count[:])
		return true
	}
	return t, nil
}

// next waits for a tick and returns how many earlier ticks were missed since the last call. It
// returns false if the ticker was stopped.
func (t *ticker) next() (missed int, ok bool) {
	if t.wait.Read(t.look) != nil {
		return 0, false
	}
	return int(t.n - 1), true
}

// stop ends a call of next that waits, and all later calls.
func (t *ticker) stop() { _ = t.file.SetReadDeadline(time.Unix(1, 0)) }

func (t *ticker) close() { t.file.Close() }
