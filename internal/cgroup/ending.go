package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/pidfd"
)

// Groups lists the groups of a run on this host: <run> and <run>/<instance>.
func (h *Host) Groups(run string) ([]string, error) {
	var names []string
	for _, t := range h.trees {
		entries, err := os.ReadDir(filepath.Join(t.base, Name, run))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing cgroups: %w", err)
		}
		if !slices.Contains(names, run) {
			names = append(names, run)
		}
		for _, e := range entries {
			name := filepath.Join(run, e.Name())
			if e.IsDir() && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// Dirs returns the folders of a run's groups, one for each hierarchy. They exist while the run has
// groups.
func (h *Host) Dirs(run string) []string {
	var dirs []string
	for _, t := range h.trees {
		dirs = append(dirs, filepath.Join(t.base, Name, run))
	}
	return dirs
}

// Remove ends all processes in the group and removes it. It may be called more than once.
func (g *Group) Remove(ctx context.Context) error { return g.host.removeAll(ctx, g.name) }

// RemoveRun ends all processes in the groups of a run and removes the groups. It also removes
// vitrine's groups above them if they are empty then.
func (h *Host) RemoveRun(ctx context.Context, run string) error {
	if err := h.removeAll(ctx, run); err != nil {
		return err
	}
	for _, t := range h.trees {
		// Other runs may have groups below it, or be about to create some; see Create.
		if os.Remove(filepath.Join(t.base, Name)) == nil && h.Version == 2 {
			t.back()
		}
	}
	return nil
}

// back reverses enable for a group that held this process, if possible. Other processes may use
// the group by now.
func (t tree) back() {
	own := filepath.Join(t.base, selfName)
	if _, err := os.Stat(own); err != nil {
		return
	}
	for _, c := range t.controllers {
		_ = set(t.base, subtreeControl, "-"+c)
	}
	_ = set(t.home, "cgroup.procs", "0")
	_ = os.Remove(own)
}

func (h *Host) removeAll(ctx context.Context, name string) error {
	if err := h.kill(ctx, filepath.Join(h.tree(Freezer).base, Name, name)); err != nil {
		return fmt.Errorf("ending the cgroup %s: %w", filepath.Join(Name, name), err)
	}
	for _, t := range h.trees {
		if err := removeTree(ctx, filepath.Join(t.base, Name, name)); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a group without processes, and all groups below it.
func removeTree(ctx context.Context, dir string) error {
	dirs, err := subtree(dir)
	if err != nil {
		return err
	}
	slices.Reverse(dirs) // the deepest first
	for _, d := range dirs {
		if err := remove(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// remove removes one group. A process that has just ended may keep the group busy for a moment.
func remove(ctx context.Context, dir string) error {
	for wait := 100 * time.Microsecond; ; wait = min(2*wait, 10*time.Millisecond) {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("removing the cgroup %s: %w", dir, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing the cgroup %s: %w: %w", dir, err, context.Cause(ctx))
		case <-time.After(wait):
		}
	}
}

// kill ends all processes in the group and below it, and returns when they have ended.
func (h *Host) kill(ctx context.Context, dir string) error {
	for pass := 0; ; pass++ {
		if err := context.Cause(ctx); pass > 0 && err != nil {
			return fmt.Errorf("new processes keep appearing: %w", err)
		}
		found, empty, err := hold(dir)
		if err == nil && !empty {
			err = h.signal(dir, found, pass > 1)
		}
		if err == nil {
			err = found.Wait(ctx)
		}
		found.Close()
		if err != nil || empty {
			return err
		}
	}
}

// signal sends SIGKILL to the processes. forking is set if a second pass was needed, because the
// processes fork faster than hold finds them. signal then kills the whole group at once if the
// kernel can (cgroup.kill, Linux 5.14). Otherwise it freezes the group while it sends the signals.
func (h *Host) signal(dir string, found pidfd.Set, forking bool) error {
	if forking && h.Version == 2 {
		if err := set(dir, "cgroup.kill", "1"); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if forking {
		file, frozen, thawed := "freezer.state", "FROZEN", "THAWED"
		if h.Version == 2 {
			file, frozen, thawed = "cgroup.freeze", "1", "0"
		}
		if err := set(dir, file, frozen); err != nil {
			return err
		}
		defer func() { _ = set(dir, file, thawed) }()
		all, _, err := hold(dir)
		if err == nil {
			err = all.Kill()
		}
		all.Close()
		if err != nil {
			return err
		}
	}
	return found.Kill()
}

// hold opens the processes in the group and below it. A PID that is in the group both before and
// after it is opened is a process of the group. Otherwise the kernel may have reused the PID.
func hold(dir string) (found pidfd.Set, empty bool, err error) {
	found = make(pidfd.Set)
	before, err := all(dir)
	if err != nil || len(before) == 0 {
		return found, err == nil, err
	}
	for _, pid := range before {
		if err := found.Add(pid); err != nil {
			return found, false, err
		}
	}
	after, err := all(dir)
	for pid := range found {
		if !slices.Contains(after, pid) {
			found.Drop(pid)
		}
	}
	return found, false, err
}

// all lists the processes in the group and below it. It omits this process, because one of its
// threads may be there to start a process.
func all(dir string) ([]int, error) {
	dirs, err := subtree(dir)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, d := range dirs {
		in, err := procs(d)
		if err != nil {
			return nil, err
		}
		pids = append(pids, in...)
	}
	own := os.Getpid()
	return slices.DeleteFunc(pids, func(pid int) bool { return pid == own }), nil
}

// procs lists the processes in one group. It lists none if the group does not exist, or if it is
// threaded: its processes are listed by its threaded domain, a group above it (cgroup-v2.rst). A
// leaf itself is never threaded, because the kernel threads no group that has processes.
func procs(dir string) ([]int, error) {
	b, err := get(dir, "cgroup.procs")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var pids []int
	for line := range strings.Lines(string(b)) {
		pid, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("listing processes of %s: %w", dir, err)
		}
		if pid > 0 { // 0: a process of another PID namespace
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// subtree lists the group and all groups below it, parents first. It lists none if the group does
// not exist.
func subtree(dir string) ([]string, error) {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); errors.Is(err, unix.ENOENT) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("looking at the cgroup %s: %w", dir, err)
	}
	dirs := []string{dir}
	if st.Nlink == 2 { // a folder without subfolders has two links
		return dirs, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing cgroups: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		below, err := subtree(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, below...)
	}
	return dirs, nil
}
