package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/pidfd"
)

// recordKind is the kind of record for commands that no cgroup holds.
const recordKind = "process"

// A record lets cleaning find a command of a dead run.
type record struct {
	PID   int    `json:"pid"`   // also the number of its session
	Start uint64 `json:"start"` // clock ticks after boot (proc(5), /proc/pid/stat, field 22)
	Boot  string `json:"boot"`  // boot ID of the kernel that ran it
	Dir   string `json:"dir"`   // the instance's folder, without links
}

func newRecord(pid int, dir string) (record, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return record{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	stat, err := p.Stat()
	if err != nil {
		return record{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	// The kernel reports the folders and files of a process without links; see owns.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return record{}, fmt.Errorf("resolving the instance's folder: %w", err)
	}
	boot, err := bootID()
	return record{PID: pid, Start: stat.Starttime, Boot: boot, Dir: dir}, err
}

func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot ID: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// end kills what is left of the recorded command and returns how many processes it killed.
// It kills only processes that it can identify: the command itself, by its start time;
// members of its session that work in the instance's folder or write their output there;
// and descendants of those. It does not find other processes that have left the session.
func (r record) end(ctx context.Context) (int, error) {
	boot, err := bootID()
	if err != nil || boot != r.Boot {
		return 0, err
	}
	ended := 0
	for {
		all, err := processes()
		if err != nil {
			return ended, err
		}
		found := make(pidfd.Set)
		err = all.open(all.descendants(r.roots(all)), found)
		n := len(found)
		if err == nil {
			err = found.End(ctx)
		}
		found.Close()
		ended += n
		if err != nil || n == 0 {
			return ended, err
		}
	}
}

func (r record) roots(all table) map[int]bool {
	roots := make(map[int]bool)
	if leader, there := all[r.PID]; there {
		if leader.Starttime != r.Start {
			return nil // the number belongs to another process and session now
		}
		roots[r.PID] = true
	}
	for pid, p := range all {
		if p.Session == r.PID && p.Starttime >= r.Start && r.owns(pid) {
			roots[pid] = true
		}
	}
	return roots
}

// owns reports whether the process works in the instance's folder, or its standard output
// or error is a file there.
func (r record) owns(pid int) bool {
	for _, name := range []string{"cwd", "fd/1", "fd/2"} {
		path, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), name))
		if err == nil && (path == r.Dir || strings.HasPrefix(path, r.Dir+"/")) {
			return true
		}
	}
	return false
}

func parseRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("reading the record of a process: %w", err)
	}
	return r, nil
}

// The kind and the name of the record that says where the run's cgroups are. Cleaning may happen
// where other cgroups may be used, or none.
const (
	groupKind = "cgroup"
	groupName = "folders"
)

// recordGroups records where the run's cgroups are, before the first of them is made.
func (s *Substrate) recordGroups() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recorded {
		return nil
	}
	run := s.config.Run
	err := run.RecordJSON(groupKind, groupName, s.groups.Dirs(run.ID))
	s.recorded = err == nil
	return err
}

// groupsGone returns an error if one of the recorded cgroups exists. Processes of the run may be in
// that cgroup.
func groupsGone(value []byte) error {
	var dirs []string
	if err := json.Unmarshal(value, &dirs); err != nil {
		return fmt.Errorf("reading the record of cgroups: %w", err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return &vitrine.Unsupported{
				What: "removing the cgroup " + dir, Missing: "the right to use that cgroup",
				Do: "clean where cgroups are delegated: systemd-run --user --scope -p Delegate=yes vitrine clean",
			}
		}
	}
	return nil
}

// A table holds the processes of this host that have not ended, by process ID.
type table map[int]procfs.ProcStat

func processes() (table, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	t := make(table, len(all))
	for _, p := range all {
		stat, err := p.Stat()
		if err == nil && stat.State != "Z" && stat.State != "X" {
			t[p.PID] = stat
		} else if err != nil && !gone(err) {
			return nil, fmt.Errorf("looking at process %d: %w", p.PID, err)
		}
	}
	return t, nil
}

// descendants returns the roots and all processes below them.
func (t table) descendants(roots map[int]bool) map[int]bool {
	below := make(map[int][]int, len(t))
	for pid, p := range t {
		below[p.PPID] = append(below[p.PPID], pid)
	}
	found := make(map[int]bool)
	var add func(pid int)
	add = func(pid int) {
		if _, there := t[pid]; there && !found[pid] {
			found[pid] = true
			for _, child := range below[pid] {
				add(child)
			}
		}
	}
	for pid := range roots {
		add(pid)
	}
	return found
}

// open adds processes of the table to into, unless another process has the number by now.
func (t table) open(pids map[int]bool, into pidfd.Set) error {
	for pid := range pids {
		if _, has := into[pid]; has {
			continue
		}
		if err := into.Add(pid); err != nil {
			return err
		}
		now, err := procfs.NewProc(pid)
		if err == nil {
			var stat procfs.ProcStat
			if stat, err = now.Stat(); err == nil && stat.Starttime == t[pid].Starttime {
				continue
			}
		}
		into.Drop(pid)
		if err != nil && !gone(err) {
			return fmt.Errorf("looking at process %d: %w", pid, err)
		}
	}
	return nil
}

// gone reports whether a file of a process could not be read because the process has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}
