package cpu

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/thread"
)

// The kinds of samples that bpf/account.c takes, and their number.
const (
	interrupts = 1
	handlings  = 3
	probes     = 256
)

// Times of probing by interrupts.
const (
	alarm   = 50 * time.Microsecond  // until the interrupt
	waiting = 100 * time.Microsecond // for the interrupt
)

// probe measures the time that the events do not see. From then on this time counts for
// the interrupts or for the instrument. Both figures are medians:
//   - the time of an interrupt before its first event. The thread keeps storing the
//     time until its own timer interrupts it; the event compares its time with the
//     stored one;
//   - the time of handling an event outside of its own clock readings. A system call
//     that does nothing has two events. It now takes longer than before the Meter
//     existed (unmetered, ns); the events report only a part of the difference.
//
// The goroutine must be locked to its thread.
func (m *Meter) probe(unmetered int64) error {
	v, id := m.objects.Variables, threadID()
	reported, err := m.median(handlings, id, func() error {
		callNothing()
		return nil
	})
	if err == nil && reported == 0 {
		err = &vitrine.Unsupported{What: "counting CPU time by BPF", Missing: "events of this thread's own system calls, by which BPF measures its own time"}
	}
	if err == nil {
		err = v["unclear"].Set(max((callNothing()-unmetered)/2-reported, 0))
	}
	var unseen int64
	if err == nil {
		unseen, err = m.median(interrupts, id, m.beInterrupted)
	}
	if err == nil {
		err = v["unseen"].Set(unseen)
	}
	if err != nil {
		return fmt.Errorf("measure the time that events do not see: %w", err)
	}
	return nil
}

// median returns the median of the samples of a kind. do must cause these samples on the calling
// thread, whose ID for BPF programs is id. The result is 0 if this kernel lacks such events.
func (m *Meter) median(kind, id uint32, do func() error) (int64, error) {
	v := m.objects.Variables
	err := errors.Join(v["wanted"].Set(kind), v["taken"].Set(uint32(0)), v["probing"].Set(id), do(), v["probing"].Set(uint32(0)))
	var taken uint32
	var samples [probes]int64
	if err = errors.Join(err, v["taken"].Get(&taken), v["samples"].Get(&samples)); err != nil || taken < probes/4 {
		return 0, err
	}
	slices.Sort(samples[:taken])
	return samples[taken/2], nil
}

// threadID returns the ID of the calling thread as BPF programs see it: in the first PID namespace,
// which a container's process is not in. Kernels before 5.10 do not run the program that asks for
// it. There threadID returns the ID in this process's own namespace.
func threadID() uint32 {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.RawTracepoint, License: "GPL", Instructions: asm.Instructions{asm.FnGetCurrentPidTgid.Call(), asm.Return()},
	})
	if err == nil {
		defer p.Close()
		if id, err := p.Run(nil); err == nil {
			return id // the lower half of what the function returns
		}
	}
	return uint32(unix.Gettid())
}

// callNothing returns how long a system call that does nothing takes; ns.
func callNothing() int64 {
	const each = 100
	var took [100]int64
	for i := range took {
		before := thread.Nanotime()
		for range each {
			_, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0)
		}
		took[i] = (thread.Nanotime() - before) / each
	}
	slices.Sort(took[:])
	return took[len(took)/2]
}

// beInterrupted lets timers interrupt the calling thread while it stores the time.
func (m *Meter) beInterrupted() error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANONYMOUS|unix.MAP_PRIVATE)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("timerfd_create", err)
	}
	defer unix.Close(timer)
	looked := (*atomic.Int64)(unsafe.Pointer(&page[0]))
	looked.Store(thread.Nanotime())
	if err := m.objects.Variables["looked"].Set(uint64(uintptr(unsafe.Pointer(looked)))); err != nil {
		return err
	}
	for range probes {
		if err := unix.TimerfdSettime(timer, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(alarm))}, nil); err != nil {
			return os.NewSyscallError("timerfd_settime", err)
		}
		for end := thread.Nanotime() + int64(waiting); looked.Load() < end; {
			looked.Store(thread.Nanotime())
		}
	}
	return nil
}
