package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"vitrine"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/substrate"
)

// leader starts a command that leads a session and works in dir.
func leader(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// TestProcessRecordEndsItsOwnOnly checks that end spares a process that has the record's number but
// another start time or boot.
func TestProcessRecordEndsItsOwnOnly(t *testing.T) {
	dir := t.TempDir()
	cmd := leader(t, dir)
	own, err := newRecord(cmd.Process.Pid, dir)
	if err != nil {
		t.Fatal(err)
	}
	otherStart, otherBoot := own, own
	otherStart.Start++
	otherBoot.Boot = "another"
	for _, r := range []record{otherStart, otherBoot} {
		if n, err := r.end(t.Context()); n != 0 || err != nil {
			t.Errorf("%+v: stopped %d processes, error %v, want 0", r, n, err)
		}
	}
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("a process outside the record was stopped: %v", err)
	}
	if n, err := own.end(t.Context()); n != 1 || err != nil {
		t.Errorf("%+v: stopped %d processes, error %v, want 1", own, n, err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the process of the record was not killed: %v", err)
	}
}

// TestProcessRecordSparesForeignSessions checks which processes a record takes for its own after
// its leader has ended. Another session may have the leader's number by then, so only processes
// that work in the record's folder count.
func TestProcessRecordSparesForeignSessions(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	all := table{}
	for _, where := range []string{dir, elsewhere} {
		cmd := leader(t, where)
		stats, err := processes()
		if err != nil {
			t.Fatal(err)
		}
		stat := stats[cmd.Process.Pid]
		stat.Session = 1 << 30 // no such process
		all[cmd.Process.Pid] = stat
	}
	r := record{PID: 1 << 30, Dir: dir}
	roots := r.roots(all)
	if len(roots) != 1 {
		t.Fatalf("from the processes %v, got %v as the record's own, want one", all, roots)
	}
	for pid := range roots {
		if cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd")); err != nil || cwd != dir {
			t.Errorf("took a process in %s as the record's own, error %v", cwd, err)
		}
	}
}

// TestProcessRecordResolvesLinks checks that a record finds processes in a folder whose path has a
// link, because the kernel reports their working folders without links.
func TestProcessRecordResolvesLinks(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	cmd := leader(t, link)
	r, err := newRecord(cmd.Process.Pid, link)
	if err != nil {
		t.Fatal(err)
	}
	if !r.owns(cmd.Process.Pid) {
		t.Errorf("%+v: the process in %s is not the record's own", r, link)
	}
}

