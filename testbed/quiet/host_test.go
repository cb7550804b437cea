package quiet

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"vitrine"
)

// TestOthersUse checks that the use of other processes is the busy time of the run's CPUs minus
// the use by the run itself.
func TestOthersUse(t *testing.T) {
	at := time.Unix(1000, 0)
	before := count{at: at, cpus: map[int64]procfs.CPUStat{
		0: {Idle: 100}, 1: {Idle: 100, Iowait: 10, Steal: 1}, 2: {Idle: 100},
	}, processes: map[int]process{
		10: {name: "vitrine", started: 1, cpu: 5, ours: true},
		11: {name: "server", started: 1, cpu: 5, counted: true},
		12: {name: "make", started: 1, cpu: 5},
		13: {name: "old", started: 1, cpu: 50},
		15: {name: "md0_resync", started: 1, cpu: 5, ours: true, thread: true, on: 2},
		16: {name: "dockerd", started: 1, cpu: 5, ours: true, thread: true, on: 7},
		17: {name: "dockerd", started: 1, cpu: 5, ours: true, thread: true, on: 1},
	}}
	after := count{at: at.Add(10 * time.Second), cpus: map[int64]procfs.CPUStat{
		0: {Idle: 108}, 1: {Idle: 101, Iowait: 11, Steal: 2, SoftIRQ: 0.5, IRQ: 0.5}, 2: {Idle: 100},
	}, processes: map[int]process{
		10: {name: "vitrine", started: 1, cpu: 5.5, ours: true},
		11: {name: "server", started: 1, cpu: 7, counted: true},
		12: {name: "make", started: 1, cpu: 7},
		13: {name: "cc", started: 9, cpu: 3}, // another process with the same PID
		14: {name: "sleep", started: 9, cpu: 0},
		15: {name: "md0_resync", started: 1, cpu: 9, ours: true, thread: true, on: 2},
		16: {name: "dockerd", started: 1, cpu: 9, ours: true, thread: true, on: 7},
		17: {name: "dockerd", started: 1, cpu: 5.5, ours: true, thread: true, on: 7}, // it moved
	}}
	// CPU 0 was busy for 2 s and CPU 1 for 6 s. The run's instances used 2 s of that, and
	// its own process and a thread of a daemon 0.5 s each.
	got := after.since(before, []int{0, 1}, 0.2)
	if math.Abs(got.other-0.5) > 1e-9 || got.steal[0] != 0 || math.Abs(got.steal[1]-0.1) > 1e-9 {
		t.Errorf("got %+v, want 0.5 other CPUs and 0.1 of the second stolen", got)
	}
	if text := strings.Join(got.busiest, " "); text != `"cc" (0.30) "make" (0.20)` {
		t.Errorf("got busiest processes %s", text)
	}
	if u := after.since(before, []int{0, 1}, math.NaN()); !math.IsNaN(u.other) {
		t.Errorf("got other %v, want NaN because the use of the instances is unknown", u.other)
	}
	if u := after.since(before, []int{1, 8}, 0.2); !math.IsNaN(u.other) || len(u.steal) != 2 || u.steal[0] != 0 || len(u.beyond([]int{1, 8}, use{})) > 0 {
		t.Errorf("got %+v, want no judgement, because /proc/stat does not show CPU 8", u)
	}
	after.at = at.Add(30 * time.Millisecond) // the same counts
	if u := after.since(before, []int{0, 1}, 0.2); !math.IsNaN(u.other) || u.steal[1] != 0 {
		t.Errorf("in 30 ms: got %+v, want no judgement, because the kernel counts in units of 10 ms", u)
	}
}

// TestContainersAreNotNamed checks that a reason names no process below the main process of an
// instance, whose parent is the container engine's.
func TestContainersAreNotNamed(t *testing.T) {
	c := count{at: time.Unix(1000, 0), parents: map[int]int{20: 1, 21: 20, 22: 21, 30: 1}, processes: map[int]process{
		20: {name: "containerd-shim", ours: true},
		21: {name: "nginx", cpu: 5},
		22: {name: "nginx", cpu: 9},
		30: {name: "cc", cpu: 2},
	}}
	c.mark([]vitrine.Vantage{{PID: 21}, {}}) // the second instance has ended
	u := c.since(count{at: c.at.Add(-10 * time.Second)}, nil, 0)
	if text := strings.Join(u.busiest, " "); text != `"cc" (0.20)` {
		t.Errorf("got busiest processes %s", text)
	}
}

