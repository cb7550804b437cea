package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"vitrine"
	"vitrine/internal/hosttest"
)

// host returns this host's cgroups, or skips the test.
func host(t *testing.T) *Host {
	t.Helper()
	h, err := Detect()
	hosttest.Need(t, err)
	return h
}

// bothVersions runs a test with this host's cgroups. If they are of version 1 and version 2 is mounted
// beside them, as systemd does, the test also runs there. The groups of version 2 have no controllers
// then, and need none to start and end processes.
func bothVersions(t *testing.T, test func(t *testing.T, h *Host)) {
	h := host(t)
	t.Run(fmt.Sprintf("v%d", h.Version), func(t *testing.T) { test(t, h) })
	if second := secondVersion(t, h); second != nil {
		t.Run("v2", func(t *testing.T) { test(t, second) })
	}
}

// secondVersion returns the cgroups of version 2 if this host's cgroups are of version 1, or nil if it
// lacks version 2.
func secondVersion(t *testing.T, h *Host) *Host {
	t.Helper()
	pfs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	mounts, own, err := membership(pfs)
	if err != nil {
		t.Fatal(err)
	}
	i, j := find2(mounts, own)
	if h.Version == 2 || i < 0 || j < 0 || writable(mounts[i].MountPoint) != nil {
		return nil
	}
	home, ok := below(mounts[i], own[j].Path)
	if !ok {
		return nil
	}
	return &Host{Version: 2, trees: []tree{{base: mounts[i].MountPoint, home: home}}}
}

// run returns a unique run label. The test removes its groups at the end.
func run(t *testing.T, h *Host) string {
	t.Helper()
	label := fmt.Sprintf("test%d%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() {
		for range 2 {
			if err := h.RemoveRun(context.Background(), label); err != nil {
				t.Error(err)
			}
		}
		if left, err := h.Groups(label); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, %v", left, err)
		}
	})
	return label
}

// start starts a shell command in a leaf of the group. It fails the test if the thread that started
// the command is still in the group.
func start(t *testing.T, g *Group, leaf, script string) (*Leaf, *exec.Cmd) {
	t.Helper()
	l, err := g.Leaf(leaf)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", script)
	done := make(chan error)
	var after []byte // groups of the thread after Start
	go func() {
		runtime.LockOSThread() // ends with the goroutine
		err := l.Start(cmd)
		var unread error
		after, unread = os.ReadFile("/proc/thread-self/cgroup") // now, because Go ends the thread with the goroutine
		done <- errors.Join(err, unread)
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(after), g.String()) {
		t.Errorf("the thread that started the command is in:\n%s", after)
	}
	return l, cmd
}

