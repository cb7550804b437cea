// Package pidfd ends processes through file descriptors that stand for them
// (pidfd_open(2), Linux 5.3), so that a number that has meanwhile become
// another's is never signalled, and their end is waited for, not polled.
package pidfd

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// A Set is processes by number, each with the descriptor that stands for it.
type Set map[int]int

// Where opens all processes that are so.
func Where(so func(procfs.Proc) bool) (Set, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	found := make(Set)
	for _, p := range all {
		if !so(p) {
			continue
		}
		if err := found.Add(p.PID); err != nil {
			found.Close()
			return nil, err
		}
		if !so(p) { // the number is another's meanwhile
			found.Drop(p.PID)
		}
	}
	return found, nil
}

// Add opens a process. One that has ended is not added, and no error.
func (s Set) Add(pid int) error {
	if _, has := s[pid]; has {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: a thread, or reaped meanwhile
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", pid, err)
	}
	s[pid] = fd
	return nil
}

// Drop closes one process's descriptor.
func (s Set) Drop(pid int) {
	if fd, has := s[pid]; has {
		_ = unix.Close(fd)
		delete(s, pid)
	}
}

// Close drops all.
func (s Set) Close() {
	for pid := range s {
		s.Drop(pid)
	}
}

// Kill sends SIGKILL to all that have not ended.
func (s Set) Kill() error {
	for pid, fd := range s {
		err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
	}
	return nil
}

// End kills all and waits until they have ended.
func (s Set) End(ctx context.Context) error {
	if err := s.Kill(); err != nil {
		return err
	}
	return s.Wait(ctx)
}

// Wait waits until all have ended.
func (s Set) Wait(ctx context.Context) error {
	const slice = 50 // milliseconds between looks at the context
	for pid, fd := range s {
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, slice)
			if n > 0 {
				break
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("waiting for process %d: %w", pid, err)
			}
			if ctx.Err() != nil {
				return fmt.Errorf("process %d does not end after SIGKILL: %w", pid, context.Cause(ctx))
			}
		}
	}
	return nil
}

// Alive says whether a process of the set has not ended.
func (s Set) Alive(pid int) bool {
	fd, has := s[pid]
	return has && unix.PidfdSendSignal(fd, 0, nil, 0) == nil
}
