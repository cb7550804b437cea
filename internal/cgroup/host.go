// Package cgroup sets CPU quotas, CPUs and memory limits for groups of processes. It starts
// processes in the groups and ends all processes in them. It supports versions 1 and 2 of the
// kernel's control groups.
//
// Why no library: docs/decisions/0010-libraries-tried.md.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"vitrine"
)

// Name is the group above all of vitrine's groups, in every hierarchy.
const Name = "vitrine"

// selfName is the group that this process moves to if its own group must be empty before vitrine
// can make groups in it.
const selfName = Name + "-self"

// The controllers that groups use.
const (
	CPU     = "cpu"
	CPUAcct = "cpuacct" // version 1; in version 2 every group counts CPU time
	CPUSet  = "cpuset"
	Memory  = "memory"
	Freezer = "freezer" // version 1; in version 2 every group can be killed
)

// A Host is the cgroups of this host that this process may use.
type Host struct {
	Version int // 1 or 2

	trees []tree
}

// A tree is a hierarchy in which groups are made: the only one of version 2, or one of several of
// version 1.
type tree struct {
	base        string   // folder in which vitrine's group is made
	home        string   // folder of this process's own group
	controllers []string // which of the controllers above it has
}

func (t tree) has(controller string) bool { return slices.Contains(t.controllers, controller) }

// Detect finds the cgroups in which this process may make groups. If there are none, the error is
// a *vitrine.Unsupported with the missing part.
func Detect() (*Host, error) {
	return detect(procfs.DefaultMountPoint, os.Geteuid() == 0, writable)
}

// detect is Detect with another /proc, user and check of write access.
func detect(proc string, root bool, writable func(group string) error) (*Host, error) {
	pfs, err := procfs.NewFS(proc)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", proc, err)
	}
	mounts, own, err := membership(pfs)
	if err != nil {
		return nil, err
	}
	// A host that mounts both versions has its CPU controller in only one of them.
	if i, _ := find1(mounts, own, CPU); i >= 0 {
		return version1(mounts, own, writable)
	}
	return version2(mounts, own, root, writable)
}

// membership reads the mounts and the groups of this process.
func membership(pfs procfs.FS) (mounts []*procfs.MountInfo, own []procfs.Cgroup, err error) {
	self, err := pfs.Self()
	if err != nil {
		return nil, nil, fmt.Errorf("reading /proc/self: %w", err)
	}
	if mounts, err = self.MountInfo(); err != nil {
		return nil, nil, fmt.Errorf("reading mounts: %w", err)
	}
	if own, err = self.Cgroups(); err != nil {
		return nil, nil, fmt.Errorf("reading the groups of this process: %w", err)
	}
	return mounts, own, nil
}

// find1 returns the index of the mount of a version 1 controller, and of this process's group in
// that hierarchy. An index is -1 if there is none.
func find1(mounts []*procfs.MountInfo, own []procfs.Cgroup, controller string) (mount, group int) {
	mount = slices.IndexFunc(mounts, func(m *procfs.MountInfo) bool {
		_, has := m.SuperOptions[controller]
		return m.FSType == "cgroup" && has
	})
	group = slices.IndexFunc(own, func(c procfs.Cgroup) bool { return slices.Contains(c.Controllers, controller) })
	return mount, group
}

// find2 is find1 for the hierarchy of version 2.
func find2(mounts []*procfs.MountInfo, own []procfs.Cgroup) (mount, group int) {
	mount = slices.IndexFunc(mounts, func(m *procfs.MountInfo) bool { return m.FSType == "cgroup2" })
	group = slices.IndexFunc(own, func(c procfs.Cgroup) bool { return c.HierarchyID == 0 })
	return mount, group
}

// Above returns the folders of this process's own group and of all groups above it that are
// mounted, in the hierarchy of the controller cpu. Their CPU limits hold for this process and, in a
// container, for all groups that it makes. Above returns no folders if the hierarchy is not mounted.
func Above(pfs procfs.FS) ([]string, error) {
	mounts, own, err := membership(pfs)
	if err != nil {
		return nil, err
	}
	i, j := find1(mounts, own, CPU)
	if i < 0 {
		i, j = find2(mounts, own)
	}
	if i < 0 || j < 0 {
		return nil, nil
	}
	group, ok := below(mounts[i], own[j].Path)
	if !ok {
		return nil, nil
	}
	groups := []string{group}
	for top := filepath.Clean(mounts[i].MountPoint); group != top; {
		group = filepath.Dir(group)
		groups = append(groups, group)
	}
	return groups, nil
}

