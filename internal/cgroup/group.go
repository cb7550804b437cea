package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
)

// Limits are the limits of a group.
type Limits struct {
	VCPUs  float64       // CPU quota in CPUs; 0: none
	Period time.Duration // period of the quota
	Memory int64         // bytes; 0: no limit
	CPUs   []int         // CPUs to run on; empty: any
	Idle   bool          // gets only CPU time that no other group of the run wants
}

// Limits that the kernel sets for quotas (kernel/sched/core.c, min_cfs_quota_period and
// max_cfs_quota_period).
const (
	leastQuota    = time.Millisecond
	longestPeriod = time.Second
)

// Quota returns the CPU time per period, checked against the kernel's limits.
func (l Limits) Quota() (time.Duration, error) {
	if l.Period < leastQuota || l.Period > longestPeriod {
		return 0, &vitrine.Unsupported{
			What:    fmt.Sprintf("a CFS period of %v", l.Period),
			Missing: "the kernel accepts 1ms to 1s",
			Do:      "change cfs_period",
		}
	}
	quota := time.Duration(l.VCPUs * float64(l.Period)).Round(time.Microsecond)
	if quota < leastQuota {
		longer := time.Duration(math.Ceil(1/l.VCPUs)) * leastQuota // rounded to the nearest, it could be too short
		return 0, &vitrine.Unsupported{
			What:    fmt.Sprintf("a quota of %v CPUs with a CFS period of %v", l.VCPUs, l.Period),
			Missing: fmt.Sprintf("the kernel's minimum is 1ms per period, and this quota is %v", quota),
			Do:      fmt.Sprintf("set cfs_period to %v or more", longer),
		}
	}
	return quota, nil
}

// A Group is one instance's group, in every hierarchy.
type Group struct {
	host *Host
	name string // path below Name: "<run>/<instance>"
}

// Create creates the group <run>/<instance>, which must not exist, and sets its limits. Without a
// memory controller it skips the memory limit, and without a cpuset controller the CPUs; see Has.
// If it fails, it leaves nothing behind.
func (h *Host) Create(run, instance string, limits Limits) (*Group, error) {
	g := &Group{host: h, name: filepath.Join(run, instance)}
	if _, err := os.Stat(g.dir(h.trees[0])); err == nil {
		return nil, fmt.Errorf("making the cgroup %s: a group of that name exists", g)
	}
	// Between two of these steps, another process that cleans up may remove the groups above while
	// they are empty. So the loop tries again.
	var err error
	for range 100 {
		if err = g.make(); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			break
		}
	}
	if err == nil {
		err = g.limit(limits)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the cgroup %s: %w", g, err), g.Remove(context.Background()))
	}
	return g, nil
}

// String returns the group's name in the kernel.
func (g *Group) String() string { return filepath.Join(Name, g.name) }

func (g *Group) dir(t tree) string { return filepath.Join(t.base, Name, g.name) }