func TestCgroupLimits(t *testing.T) {
	h := host(t)
	label := run(t, h)
	g, err := h.Create(label, "sprout-1", Limits{VCPUs: 0.15, Period: 20 * time.Millisecond, Memory: 64 << 20, CPUs: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cpu.cfs_quota_us": "3000", "cpu.cfs_period_us": "20000", "memory.limit_in_bytes": "67108864", "cpuset.cpus": "0"}
	if h.Version == 2 {
		want = map[string]string{"cpu.max": "3000 20000", "memory.max": "67108864", "cpuset.cpus": "0"}
	}
	for _, l := range []Limits{{}, {VCPUs: 0.15, Period: 20 * time.Millisecond}} { // remove the quota, then set it again
		if err := g.SetQuota(l); err != nil {
			t.Fatal(err)
		}
		quota, err := get(g.dir(h.tree(CPU)), map[int]string{1: "cpu.cfs_quota_us", 2: "cpu.max"}[h.Version])
		if has := !strings.HasPrefix(string(quota), "-1") && !strings.HasPrefix(string(quota), "max"); err != nil || has != (l.VCPUs > 0) {
			t.Errorf("the quota for %+v is %q, %v", l, quota, err)
		}
	}
	for file, value := range want {
		controller, _, _ := strings.Cut(file, ".")
		if !h.Has(controller) {
			continue
		}
		if got, err := get(g.dir(h.tree(controller)), file); err != nil || strings.TrimSpace(string(got)) != value {
			t.Errorf("%s is %q, %v; want %s", file, got, err, value)
		}
	}
	if _, err := h.Create(label, "sprout-1", Limits{}); err == nil {
		t.Error("created two groups with the same name")
	}
}

// TestCgroupIdleYields checks that an idle group gets hardly any CPU time beside a group that wants
// all of it.
func TestCgroupIdleYields(t *testing.T) {
	h := host(t)
	if !h.Has(CPUSet) {
		t.Skip(&vitrine.Unsupported{What: "this test", Missing: "the cgroup controller cpuset"})
	}
	label := run(t, h)
	loop := func(name, script string, idle bool) *exec.Cmd {
		g, err := h.Create(label, name, Limits{CPUs: []int{0}, Idle: idle})
		if err != nil {
			t.Fatal(err)
		}
		_, cmd := start(t, g, "1", script)
		return cmd
	}
	idle := loop("soaker-1", "while :; do :; done", true)
	busy := loop("receiver-1", "i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done", false)
	if err := busy.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := idle.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = idle.Wait()
	used := func(c *exec.Cmd) time.Duration { return c.ProcessState.UserTime() + c.ProcessState.SystemTime() }
	if used(idle) > used(busy)/4 {
		t.Errorf("the idle group used %v of CPU time, the other group %v", used(idle), used(busy))
	}
}

func TestCgroupQuotaBounds(t *testing.T) {
	for _, l := range []Limits{
		{VCPUs: 0.01, Period: 20 * time.Millisecond},
		{VCPUs: 1, Period: 500 * time.Microsecond},
		{VCPUs: 1, Period: 2 * time.Second},
	} {
		if q, err := l.Quota(); !vitrine.IsUnsupported(err) {
			t.Errorf("%+v: %v, %v", l, q, err)
		}
	}
	if _, err := (Limits{VCPUs: 0.3, Period: 2 * time.Millisecond}).Quota(); err == nil || !strings.Contains(err.Error(), "set cfs_period to 4ms or more") {
		t.Errorf("got %v, want the shortest period of whole milliseconds that suffices", err)
	}
	if q, err := (Limits{VCPUs: 0.075, Period: 20 * time.Millisecond}).Quota(); err != nil || q != 1500*time.Microsecond {
		t.Errorf("%v, %v", q, err)
	}
}

// TestCgroupFailedCreate checks that a failed Create leaves nothing behind. The CPU does not exist.
func TestCgroupFailedCreate(t *testing.T) {
	h := host(t)
	if !h.Has(CPUSet) {
		t.Skip(&vitrine.Unsupported{What: "this test", Missing: "the cgroup controller cpuset"})
	}
	label := run(t, h)
	if _, err := h.Create(label, "sprout-1", Limits{CPUs: []int{1 << 20}}); err == nil {
		t.Fatal("created a group on a CPU that does not exist")
	}
	if left, err := h.Groups(label); err != nil || len(left) > 1 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestCgroupFirstInstruction checks that a command is in its groups before its first instruction,
// and that no thread of this process is in them. start checks the thread that started the command.
func TestCgroupFirstInstruction(t *testing.T) { bothVersions(t, cgroupFirstInstruction) }

func cgroupFirstInstruction(t *testing.T, h *Host) {
	g, err := h.Create(run(t, h), "sprout-1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "groups")
	_, cmd := start(t, g, "1", "cat /proc/self/cgroup > "+file)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(got), "/"+g.String()); n != len(h.trees) {
		t.Errorf("in %d of %d hierarchies:\n%s", n, len(h.trees), got)
	}
	if n := strings.Count(string(got), "/"+g.String()+"/1\n"); n != 1 {
		t.Errorf("in its leaf in %d hierarchies:\n%s", n, got)
	}
	tasks, err := filepath.Glob("/proc/self/task/*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if b, err := os.ReadFile(task); err == nil && strings.Contains(string(b), g.String()) {
			t.Errorf("%s:\n%s", task, b)
		}
	}
}

func TestCgroupKillsOnlyTheLeaf(t *testing.T) { bothVersions(t, cgroupKillsOnlyTheLeaf) }

func cgroupKillsOnlyTheLeaf(t *testing.T, h *Host) {
	g, err := h.Create(run(t, h), "sprout-1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	goes, going := start(t, g, "1", "setsid sleep 1000 & trap '' TERM; wait")
	_, staying := start(t, g, "2", "exec sleep 1000")
	if err := goes.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := going.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("ended by %v", err)
	}
	if gone, err := goes.Remove(); !gone || err != nil {
		t.Errorf("Remove removed the leaf: %v, %v", gone, err)
	}
	if err := staying.Process.Signal(os.Interrupt); err != nil {
		t.Errorf("the other leaf's command has ended: %v", err)
	}
	if err := g.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = staying.Wait()
}

func TestCgroupLeafStaysWhileUsed(t *testing.T) { bothVersions(t, cgroupLeafStaysWhileUsed) }

func cgroupLeafStaysWhileUsed(t *testing.T, h *Host) {
	g, err := h.Create(run(t, h), "sprout-1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	l, cmd := start(t, g, "1", "sleep 1000 & :")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if gone, err := l.Remove(); gone || err != nil {
		t.Errorf("Remove removed a leaf with a process: %v, %v", gone, err)
	}
}

// TestCgroupLeafWithGroups checks that Remove also removes groups that a command made in its leaf,
// but keeps them while one of them has a process.
func TestCgroupLeafWithGroups(t *testing.T) { bothVersions(t, cgroupLeafWithGroups) }

func cgroupLeafWithGroups(t *testing.T, h *Host) {
	g, err := h.Create(run(t, h), "sprout-1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	l, cmd := start(t, g, "1", "exec sleep 1000")
	inner := filepath.Join(l.dir, "made", "inside")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := set(inner, "cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if gone, err := l.Remove(); gone || err != nil {
		t.Errorf("Remove removed a leaf with a process in a group below it: %v, %v", gone, err)
	}
	if err := l.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if gone, err := l.Remove(); !gone || err != nil {
		t.Errorf("Remove did not remove a leaf with two empty groups below it: %v, %v", gone, err)
	}
	if _, err := os.Stat(l.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the leaf still exists: %v", err)
	}
}

// TestCgroupKillsInThreadedGroups checks that Kill ends a process that a command put into a threaded
// group below its leaf, and that Remove removes the group.
func TestCgroupKillsInThreadedGroups(t *testing.T) {
	h := host(t)
	if h.Version == 1 {
		h = secondVersion(t, h) // only groups of version 2 can be threaded
	}
	if h == nil {
		t.Skip(&vitrine.Unsupported{What: "threaded cgroups", Missing: "a mounted cgroup v2"})
	}
	g, err := h.Create(run(t, h), "sprout-1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	l, cmd := start(t, g, "1", "exec sleep 1000")
	inner := filepath.Join(l.dir, "threads")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(set(inner, "cgroup.type", "threaded"), set(inner, "cgroup.threads", strconv.Itoa(cmd.Process.Pid))); err != nil {
		t.Fatal(err)
	}
	if err := l.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("ended by %v", err)
	}
	if gone, err := l.Remove(); !gone || err != nil {
		t.Errorf("Remove removed the leaf: %v, %v", gone, err)
	}
}

// TestCgroupKillsForkers kills processes that fork as fast as they can, at most 30 at a time.
func TestCgroupKillsForkers(t *testing.T) { bothVersions(t, cgroupKillsForkers) }

func cgroupKillsForkers(t *testing.T, h *Host) {
	g, err := h.Create(run(t, h), "sprout-1", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	l, cmd := start(t, g, "1", `
		f() { while :; do sh -c : & sh -c : & wait; done; }
		for i in 1 2 3 4 5 6 7 8 9 10; do f & done; wait`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for pids := 0; pids < 11 && ctx.Err() == nil; {
		all, err := procs(l.dir)
		if err != nil {
			t.Fatal(err)
		}
		pids = len(all)
	}
	if err := l.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if pids, err := procs(l.dir); err != nil || len(pids) > 0 {
		t.Errorf("left: %v, %v", pids, err)
	}
}

// TestCgroupsOfManyAtOnce creates and removes groups of several runs concurrently. The run that
// removes its groups last also removes vitrine's group, while others create their groups.
func TestCgroupsOfManyAtOnce(t *testing.T) {
	h := host(t)
	label := run(t, h)
	failed := make(chan error)
	const many = 4
	for i := range many {
		go func() {
			for j := range 20 {
				own := fmt.Sprintf("%s-%d-%d", label, i, j)
				_, err := h.Create(own, "sprout-1", Limits{VCPUs: 1, Period: 20 * time.Millisecond})
				if removing := h.RemoveRun(context.Background(), own); err == nil {
					err = removing
				}
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range many {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}
