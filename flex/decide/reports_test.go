package decide_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"vitrine/flex/decide"
)

// The tests in this file reproduce problems that users reported about other autoscalers.

// burst returns a load that jumps at a second and stays there.
func burst(before, after float64, at int) func(string, int) float64 {
	return func(_ string, second int) float64 {
		if second < at {
			return before
		}
		return after
	}
}

// knative/serving#3153 and #9121: while most of the new instances were not ready, the autoscaler
// left its panic mode, undid its own scale-up, and then began again.
func TestTheEndOfABurstModeUndoesNothing(t *testing.T) {
	w := newWorld(t, 90*time.Second, burst(100, 3000, 120), simple(1, 1000, 10))
	w.noise = rand.New(rand.NewPCG(3153, 9121))
	w.run(120 + 600)
	if w.drained["register"] > 0 {
		t.Errorf("%d instances were drained under a steady load: %v", w.drained["register"], w.log[len(w.log)-1])
	}
	if n := w.count("register", decide.Active); n < 300 || n > 330 {
		t.Errorf("got %d active instances for 3000/s of 10/s each, want 300 to 330", n)
	}
}

// knative/serving#13284: the panic mode ignores that a start takes 30 s, and asks for ever more
// instances in that time.
func TestAStartOf30SecondsIsWaitedFor(t *testing.T) {
	w := newWorld(t, 30*time.Second, burst(50, 500, 100), simple(1, 1000, 10))
	w.run(100 + 29)
	if n := w.started["register"]; n < 50 || n > 55 {
		t.Errorf("started %d instances for 500/s of 10/s each, want 50 to 55", n)
	}
	w.run(300)
	if n := w.started["register"]; n > 55 {
		t.Errorf("started %d instances for 500/s of 10/s each, want at most 55", n)
	}
}

// The other half of knative/serving#13284: if the load rises steadily, starts that take 30 s begin
// 30 s before their capacity is needed.
func TestARampIsAnsweredBeforeItArrives(t *testing.T) {
	ramp := func(_ string, second int) float64 { return 100 + 2*max(0, float64(min(second, 420)-120)) }
	w := newWorld(t, 30*time.Second, ramp, simple(2, 100, 50))
	w.noise = rand.New(rand.NewPCG(13284, 1))
	w.run(180) // long enough for the ramp to stand out from the noise
	before := w.short
	w.run(420)
	// Without a forecast, the load would always be 60/s above the capacity.
	if late := w.short - before; late > 25 {
		t.Errorf("too few instances were active in %d of the last 240 s of a ramp, want at most 25", late)
	}
	if n := w.count("register", serving...); n > 17 {
		t.Errorf("got %d instances for 700/s of 50/s each, want at most 17", n)
	}
}

// knative/serving#15121: under a steady load, the autoscaler removed instances for no reason after
// 10 to 15 minutes. The others were overloaded, and then it asked for 54.
func TestASteadyLoadIsLeftAlone(t *testing.T) {
	w := newWorld(t, 20*time.Second, constant(6000), simple(1, 1000, 500))
	w.noise = rand.New(rand.NewPCG(15121, 1))
	w.run(300)
	before := len(w.log)
	w.run(3 * 3600)
	if len(w.log) > before {
		t.Errorf("got %d actions under a steady load, the first is %+v", len(w.log)-before, w.log[before])
	}
}

// Also knative/serving#15121: instances that are too overloaded to report must not look like a
// lower load.
func TestSilentInstancesAreNotALowerLoad(t *testing.T) {
	w := newWorld(t, 20*time.Second, constant(600), simple(1, 100, 100))
	w.run(200)
	before := w.count("register", decide.Active)
	w.alter = func(v *decide.View) {
		for i := range v.Instances[:3] {
			v.Instances[i].Known, v.Instances[i].Rate = false, 0
		}
		v.Types[0].Rate = 300 // only the other instances report
	}
	w.run(600)
	if n := w.count("register", decide.Active); n != before || w.drained["register"] > 0 {
		t.Errorf("got %d instances, want %d although some send no reports", n, before)
	}
	if w.holds[decide.CauseMetrics] == 0 {
		t.Error("missing metrics are not reported as a hold")
	}
}

// knative/serving#4795: the autoscaler restarts without its memory, and scales down from 7 to 1.
func TestARestartForgetsNothing(t *testing.T) {
	load := func(_ string, second int) float64 {
		if second%600 < 200 {
			return 650
		}
		return 60
	}
	run := func(restart int) *world {
		w := newWorld(t, 10*time.Second, load, simple(1, 20, 100))
		w.noise = rand.New(rand.NewPCG(4795, 1))
		w.restart = restart
		w.run(1500)
		return w
	}
	a, b := run(0), run(1)
	if len(a.log) != len(b.log) || len(a.log) == 0 {
		t.Fatalf("got %d actions, and %d with a restart in every second", len(a.log), len(b.log))
	}
	for i := range a.log {
		if a.log[i] != b.log[i] {
			t.Fatalf("action %d is %+v, but %+v with a restart in every second", i, a.log[i], b.log[i])
		}
	}
}

// A worse case than knative/serving#4795: the memory is lost while the load falls.
func TestALostMemoryDrainsNothingForTheStableTime(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(650), simple(1, 20, 100))
	w.run(200)
	w.load = constant(10)
	w.memory = decide.Memory{}
	w.run(59)
	if w.drained["register"] > 0 {
		t.Error("an instance was drained within the stable time after a loss of state")
	}
	w.run(600)
	if n := w.count("register", serving...); n != 1 {
		t.Errorf("got %d instances for 10/s of 100/s each, want 1", n)
	}
}

// llm-d/llm-d-autoscaling#1019: starting instances were not counted, so each round asked for more,
// up to thousands.
func TestStartingInstancesCount(t *testing.T) {
	w := newWorld(t, 10*time.Minute, burst(10, 100, 60), simple(1, 10_000, 10))
	w.run(60 + 599)
	if n := w.count("register", decide.Starting); n > 12 {
		t.Errorf("got %d starting instances for 100/s of 10/s each, want at most 12", n)
	}
	if n := w.started["register"]; n > 13 {
		t.Errorf("started %d instances for 100/s of 10/s each, want at most 13", n)
	}
}

// Without metrics nothing scales, but dead instances are replaced.
func TestHoldsWhileMetricsAreUnknown(t *testing.T) {
	w := newWorld(t, 10*time.Second, constant(650), simple(1, 20, 100))
	w.run(100)
	before := w.count("register", decide.Active)
	w.types[0].Known = false
	w.load = constant(0)
	w.run(1000)
	if n := w.count("register", decide.Active); n != before || len(w.log) > before {
		t.Errorf("got %d instances, want %d; got %d actions, want 0", n, before, len(w.log))
	}
	if w.holds[decide.CauseMetrics] != 1000 {
		t.Errorf("got %d s of hold, want 1000", w.holds[decide.CauseMetrics])
	}
	w.instances[2].State = decide.Failed
	w.run(30)
	if n := w.count("register", decide.Active); n != before {
		t.Errorf("got %d of %d instances: the failed one was not replaced", n, before)
	}
	w.types[0].Known = true
	w.run(59)
	if w.drained["register"] > 0 {
		t.Error("an instance was drained within the stable time after metrics returned")
	}
}
