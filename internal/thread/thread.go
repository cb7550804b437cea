// Package thread sets up threads whose time counts: those that send, receive and
// forward packets.
package thread

import (
	"fmt"
	"time"
	"unsafe" // also for go:linkname

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
	if _, err := Keep(cpu); err != nil {
		return &vitrine.Unsupported{What: fmt.Sprintf("measuring from CPU %d", cpu), Missing: err.Error(), Do: "choose one that this process may run on"}
	}
	return nil
}

// Allowed lists the CPUs that the calling thread may run on.
func Allowed() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the CPU affinity: %w", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Keep keeps the calling thread, which must be locked to its goroutine, to the CPUs;
// what it starts inherits them. back lets it run where it could before.
func Keep(cpus ...int) (back func() error, err error) {
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("read the thread's CPUs: %w", err)
	}
	for _, cpu := range cpus {
		only.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return nil, err
	}
	return func() error { return unix.SchedSetaffinity(0, &before) }, nil
}

// Idle has the calling thread, which must be locked to its goroutine, take no time
// that anyone else wants (SCHED_IDLE, sched(7)).
func Idle() error {
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return fmt.Errorf("take the scheduling policy for idle time: %w", err)
	}
	return nil
}

// slice is the shortest turn that Linux gives a thread of the fair classes; ns.
const slice = 100_000

// Prefer asks that the calling thread, which must be locked to its goroutine, runs
// as soon as it wakes: by short turns (Linux 6.12), for which others interrupt
// theirs, of some milliseconds; and, with the privilege, by the highest priority of
// the fair classes. What the kernel does not grant is done without. back has it as
// it was.
func Prefer() (back func()) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return func() {}
	}
	for _, nice := range []int32{-20, before.Nice} {
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: nice, Runtime: slice}
		if unix.SchedSetAttr(0, &attr, 0) == nil {
			break
		}
	}
	return func() { _ = unix.SchedSetAttr(0, before, 0) }
}

// Nanotime is the steady clock, CLOCK_MONOTONIC, which BPF's is too; ns. It grows no
// stack.
//
//go:linkname Nanotime runtime.nanotime
func Nanotime() int64

// Sleep waits for so long, or until a signal comes. Go's scheduler does not
// learn that the thread blocks, so the sleep must be short.
func Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
