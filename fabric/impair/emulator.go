package impair

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/thread"
)

const (
	// spin is how long before a packet is due the thread stays awake. Waking up
	// takes a thread tens of microseconds, more in a virtual machine.
	spin = 60 * time.Microsecond
	// takeLimit bounds the frames that a round takes from one direction, so that
	// the others get their turn.
	takeLimit = 64
)

// A wire is one link: two interfaces, and a direction each way between them.
type wire struct {
	name         string
	outer, inner *socket
	out, in      *direction
}

// An emulator moves frames between the interfaces of its wires. One thread
// moves the frames of all wires. Other goroutines change the wires meanwhile,
// by change.
type emulator struct {
	now   func() time.Time
	began time.Time
	bell  int // eventfd: wakes the thread after a change

	mu      sync.Mutex // held during a round, but not while the thread sleeps
	wires   []*wire
	ended   bool
	polls   []unix.PollFd // these end a sleep; the bell is the first
	timeout unix.Timespec // of a sleep; a field, so that sleep does not allocate
}

func newEmulator(now func() time.Time) (*emulator, error) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("making the emulator's eventfd: %w", err)
	}
	e := &emulator{now: now, began: now(), bell: bell}
	e.listen()
	return e, nil
}

// change calls do between two rounds and wakes the thread.
func (e *emulator) change(do func()) error {
	e.mu.Lock()
	do()
	e.listen()
	e.mu.Unlock()
	if _, err := unix.Write(e.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return fmt.Errorf("writing to the emulator's eventfd: %w", err)
	}
	return nil
}

// run is the thread: it moves frames until the emulator is ended. cpu is the
// CPU that the thread runs on; nil: any.
func (e *emulator) run(cpu *int) error {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and so do its settings
	only := -1
	if cpu != nil {
		only = *cpu
	}
	if err := thread.Pin(only); err != nil {
		return err
	}
	thread.Prefer() // packets come before other work, as they do in the kernel
	for {
		e.mu.Lock()
		t := e.now()
		now := int64(t.Sub(e.began))
		worked, due := e.round(now, t.UnixNano()-now)
		polls, ended := e.polls, e.ended
		e.mu.Unlock()
		switch {
		case ended:
			return nil
		case worked || due-now <= int64(spin):
			continue
		}
		if err := e.sleep(polls, due-now-int64(spin)); err != nil {
			return err
		}
	}
}

// round takes and gives once in every direction. It reports whether there was
// work, and returns when the next packet is due.
func (e *emulator) round(now, behind int64) (worked bool, due int64) {
	due = math.MaxInt64
	for _, w := range e.wires {
		for _, d := range [...]*direction{w.out, w.in} {
			worked = d.take(now, behind, e.clock, takeLimit) || worked
			worked = d.give(now, e.clock) || worked
			due = min(due, d.due())
		}
	}
	return worked, due
}

// clock returns the time since the emulator began, in nanoseconds.
func (e *emulator) clock() int64 { return int64(e.now().Sub(e.began)) }

// sleep waits for a frame, a change, or the end of the time.
func (e *emulator) sleep(polls []unix.PollFd, nanos int64) error {
	var timeout *unix.Timespec
	if nanos < int64(time.Hour) {
		e.timeout = unix.NsecToTimespec(nanos)
		timeout = &e.timeout
	}
	if _, err := unix.Ppoll(polls, timeout, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("waiting for frames: %w", err)
	}
	for _, p := range polls[1:] {
		if p.Revents&unix.POLLERR != 0 { // its interface is gone; this clears the error, which would end every sleep
			_, _ = unix.GetsockoptInt(int(p.Fd), unix.SOL_SOCKET, unix.SO_ERROR)
		}
	}
	if polls[0].Revents != 0 {
		var rings [8]byte
		if _, err := unix.Read(e.bell, rings[:]); err != nil {
			return fmt.Errorf("reading the emulator's eventfd: %w", err)
		}
	}
	return nil
}

// listen lists the files that end a sleep. It makes a new list, because the
// thread may be using the old one.
func (e *emulator) listen() {
	e.polls = []unix.PollFd{{Fd: int32(e.bell), Events: unix.POLLIN}}
	for _, w := range e.wires {
		for _, s := range []*socket{w.outer, w.inner} {
			e.polls = append(e.polls, unix.PollFd{Fd: int32(s.FD()), Events: unix.POLLIN})
		}
	}
}

// openWire opens the two interfaces of a link, in this process's namespace.
func openWire(a addition) (_ *wire, err error) {
	w := &wire{name: a.Instance}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.outer, err = openSocket(a.Outer); err != nil {
		return nil, err
	}
	if w.inner, err = openSocket(a.Inner); err != nil {
		return nil, err
	}
	if w.out, err = newDirection(w.inner, w.outer, a.Instance, a.Link.on(Out), a.Seed); err != nil {
		return nil, err
	}
	if w.in, err = newDirection(w.outer, w.inner, a.Instance, a.Link.on(In), ^a.Seed); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *wire) close() error {
	var errs []error
	for _, d := range []*direction{w.out, w.in} {
		if d != nil {
			errs = append(errs, d.close())
		}
	}
	for _, s := range []*socket{w.outer, w.inner} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

func (w *wire) result() ([]Made, error) {
	out, err := w.out.result()
	if err != nil {
		return nil, err
	}
	in, err := w.in.result()
	return []Made{out, in}, err
}
