package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Leaf holds one command of a group and its descendants, so that they can be ended while other
// commands of the group continue. The limits are those of the group.
type Leaf struct {
	group *Group
	dir   string // in the hierarchy used to find and end processes
}

// Leaf makes a leaf with that name.
func (g *Group) Leaf(name string) (*Leaf, error) {
	dir := filepath.Join(g.dir(g.host.tree(Freezer)), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making a leaf of the cgroup %s: %w", g, err)
	}
	return &Leaf{group: g, dir: dir}, nil
}

// Start starts the command. The command is in the leaf from its first instruction. The caller must
// lock its goroutine to the thread. If Start fails, the thread may still be in the group, so the
// goroutine must end without unlocking.
func (l *Leaf) Start(cmd *exec.Cmd) error {
	if l.group.host.Version == 2 {
		return l.startInto(cmd)
	}
	// Version 1: a child starts in the groups of the thread that forks it. "0" means the writing
	// thread. The kernel can move only this thread without waiting for all CPUs
	// (kernel/cgroup/cgroup.c, cgroup_procs_write_start).
	err := l.join()
	if err == nil {
		err = cmd.Start()
	}
	for _, t := range l.group.host.trees {
		if leaving := set(t.home, "tasks", "0"); leaving != nil {
			err = errors.Join(err, fmt.Errorf("leaving the cgroup %s: %w", l.group, leaving))
		}
	}
	if err != nil && cmd.Process != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	return err
}

// startInto is Start with clone3(2) and CLONE_INTO_CGROUP, Linux 5.7.
func (l *Leaf) startInto(cmd *exec.Cmd) error {
	dir, err := os.Open(l.dir)
	if err != nil {
		return fmt.Errorf("opening the cgroup %s: %w", l.group, err)
	}
	defer dir.Close()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.UseCgroupFD = true
	cmd.SysProcAttr.CgroupFD = int(dir.Fd())
	return cmd.Start()
}

// join moves the calling thread into the leaf.
func (l *Leaf) join() error {
	for _, t := range l.group.host.trees {
		dir := l.group.dir(t)
		if t.has(Freezer) {
			dir = l.dir
		}
		if err := set(dir, "tasks", "0"); err != nil {
			return fmt.Errorf("joining the cgroup %s: %w", l.group, err)
		}
	}
	return nil
}

// Kill ends all processes in the leaf and returns when they have ended.
func (l *Leaf) Kill(ctx context.Context) error { return l.group.host.kill(ctx, l.dir) }

// removeLimit bounds Leaf.Remove. The kernel needs far less, unless the leaf has processes that
// this process cannot see, such as those of another PID namespace.
const removeLimit = 5 * time.Second

// Remove removes the leaf with the groups that its command made below it, and gone is true if it
// did. It keeps a leaf with running processes, which a command left on purpose. The group's Remove
// ends them.
func (l *Leaf) Remove() (gone bool, err error) {
	if unix.Rmdir(l.dir) == nil {
		return true, nil
	}
	pids, err := all(l.dir)
	if err != nil || len(pids) > 0 {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	err = removeTree(ctx, l.dir)
	return err == nil, err
}
