// Package thread sets up the threads that measure.
package thread

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"vitrine"
)

// The names by which a BPF meter knows threads that are part of the measuring.
const (
	Sender = "vt-send" // in user mode, where it waits; what the kernel does for it counts
	Soaker = "vt-soak" // altogether
)

// Name names the calling thread, which must be locked to its goroutine. The name
// counts from when the thread runs next after another did.
func Name(name string) error {
	text, err := unix.BytePtrFromString(name)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("name a thread %s: %w", name, err)
	}
	return nil
}

// Pin keeps the calling thread on one CPU, unless that is below 0, and asks for
// timers without slack: the default of 50 µs is added to every sleep.
func Pin(cpu int) error {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // nanoseconds; without it sleeps are longer
	if cpu < 0 {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return &vitrine.Unsupported{What: fmt.Sprintf("measuring from CPU %d", cpu), Missing: err.Error(), Do: "choose one that this process may run on"}
	}
	return nil
}
