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
	// spin is how long before a packet is due its sender stays awake: waking up
	// takes a thread tens of microseconds, more in a virtual machine.
	spin = 60 * time.Microsecond
	// takeMost bounds the frames that are taken from one direction before the next
	// has its turn.
	takeMost = 64
)

// A wire is one link: two interfaces and what is between them.
type wire struct {
	name         string
	outer, inner *socket
	out, in      *direction
}

// An emulator moves frames between the interfaces of its wires. One thread does
// so for all of them; others change it meanwhile.
type emulator struct {
	now   func() time.Time
	began time.Time
	bell  int // eventfd: something was changed

	mu      sync.Mutex // held for a round, not while the thread sleeps
	wires   []*wire
	ended   bool
	polls   []unix.PollFd // what ends a sleep; the bell is the first
	timeout unix.Timespec // of a sleep; here so that it makes no garbage
}

func newEmulator(now func() time.Time) (*emulator, error) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("making the emulator's bell: %w", err)
	}
	e := &emulator{now: now, began: now(), bell: bell}
	e.listen()
	return e, nil
}

// change does something between two rounds.
func (e *emulator) change(do func()) error {
	e.mu.Lock()
	do()
	e.listen()
	e.mu.Unlock()
	if _, err := unix.Write(e.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		return fmt.Errorf("ringing the emulator's bell: %w", err)
	}
	return nil
}

// run is the thread. cpu is the one that it keeps to; nil: any.
func (e *emulator) run(cpu *int) error {
	runtime.LockOSThread() // ends with the goroutine, and what it prefers with it
	only := -1
	if cpu != nil {
		only = *cpu
	}
	if err := thread.Pin(only); err != nil {
		return err
	}
	thread.Prefer() // other work is to wait for packets, as it does for the kernel's own
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

// round takes and gives once in every direction, and says when there is more to
// give.
func (e *emulator) round(now, behind int64) (worked bool, due int64) {
	due = math.MaxInt64
	for _, w := range e.wires {
		for _, d := range [...]*direction{w.out, w.in} {
			worked = d.take(now, behind, e.clock, takeMost) || worked
			worked = d.give(now, e.clock) || worked
			due = min(due, d.due())
		}
	}
	return worked, due
}

// clock is nanoseconds since the emulator began.
func (e *emulator) clock() int64 { return int64(e.now().Sub(e.began)) }

// sleep waits for a frame, a change, or the time.
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
		if p.Revents&unix.POLLERR != 0 { // its interface has gone; told once, or no sleep would last
			_, _ = unix.GetsockoptInt(int(p.Fd), unix.SOL_SOCKET, unix.SO_ERROR)
		}
	}
	if polls[0].Revents != 0 {
		var rings [8]byte
		if _, err := unix.Read(e.bell, rings[:]); err != nil {
			return fmt.Errorf("reading the emulator's bell: %w", err)
		}
	}
	return nil
}

// listen notes what ends a sleep, in a new list: the thread may be using the old.
func (e *emulator) listen() {
	e.polls = []unix.PollFd{{Fd: int32(e.bell), Events: unix.POLLIN}}
	for _, w := range e.wires {
		for _, s := range []*socket{w.outer, w.inner} {
			e.polls = append(e.polls, unix.PollFd{Fd: int32(s.FD()), Events: unix.POLLIN})
		}
	}
}

// openWire opens a link's interfaces, which are in this process's namespace.
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
