package process

import (
	"context"
	"os/exec"
	"sync"

	"vitrine/internal/pidfd"
	"vitrine/internal/runstate"
)

// A session is the holder where there is no cgroup. The command leads a session
// (setsid(2)); its descendants are found by session ID and by parent. A descendant that
// leaves the session can be found only while its parent lives, so look must run before
// SIGTERM.
type session struct {
	run    *runstate.Run
	name   string // the record's name
	record record

	mu     sync.Mutex
	reaped bool      // another process may have the session's number by now
	found  pidfd.Set // the command's processes that find has found so far
}

func newSession(run *runstate.Run, name, dir string) *session {
	return &session{run: run, name: name, record: record{Dir: dir}, found: make(pidfd.Set)}
}

// start starts the command and records it. Between the two, only the parent-death signal
// ensures that the command ends if this process dies.
func (s *session) start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	err := s.writeRecord(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

func (s *session) writeRecord(pid int) error {
	r, err := newRecord(pid, s.record.Dir)
	if err != nil {
		return err
	}
	s.record = r
	return s.run.RecordJSON(recordKind, s.name, r)
}

// look opens a pidfd for every current descendant of the command.
func (s *session) look() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find()
}

// ending looks for descendants the last time. The command has ended, but no other process
// can have its number yet.
func (s *session) ending() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.find()
	s.reaped = true
	s.found.Drop(s.record.PID)
	return err
}

func (s *session) find() error {
	if s.record.PID == 0 || s.reaped && len(s.found) == 0 {
		return nil // nothing started, or nothing left
	}
	all, err := processes()
	if err != nil {
		return err
	}
	roots := make(map[int]bool)
	for pid, p := range all {
		switch {
		case s.found.Alive(pid):
			roots[pid] = true
		case !s.reaped && (pid == s.record.PID || p.Session == s.record.PID):
			roots[pid] = true
		}
	}
	return all.open(all.descendants(roots), s.found)
}

// kill kills the processes it finds, until it finds none that is alive.
func (s *session) kill(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := s.find(); err != nil {
			return err
		}
		if len(s.found) == 0 {
			return nil
		}
		alive := false
		for pid := range s.found {
			alive = alive || s.found.Alive(pid)
		}
		err := s.found.End(ctx)
		s.found.Close()
		if err != nil || !alive {
			return err
		}
	}
}

// remove erases the record if none of the command's processes is left.
func (s *session) remove() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for pid := range s.found {
		if s.found.Alive(pid) {
			return false, nil
		}
	}
	s.found.Close()
	return true, s.run.Erase(recordKind, s.name)
}
