// Package thread configures threads that send, receive and forward packets, and whose timing
// matters.
package thread

import (
	"fmt"
	"time"
	"unsafe" // also for go:linkname

	"golang.org/x/sys/unix"

	"vitrine"
)

// The thread names by which the BPF meter (measure/cpu) recognizes the measurement's own threads.
// The meter does not count them as work.
const (
	Sender = "vt-send" // excluded in user mode, where it waits; its kernel time counts
	Soaker = "vt-soak" // excluded entirely
)

// Name names the calling thread, which must be locked to its goroutine. The name takes effect the
// next time that the kernel switches to the thread.
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

// Pin binds the calling thread to one CPU, unless cpu is negative, and requests timers without
// slack. The default slack adds 50 µs to every sleep.
func Pin(cpu int) error {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // 1 ns; without it sleeps are longer
	if cpu < 0 {
		return nil
	}
	if _, err := Keep(cpu); err != nil {
		return &vitrine.Unsupported{What: fmt.Sprintf("measuring from CPU %d", cpu), Missing: err.Error(), Do: "choose a CPU that this process may run on"}
	}
	return nil
}

// Allowed returns the CPUs that the calling thread may run on.
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

// Keep binds the calling thread, which must be locked to its goroutine, to the CPUs. Threads and
// processes that it starts inherit these CPUs. back restores the old CPUs.
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

// Idle gives the calling thread, which must be locked to its goroutine, only CPU time that no
// other thread wants (SCHED_IDLE, sched(7)).
func Idle() error {
	if err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0); err != nil {
		return fmt.Errorf("set the scheduling policy SCHED_IDLE: %w", err)
	}
	return nil
}

// slice is the shortest time slice that Linux gives a thread of the fair classes, in ns.
const slice = 100_000

// Prefer asks the kernel to run the calling thread, which must be locked to its goroutine, as soon
// as it wakes. It asks for short time slices (Linux 6.12), so that the thread preempts other
// threads, whose slices are some milliseconds. With the privilege, it also asks for the highest
// priority of the fair classes. It ignores refusals. back restores the old settings.
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

// Nanotime returns CLOCK_MONOTONIC, the clock of BPF, in ns. It does not grow the stack.
//
//go:linkname Nanotime runtime.nanotime
func Nanotime() int64

// Sleep waits for d or until a signal arrives. Go's scheduler does not know that the thread
// blocks, so the sleep must be short.
func Sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
