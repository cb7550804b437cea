// Package pidfd ends processes and waits for their end through pidfds (pidfd_open(2), Linux 5.3).
// A pidfd never refers to another process, even if the PID is reused. A caller can wait for the
// end of its process without polling.
package pidfd

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// A Set maps PIDs to pidfds.
type Set map[int]int

// Where opens all processes for which so returns true.
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
		if !so(p) { // the PID has been reused
			found.Drop(p.PID)
		}
	}
	return found, nil
}

// Add opens a process. It ignores a process that has ended.
func (s Set) Add(pid int) error {
	if _, has := s[pid]; has {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: a thread, or a process that has just been reaped
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening process %d: %w", pid, err)
	}
	s[pid] = fd
	return nil
}

// Drop closes one process's pidfd.
func (s Set) Drop(pid int) {
	if fd, has := s[pid]; has {
		_ = unix.Close(fd)
		delete(s, pid)
	}
}

// Close closes all pidfds.
func (s Set) Close() {
	for pid := range s {
		s.Drop(pid)
	}
}

// Kill sends SIGKILL to all processes that have not ended.
func (s Set) Kill() error {
	for pid, fd := range s {
		err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("killing process %d: %w", pid, err)
		}
	}
	return nil
}

// End kills all processes and waits until they have ended.
func (s Set) End(ctx context.Context) error {
	if err := s.Kill(); err != nil {
		return err
	}
	return s.Wait(ctx)
}

// Wait waits until all processes have ended.
func (s Set) Wait(ctx context.Context) error {
	const slice = 50 // milliseconds between two checks of the context
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
				return fmt.Errorf("process %d did not end after SIGKILL: %w", pid, context.Cause(ctx))
			}
		}
	}
	return nil
}

// Alive reports whether a process of the set exists. A zombie exists until it is reaped.
func (s Set) Alive(pid int) bool {
	fd, has := s[pid]
	return has && unix.PidfdSendSignal(fd, 0, nil, 0) == nil
}

// AwaitChild waits until a child of this process has ended. It does not reap the child, so the
// kernel does not reuse the child's PID. The caller must not reap the child while AwaitChild
// waits. If possible, AwaitChild waits with Go's poller, because a thread that blocks in waitid(2)
// delays other threads of this process.
func AwaitChild(pid int) {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		nonblocking := unix.SetNonblock(fd, true) == nil // Go polls only non-blocking files
		file := os.NewFile(uintptr(fd), "pidfd")
		defer file.Close()
		if conn, err := file.SyscallConn(); nonblocking && err == nil && conn.Read(ended) == nil {
			return
		}
	}
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// ended reports whether the process of a pidfd has ended.
func ended(pidfd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n > 0 && err == nil
}
