package flex

import (
	"testing"
	"testing/synctest"
	"time"

	"vitrine/director/latency"
	"vitrine/flex/decide"
)

// TestAFailureByChanceStartsNothing lets one of 60 transactions fail, and then a quarter of all.
func TestAFailureByChanceStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    objective: {p99: 100ms, success: 0.99}\n")
		r.director.rate = 12
		r.run(time.Minute)
		r.director.failed = 1
		r.run(30 * time.Second)
		if faith := r.memory.Types["registration"].Faith; len(r.runner.starts) != 1 || faith != 1 {
			t.Errorf("one failure: got %d starts, faith %g, want 1 and 1: %+v", len(r.runner.starts), faith, r.Events())
		}
		r.director.failing = 0.25
		r.run(25 * time.Second)
		if len(r.runner.starts) != 2 || !r.has(decide.Start.String(), "of the profile's capacity is trusted") {
			t.Errorf("a quarter fails: got %d starts, want 2: %+v", len(r.runner.starts), r.Events())
		}
	})
}

// TestASlowSecondStartsNothing lets all transactions of one second be late, as in a pause of the store.
func TestASlowSecondStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, "    objective: {p99: 100ms}\n")
		r.director.rate = 12
		r.run(time.Minute)
		r.director.all["registration-1"].Latencies.Add(latency.Bucket(1_000_000), 12)
		r.run(30 * time.Second)
		if n := len(r.runner.starts); n != 1 {
			t.Errorf("got %d starts, want 1: %+v", n, r.Events())
		}
	})
}

// TestDialogsCountIfADrainWaitsForThem checks what the policy sees of open dialogs.
func TestDialogsCountIfADrainWaitsForThem(t *testing.T) {
	for more, want := range map[string]int{"": 0, "    drain: dialog\n": 50} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, more)
			r.director.dialogs = 50
			r.run(10 * time.Second)
			if got := r.view(time.Now()).Instances[0].Dialogs; got != want {
				t.Errorf("%q: the policy sees %d dialogs, want %d", more, got, want)
			}
		})
	}
}
