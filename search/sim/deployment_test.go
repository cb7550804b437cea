package sim_test

import (
	"math"
	"testing"
	"time"

	"vitrine/search/rate"
	"vitrine/search/sim"
)

// slow returns a function that saturates at 320 and needs 20 s to recover from an
// overload, in which it carries 224.
func slow() *sim.Function {
	f := sim.IMS(4)
	f.Collapse = 1
	f.Memory = sim.Memory{Damage: 0.3, Bears: 0.2, Onset: 1, Recovery: 20}
	return f
}

func TestOverloadLingersUntilRestOrRedeployment(t *testing.T) {
	f := slow()
	sizing := parse(t, "bn1s-sp1s-hs1s")
	trial := func(rate float64) sim.Trial {
		return sim.Trial{Sizing: sizing, Rate: rate, Duration: 10 * time.Second, Repeat: 1, Attempt: 1}
	}
	on := f.Deploy(sizing, 1, 0)
	if r := on.Run(trial(310)).SuccessRatio(); r != 1 {
		t.Fatalf("fresh: %.3f succeed", r)
	}
	on.Run(trial(600))
	if r := on.Run(trial(310)).SuccessRatio(); math.Abs(r-224.0/310) > 0.02 {
		t.Errorf("right after an overload: %.3f succeed", r)
	}
	on.Rest(20 * time.Second)
	if r := on.Run(trial(310)).SuccessRatio(); r < 0.9 || r == 1 {
		t.Errorf("rested for some time: %.3f succeed", r)
	}
	on.Run(trial(600))
	on.Rest(5 * time.Minute)
	if r := on.Run(trial(310)).SuccessRatio(); r != 1 {
		t.Errorf("well rested: %.3f succeed", r)
	}
	on.Run(trial(600))
	if r := f.Deploy(sizing, 2, time.Hour).Run(trial(310)).SuccessRatio(); r != 1 {
		t.Errorf("redeployed: %.3f succeed", r)
	}

	f.Memory.Recovery = 0
	on = f.Deploy(sizing, 1, 0)
	on.Run(trial(600))
	on.Rest(time.Hour)
	if r := on.Run(trial(310)).SuccessRatio(); r > 0.8 {
		t.Errorf("rest healed what only a fresh deployment heals: %.3f succeed", r)
	}
}

// TestQueueIsCarriedOver checks that the queue at the end of a trial fails calls
// of the next one, unless it gets the time to be served.
func TestQueueIsCarriedOver(t *testing.T) {
	f := sim.IMS(1)
	f.Queue, f.Collapse = 5, 1
	trial := sim.Trial{Sizing: parse(t, "bn1s-sp1s-hs1s"), Rate: 480, Duration: 8 * time.Second, Repeat: 1}
	on := f.Deploy(trial.Sizing, 1, 0)
	first, second := on.Run(trial).SuccessRatio(), on.Run(trial).SuccessRatio()
	on.Rest(time.Minute)
	third := on.Run(trial).SuccessRatio()
	if first < 0.99 || second > 0.8 || third != first {
		t.Errorf("%.2f, then %.2f, rested %.2f", first, second, third)
	}
}

func TestDriftMovesTheCapacity(t *testing.T) {
	f := sim.IMS(1)
	f.Noise.Drift, f.Collapse = -0.1, 1
	trial := sim.Trial{Sizing: parse(t, "bn1s-sp1s-hs1s"), Rate: 640, Duration: 200 * time.Second, Repeat: 1}
	early := f.Deploy(trial.Sizing, 1, 0).Run(trial).SuccessRatio()
	late := f.Deploy(trial.Sizing, 1, time.Hour).Run(trial).SuccessRatio()
	if math.Abs(early-0.5) > 0.01 || math.Abs(late-0.45) > 0.01 {
		t.Errorf("%.3f succeed at first, %.3f an hour later", early, late)
	}
}

// TestDriveCountsTime checks that load and wall time are those of the trials.
func TestDriveCountsTime(t *testing.T) {
	f := sim.IMS(9)
	cfg := rate.Config{Min: 100, Max: 600, Increase: 100, Duration: 10 * time.Second, Repeat: 2, Thresholds: []float64{0.9}}
	costs := sim.Costs{Warmup: 2 * time.Second, Trial: 5 * time.Second, Restart: 30 * time.Second}
	m := sim.Drive(f, parse(t, "bn1s-sp1s-hs1s"), rate.NewRamp(cfg), cfg, costs, 1000)
	if len(m.History) != 12 || m.Load != 120*time.Second || m.Wall != 12*17*time.Second+60*time.Second {
		t.Errorf("%d trials, %s of load, %s in all", len(m.History), m.Load, m.Wall)
	}
	if last := m.Steps[len(m.Steps)-1]; !last.Done || last.Why == "" {
		t.Errorf("ended with %+v", last)
	}
	if m = sim.Drive(f, parse(t, "bn1s-sp1s-hs1s"), rate.NewRamp(cfg), cfg, costs, 3); len(m.History) != 3 {
		t.Errorf("%d trials, want to be cut off at 3", len(m.History))
	}
}

// TestPopulations checks that saturations fill the range evenly in the logarithm,
// and that every shape's trials meet its truth.
func TestPopulations(t *testing.T) {
	for _, shape := range sim.Shapes() {
		p := sim.Population{Shape: shape, Low: 100, High: 10000, Noise: 0.02, Remember: true, Seed: 7}
		low := 0
		for i := range 200 {
			f := p.Function(i)
			saturation := f.Saturation(p.Sizing())
			if saturation < 100-1e-6 || saturation > 10000+1e-6 {
				t.Fatalf("%s: saturates at %g", shape, saturation)
			}
			if saturation < 1000 {
				low++
			}
			if i >= 10 {
				continue
			}
			truth := f.Capacity(p.Sizing(), 0.9)
			o := f.Run(sim.Trial{Sizing: p.Sizing(), Rate: truth, Duration: 1000 * time.Second, Repeat: 1, Attempt: 1})
			if math.Abs(o.SuccessRatio()-0.9) > 0.02 {
				t.Errorf("%s %d: %.3f succeed at the capacity", shape, i, o.SuccessRatio())
			}
		}
		if low < 70 || low > 130 {
			t.Errorf("%s: %d of 200 in the lower half", shape, low)
		}
	}
}