// make creates the group's folders and the folders above them, unless they exist.
func (g *Group) make() error {
	for _, t := range g.host.trees {
		path := t.base
		for part := range strings.SplitSeq(g.String(), "/") {
			if g.host.Version == 2 {
				if err := t.enable(path); err != nil {
					return err
				}
			}
			path = filepath.Join(path, part)
			if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			if t.has(CPUSet) && g.host.Version == 1 {
				if err := inherit(path); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// inherit sets the CPUs and memory nodes of a new version 1 cpuset to those of its parent. A
// cpuset without CPUs or memory nodes accepts no process.
func inherit(path string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := get(filepath.Dir(path), file)
		if err != nil {
			return err
		}
		if err := set(path, file, strings.TrimSpace(string(value))); err != nil {
			return err
		}
	}
	return nil
}

// subtreeControl has the controllers that a version 2 group enables for the groups in it.
const subtreeControl = "cgroup.subtree_control"

// missing returns the tree's controllers that a version 2 group does not enable for the groups in
// it.
func (t tree) missing(path string) ([]string, error) {
	enabled, err := get(path, subtreeControl)
	if err != nil {
		return nil, err
	}
	has := strings.Fields(string(enabled))
	return slices.DeleteFunc(slices.Clone(t.controllers), func(c string) bool { return slices.Contains(has, c) }), nil
}

// crowded is the error if a group cannot pass controllers on, because other processes are in it.
func crowded(path string) *vitrine.Unsupported {
	return &vitrine.Unsupported{
		What: "cgroups", Missing: "a group with only this process: " + path + " has others, too",
		Do: fmt.Sprintf("move them first: mkdir %[1]s/init; for p in $(cat %[1]s/cgroup.procs); do echo $p > %[1]s/init/cgroup.procs; done", path),
	}
}

// enable enables the tree's controllers for the groups in a version 2 group.
func (t tree) enable(path string) error {
	missing, err := t.missing(path)
	if err != nil || len(missing) == 0 {
		return err
	}
	want := "+" + strings.Join(missing, " +")
	err = set(path, subtreeControl, want)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	// A group with processes cannot pass controllers on ("no internal processes", cgroup-v2.rst).
	// If the only process is this one, move it down.
	own := filepath.Join(t.base, selfName)
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := set(own, "cgroup.procs", "0"); err != nil {
		return err
	}
	if err := set(path, subtreeControl, want); err != nil {
		back := errors.Join(set(t.home, "cgroup.procs", "0"), os.Remove(own))
		return errors.Join(crowded(path), back)
	}
	return nil
}

// limit sets the limits.
func (g *Group) limit(l Limits) error {
	if l.VCPUs > 0 {
		if err := g.SetQuota(l); err != nil {
			return err
		}
	}
	if len(l.CPUs) > 0 && g.host.Has(CPUSet) {
		if err := set(g.dir(g.host.tree(CPUSet)), "cpuset.cpus", CPUList(l.CPUs)); err != nil {
			return err
		}
	}
	if l.Idle {
		if err := g.yield(); err != nil {
			return err
		}
	}
	if l.Memory > 0 && g.host.Has(Memory) {
		return g.memory(strconv.FormatInt(l.Memory, 10))
	}
	return nil
}

// SetQuota changes only the CPU quota, to the quota in the limits.
func (g *Group) SetQuota(l Limits) error {
	dir := g.dir(g.host.tree(CPU))
	if l.VCPUs == 0 {
		if g.host.Version == 2 {
			return set(dir, "cpu.max", "max")
		}
		return set(dir, "cpu.cfs_quota_us", "-1")
	}
	quota, err := l.Quota()
	if err != nil {
		return err
	}
	if g.host.Version == 2 {
		return set(dir, "cpu.max", fmt.Sprintf("%d %d", quota.Microseconds(), l.Period.Microseconds()))
	}
	if err := set(dir, "cpu.cfs_period_us", strconv.FormatInt(l.Period.Microseconds(), 10)); err != nil {
		return err
	}
	return set(dir, "cpu.cfs_quota_us", strconv.FormatInt(quota.Microseconds(), 10))
}

// yield makes the group idle. Kernels before 5.15 have no idle groups; there it gets the least
// weight.
func (g *Group) yield() error {
	dir := g.dir(g.host.tree(CPU))
	err := set(dir, "cpu.idle", "1")
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case g.host.Version == 2:
		return set(dir, "cpu.weight", "1")
	}
	return set(dir, "cpu.shares", "2")
}

// memory limits memory, and disables swap if the kernel can. A function that swaps would have more
// memory than its limit.
func (g *Group) memory(limit string) error {
	dir := g.dir(g.host.tree(Memory))
	files := []string{"memory.limit_in_bytes", limit, "memory.memsw.limit_in_bytes", limit}
	if g.host.Version == 2 {
		files = []string{"memory.max", limit, "memory.swap.max", "0"}
	}
	if err := set(dir, files[0], files[1]); err != nil {
		return err
	}
	if err := set(dir, files[2], files[3]); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Vantage sets the paths where the group's use can be read.
func (g *Group) Vantage(v *vitrine.Vantage) {
	if g.host.Version == 2 {
		v.CgroupV2 = g.dir(g.host.trees[0])
	} else {
		v.CgroupCPU = g.dir(g.host.tree(CPU))
		v.CgroupCPUAcct = g.dir(g.host.tree(CPUAcct))
		if g.host.Has(Memory) {
			v.CgroupMemory = g.dir(g.host.tree(Memory))
		}
	}
}

// OutOfMemory returns the number of processes of the group that the kernel killed because memory
// ran out. It is 0 if that number cannot be read.
func (g *Group) OutOfMemory() int { return OutOfMemory(g.dir(g.host.tree(Memory))) }

// OutOfMemory is like Group.OutOfMemory for any group. dir is its folder in the tree of the memory
// controller.
func OutOfMemory(dir string) int {
	b, err := get(dir, "memory.events")
	if errors.Is(err, fs.ErrNotExist) { // version 1
		b, err = get(dir, "memory.oom_control")
	}
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(count)) // the kernel writes numbers
			return n
		}
	}
	return 0
}

// CPUList writes CPUs as the kernel reads them: "0,3".
func CPUList(cpus []int) string {
	var b []string
	for _, cpu := range cpus {
		b = append(b, strconv.Itoa(cpu))
	}
	return strings.Join(b, ",")
}