// unlimited returns a substrate as on a host without cgroups.
func unlimited(t *testing.T) *Substrate {
	t.Helper()
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	s, err := New(Config{Run: run, Network: NetworkHost, Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	s.groups, s.noGroups = nil, &vitrine.Unsupported{What: "cgroups", Missing: "none here", Do: "run as root"}
	hosttest.AtEnd(t, func() error { return s.Close(context.Background()) })
	return s
}

// TestRunStaysOnRecordWithItsCgroups checks that cleaning does not forget a run whose cgroups it may
// not remove, because processes of the run may be in them.
func TestRunStaysOnRecordWithItsCgroups(t *testing.T) {
	s := unlimited(t)
	root, group := s.config.Run.Root, filepath.Join(t.TempDir(), "group")
	dead, err := runstate.New(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(group, 0o755), dead.RecordJSON(groupKind, groupName, []string{group}), dead.Abandon()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Clean(t.Context())
	if kept, others := runstate.Uncleaned(err); others || !slices.Equal(kept, []string{dead.ID}) || !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), group) {
		t.Errorf("cleaning while the cgroup exists: %v", err)
	}
	if err := os.Remove(group); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Clean(t.Context()); err != nil {
		t.Errorf("cleaning when the cgroup is gone: %v", err)
	}
	if left, err := runstate.Records(root, dead.ID, groupKind); err != nil || len(left) > 0 {
		t.Errorf("records left: %q, %v", left, err)
	}
}

// TestCgroupsAreOnRecord checks that a run has a record of its cgroups while it may have any.
func TestCgroupsAreOnRecord(t *testing.T) {
	run := fabrictest.NewRun(t, filepath.Join(t.TempDir(), "runs"))
	s, err := New(Config{Run: run, Network: NetworkHost, Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	if s.groups == nil {
		t.Skip(s.noGroups)
	}
	hosttest.AtEnd(t, func() error { return s.Close(context.Background()) })
	if _, err := s.Create(t.Context(), substrate.Spec{Run: run.ID, Name: "bono-1", Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	recorded, err := runstate.Records(run.Root, run.ID, groupKind)
	if err != nil || len(recorded) != 1 {
		t.Fatalf("recorded %q, %v", recorded, err)
	}
	for _, value := range recorded {
		if err := groupsGone(value); !vitrine.IsUnsupported(err) {
			t.Errorf("the recorded folders %s are not those of the cgroups: %v", value, err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := runstate.Records(run.Root, run.ID, groupKind); err != nil || len(left) > 0 {
		t.Errorf("records left: %q, %v", left, err)
	}
}

func TestProcessWholeCPUsWithoutCgroups(t *testing.T) {
	s := unlimited(t)
	create := func(name string, vcpus float64, cpus ...int) (*Instance, error) {
		in, err := s.Create(t.Context(), substrate.Spec{Run: s.config.Run.ID, Name: name, VCPUs: vcpus, CPUs: cpus, Memory: 1 << 20, Dir: t.TempDir()})
		if err != nil {
			return nil, err
		}
		return in.(*Instance), nil
	}
	first, err := create("bono-1", 1, 4, 5, 6)
	if err != nil || !slices.Equal(first.spec.CPUs, []int{4}) {
		t.Fatalf("CPUs of the instance with one vCPU: %v", err)
	}
	second, err := create("bono-2", 2, 4, 5, 6)
	if err != nil || !slices.Equal(second.spec.CPUs, []int{5, 6}) {
		t.Fatalf("CPUs of the instance with two vCPUs: %v", err)
	}
	for name, vcpus := range map[string]float64{"none is free": 1, "not whole": 0.5} {
		if _, err := create("bono-3", vcpus, 4, 5, 6); !vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "none here") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := first.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	third, err := create("bono-3", 1, 4, 5, 6)
	if err != nil || !slices.Equal(third.spec.CPUs, []int{4}) {
		t.Errorf("CPUs of a removed instance were not reused: %v", err)
	}
	missing := third.Vantage().Missing
	for _, what := range []string{"memory-limit", "throttled", "network"} {
		if missing[what] == "" {
			t.Errorf("no reason why %s is missing: %v", what, missing)
		}
	}
}

func TestProcessEnvironment(t *testing.T) {
	s := &Substrate{config: Config{Environ: []string{"HOME=/home/x", "LANG=C", "PATH=/bin"}}}
	got := s.environment(vitrine.Command{Env: []string{"A=1", "PATH=/own"}}, nil)
	if want := []string{"HOME=/home/x", "A=1", "PATH=/own"}; !slices.Equal(got, want) {
		t.Errorf("got environment %q, want %q", got, want)
	}
	got = s.environment(vitrine.Command{}, &substrate.Account{Home: "/home/other"})
	if want := []string{"PATH=/bin", "HOME=/home/other"}; !slices.Equal(got, want) {
		t.Errorf("got environment of another user %q, want %q", got, want)
	}
}

func TestProcessNetworkNames(t *testing.T) {
	_, err := New(Config{Network: "bridged"})
	if err == nil || vitrine.IsUnsupported(err) || !strings.Contains(err.Error(), "bridged") {
		t.Errorf("%v", err)
	}
}

func TestProcessCheck(t *testing.T) {
	s := unlimited(t)
	for _, c := range s.Check(t.Context()) {
		if c.OK == (c.Missing != "") {
			t.Errorf("%+v: Missing must be set exactly when OK is not", c)
		}
		if strings.Contains(c.Name, "quota") && c.OK {
			t.Errorf("%+v is available without cgroups", c)
		}
	}
}
