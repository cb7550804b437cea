package process

import (
	"context"
	"os/exec"
	"sync"

	"vitrine/internal/pidfd"
	"vitrine/internal/runstate"
)

// A session is a holder for want of a cgroup: the command leads a session
// (setsid(2)), and what descends from it is found by that and by who its
// parent is. A descendant that leaves the session is found as long as its
// parent lives, so it is looked for before the command is told to end.
type session struct {
	run    *runstate.Run
	name   string // of the record
	record record

	mu     sync.Mutex
	reaped bool      // the session's number may be another's by now
	found  pidfd.Set // the command's processes, as far as they were looked for
}

func newSession(run *runstate.Run, name, dir string) *session {
	return &session{run: run, name: name, record: record{Dir: dir}, found: make(pidfd.Set)}
}

// start starts the command and records it. In the moment between the two only
// the parent's death signal stands for it.
func (s *session) start(cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return err
	}
	err := s.keep(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

func (s *session) keep(pid int) error {
	r, err := newRecord(pid, s.record.Dir)
	if err != nil {
		return err
	}
	s.record = r
	return s.run.RecordJSON(recordKind, s.name, r)
}

// look opens all that descends from the command now.
func (s *session) look() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find()
}

// ending is look for the last time: the command has ended and nobody else can
// have its number yet.
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

// kill kills what it finds until it finds nothing that lives.
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

// remove erases the record when nothing of the command is left.
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