// counted starts a command, returns what a count of the host says about its process, and kills the process.
func counted(t *testing.T, c *exec.Cmd) (p process, found bool) {
	t.Helper()
	fs, err := procfs.NewDefaultFS()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	count, err := readCount(fs)
	if err := errors.Join(err, c.Process.Kill()); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	p, found = count.processes[c.Process.Pid]
	return p, found
}

// TestThreadsOfDaemons checks that a daemon that serves runs is counted by threads.
func TestThreadsOfDaemons(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	daemon := filepath.Join(t.TempDir(), "dockerd") // the kernel names a process after its file
	if err := os.Symlink(sleep, daemon); err != nil {
		t.Fatal(err)
	}
	if p, _ := counted(t, exec.CommandContext(t.Context(), daemon, "60")); !p.thread || !p.ours {
		t.Errorf("got %+v, want a thread of the run's own", p)
	}
}

// TestRoundingIsNotUse checks that the rounding of the kernel's counters does not add up to use by
// other processes on a host with many CPUs, and that a busy process is still found there.
func TestRoundingIsNotUse(t *testing.T) {
	before := count{at: time.Unix(1000, 0), cpus: map[int64]procfs.CPUStat{}}
	after := count{at: before.at.Add(2 * time.Second), cpus: map[int64]procfs.CPUStat{}}
	var cpus []int
	for cpu := range 128 {
		idle := 1.99
		if cpu%2 == 1 {
			idle = 2.01
		}
		cpus = append(cpus, cpu)
		before.cpus[int64(cpu)], after.cpus[int64(cpu)] = procfs.CPUStat{Idle: 100}, procfs.CPUStat{Idle: 100 + idle}
	}
	u := after.since(before, cpus, 0)
	if math.Abs(u.other) > 1e-6 || len(u.beyond(cpus, use{})) > 0 {
		t.Errorf("128 idle CPUs: got %+v, want no use by other processes", u)
	}
	after.cpus[0] = procfs.CPUStat{Idle: 101.5} // busy for half a second
	if u := after.since(before, cpus, 0); len(u.beyond(cpus, use{})) != 1 {
		t.Errorf("a process on one of 128 CPUs: got %+v, want a disturbance", u)
	}
}

// TestThrottledAbove checks that the time that CPU limits above this process took is the difference
// of the counters of all groups, in the units of both versions, also in a short trial.
func TestThrottledAbove(t *testing.T) {
	dir := t.TempDir()
	groups := []string{filepath.Join(dir, "v2"), filepath.Join(dir, "v1"), filepath.Join(dir, "none")}
	write := func(v2, v1 string) time.Duration {
		t.Helper()
		for group, text := range map[string]string{groups[0]: v2, groups[1]: v1} {
			if err := errors.Join(os.MkdirAll(group, 0o700), os.WriteFile(filepath.Join(group, "cpu.stat"), []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		return throttled(groups)
	}
	before := count{at: time.Unix(1000, 0), throttled: write("usage_usec 5000\nnr_throttled 1\nthrottled_usec 2000\n", "nr_periods 9\nthrottled_time 1000000\n")}
	after := count{at: before.at.Add(time.Second), throttled: write("usage_usec 900000\nnr_throttled 2\nthrottled_usec 32000\n", "nr_periods 99\nthrottled_time 6000000\n")}
	if before.throttled != 3*time.Millisecond {
		t.Errorf("got %v before, want 3ms", before.throttled)
	}
	for _, took := range []time.Duration{time.Second, 30 * time.Millisecond} {
		after.at = before.at.Add(took)
		want := 0.035 / took.Seconds()
		if u := after.since(before, nil, 0); math.Abs(u.throttled-want) > 1e-9 {
			t.Errorf("in %v: got %v CPUs, want %v", took, u.throttled, want)
		}
	}
}

// TestCommandsOfInstancesAreCounted checks that a child in a session of its own belongs to an
// instance, whose use includes the child's CPU time, and that another child belongs to the run.
func TestCommandsOfInstancesAreCounted(t *testing.T) {
	for _, leads := range []bool{false, true} {
		c := exec.CommandContext(t.Context(), "sleep", "60")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: leads}
		if p, ok := counted(t, c); !ok || p.counted != leads || p.ours == leads {
			t.Errorf("a child that leads a session: %t: got %+v", leads, p)
		}
	}
}

func TestDescends(t *testing.T) {
	parents := map[int]int{1: 0, 5: 1, 6: 5, 7: 8, 8: 7}
	for pid, want := range map[int]bool{6: true, 5: true, 1: false, 7: false, 99: false} {
		if got := descends(parents, pid, 5); got != want {
			t.Errorf("descends(%d): got %t, want %t", pid, got, want)
		}
	}
}