func version1(mounts []*procfs.MountInfo, own []procfs.Cgroup, writable func(string) error) (*Host, error) {
	h := &Host{Version: 1}
	var refused error
	for _, controller := range []string{CPU, CPUAcct, Freezer, CPUSet, Memory} {
		i, j := find1(mounts, own, controller)
		if i < 0 || j < 0 {
			continue
		}
		base := mounts[i].MountPoint
		if k := slices.IndexFunc(h.trees, func(t tree) bool { return t.base == base }); k >= 0 {
			h.trees[k].controllers = append(h.trees[k].controllers, controller) // mounted together
			continue
		}
		home, ok := below(mounts[i], own[j].Path)
		if !ok {
			continue // this process is outside the mount, and could not move back into its group
		}
		if err := writable(base); err != nil {
			refused = errors.Join(refused, err)
			continue
		}
		h.trees = append(h.trees, tree{base: base, home: home, controllers: []string{controller}})
	}
	for _, needed := range []string{CPU, CPUAcct, Freezer} {
		switch {
		case h.Has(needed):
		case refused != nil:
			return nil, noRight(refused, "run as root")
		default:
			return nil, &vitrine.Unsupported{What: "cgroups", Missing: "the cgroup v1 controller " + needed, Do: "run as root"}
		}
	}
	return h, nil
}

// noRight is the error if this process may not make groups. do says how to get the right.
func noRight(refused error, do string) *vitrine.Unsupported {
	if errors.Is(refused, unix.EROFS) { // in a container, where root cannot make groups either
		do = "docker run --privileged, or run on the host"
	}
	return &vitrine.Unsupported{What: "cgroups", Missing: "the right to make groups: " + refused.Error(), Do: do}
}

func version2(mounts []*procfs.MountInfo, own []procfs.Cgroup, root bool, writable func(string) error) (*Host, error) {
	i, j := find2(mounts, own)
	if i < 0 || j < 0 {
		return nil, &vitrine.Unsupported{
			What: "cgroups", Missing: "a mounted cgroup file system",
			Do: "mount -t cgroup2 none /sys/fs/cgroup",
		}
	}
	home, ok := below(mounts[i], own[j].Path)
	if !ok {
		return nil, &vitrine.Unsupported{What: "cgroups", Missing: "a mount that has the group of this process, " + own[j].Path}
	}
	base, top := home, mounts[i].MountPoint
	if root {
		base = top
	}
	base, err := delegated(base, top, writable)
	if err != nil {
		return nil, noRight(err, "run as root, or in a scope of your own: systemd-run --user --scope -p Delegate=yes vitrine ...")
	}
	t := tree{base: base, home: home}
	available, err := os.ReadFile(filepath.Join(base, "cgroup.controllers"))
	if err != nil {
		return nil, fmt.Errorf("reading the cgroup controllers: %w", err)
	}
	for _, c := range strings.Fields(string(available)) {
		if c == CPU || c == CPUSet || c == Memory {
			t.controllers = append(t.controllers, c)
		}
	}
	if !t.has(CPU) {
		return nil, &vitrine.Unsupported{
			What: "cgroups", Missing: "the controller cpu in " + base,
			Do: "run as root, or let systemd delegate it: a drop-in of user@.service with Delegate=cpu cpuset memory",
		}
	}
	if err := t.checkBase(); err != nil {
		return nil, err
	}
	return &Host{Version: 2, trees: []tree{t}}, nil
}

// checkBase returns an error if enable would fail for the base of version 2, because other
// processes are in it. The root of the hierarchy, which has no cgroup.type, may hold processes.
func (t tree) checkBase() error {
	if _, err := os.Stat(filepath.Join(t.base, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	missing, err := t.missing(t.base)
	if err != nil || len(missing) == 0 {
		return err
	}
	pids, err := procs(t.base)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(pids, func(pid int) bool { return pid != os.Getpid() }) {
		return crowded(t.base)
	}
	return nil
}

// delegated returns the highest group, from one upwards, in which this user may make groups. The
// kernel lets no process move out of it.
func delegated(from, top string, writable func(string) error) (string, error) {
	if err := writable(from); err != nil {
		return "", err
	}
	for from != top && writable(filepath.Dir(from)) == nil {
		from = filepath.Dir(from)
	}
	return from, nil
}

// writable returns an error unless this process may make groups in the group and move processes
// within it.
func writable(group string) error {
	for _, path := range []string{group, filepath.Join(group, "cgroup.procs")} {
		if err := unix.Access(path, unix.W_OK); err != nil {
			return &fs.PathError{Op: "write", Path: path, Err: err}
		}
	}
	return nil
}

// below returns the folder of a group of the mount's hierarchy.
func below(m *procfs.MountInfo, path string) (string, bool) {
	rel, err := filepath.Rel(m.Root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") || strings.HasPrefix(path, "/..") {
		return "", false
	}
	return filepath.Join(m.MountPoint, rel), true
}

// Has reports whether groups get the controller.
func (h *Host) Has(controller string) bool {
	return slices.ContainsFunc(h.trees, func(t tree) bool { return t.has(controller) })
}

// String describes the version, controllers and location for people.
func (h *Host) String() string {
	var has, bases []string
	for _, t := range h.trees {
		has = append(has, t.controllers...)
		bases = append(bases, t.base)
	}
	where := bases[0]
	if len(bases) > 1 {
		where = filepath.Dir(bases[0])
	}
	return fmt.Sprintf("v%d at %s: %s", h.Version, where, strings.Join(has, " "))
}

// tree returns the hierarchy of a controller. Version 2 has one for all.
func (h *Host) tree(controller string) tree {
	for _, t := range h.trees {
		if h.Version == 2 || t.has(controller) {
			return t
		}
	}
	return tree{}
}
