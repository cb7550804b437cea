package quiet

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
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
		15: {name: "md0_resync", started: 1, cpu: 5, ours: true, kernel: true, on: 2},
	}}
	after := count{at: at.Add(10 * time.Second), cpus: map[int64]procfs.CPUStat{
		0: {Idle: 108}, 1: {Idle: 101, Iowait: 11, Steal: 2, SoftIRQ: 0.5, IRQ: 0.5}, 2: {Idle: 100},
	}, processes: map[int]process{
		10: {name: "vitrine", started: 1, cpu: 6, ours: true},
		11: {name: "server", started: 1, cpu: 7, counted: true},
		12: {name: "make", started: 1, cpu: 7},
		13: {name: "cc", started: 9, cpu: 3}, // another process with the same PID
		14: {name: "sleep", started: 9, cpu: 0},
		15: {name: "md0_resync", started: 1, cpu: 9, ours: true, kernel: true, on: 2},
	}}
	// CPU 0 was busy for 2 s and CPU 1 for 6 s. The run's instances used 2 s of that, and
	// its own process 1 s.
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
	after.at = at.Add(30 * time.Millisecond) // the same counts
	if u := after.since(before, []int{0, 1}, 0.2); !math.IsNaN(u.other) || u.steal[1] != 0 {
		t.Errorf("in 30 ms: got %+v, want no judgement, because the kernel counts in units of 10 ms", u)
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
