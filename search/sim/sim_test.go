package sim_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

func parse(t *testing.T, name string) vitrine.Sizing {
	t.Helper()
	s, err := vitrine.ParseSizing(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestIMSOrdersAsTableII checks the orderings of NFV-VITAL, after which this
// function is modelled.
func TestIMSOrdersAsTableII(t *testing.T) {
	f := sim.IMS(1)
	at := func(name string) float64 { return f.Capacity(parse(t, name), 0.9) }
	for _, descending := range [][]string{
		{"bn1l-sp1l-hs1l", "bn1m-sp1m-hs1m", "bn1s-sp1s-hs1s", "bn1m-sp2s-hs2s"},
		{"bn1l-sp1l-hs1l", "bn1l-sp2m-hs1l", "bn1l-sp1l-hs2m", "bn1l-sp4s-hs1l", "bn1l-sp1l-hs4s"},
	} {
		for i, name := range descending[1:] {
			if at(name) >= at(descending[i]) {
				t.Errorf("%s carries %g, %s only %g", name, at(name), descending[i], at(descending[i]))
			}
		}
	}
	if small := at("bn1s-sp1s-hs1s"); small < 300 || small > 350 {
		t.Errorf("the small one carries %g", small)
	}
}

func TestTrialsMeetTheTruth(t *testing.T) {
	sizing := parse(t, "bn1s-sp1s-hs1s")
	for name, spoil := range map[string]func(*sim.Function){
		"saturating": func(f *sim.Function) { f.Collapse = 1 },
		"collapsing": func(f *sim.Function) { f.Collapse = 3 },
		"losing":     func(f *sim.Function) { f.Loss = 0.05 },
		"idle cost":  func(f *sim.Function) { f.Components[1].Idle = 0.3 },
		"one thread": func(f *sim.Function) { f.Components[1].Threads = 0.5 },
		"rounded":    func(f *sim.Function) { f.Collapse, f.Buffer = 1, 8 },
		"strained":   func(f *sim.Function) { f.Collapse, f.Memory = 1, sim.Memory{Damage: 0.1, Bears: 0.25} },
	} {
		f := sim.IMS(3)
		spoil(f)
		for _, threshold := range []float64{0.9, 0.8} {
			truth := f.Capacity(sizing, threshold)
			o := f.Run(sim.Trial{Sizing: sizing, Rate: 0.9999 * truth, Duration: 300 * time.Second, Repeat: 1, Attempt: 1})
			if math.Abs(o.SuccessRatio()-threshold) > 0.01 {
				t.Errorf("%s: %.3f succeed at the true capacity for %g", name, o.SuccessRatio(), threshold)
			}
		}
	}
}

// TestQueueHidesOverloadAtFirst checks that a slow queue lets a short trial pass,
// and that a warm-up shows the overload.
func TestQueueHidesOverloadAtFirst(t *testing.T) {
	f := sim.IMS(1)
	f.Queue, f.Collapse = 5, 1
	trial := sim.Trial{Sizing: parse(t, "bn1s-sp1s-hs1s"), Rate: 1.5 * 320, Duration: 8 * time.Second, Repeat: 1}
	if r := f.Run(trial).SuccessRatio(); r < 0.99 {
		t.Errorf("%.2f succeed in a short trial", r)
	}
	f.Warmup = 20
	if r := f.Run(trial).SuccessRatio(); r > 0.7 {
		t.Errorf("%.2f succeed once the queue is full", r)
	}
}

func TestSkewLeavesInstancesIdle(t *testing.T) {
	f := sim.IMS(1)
	f.Components = f.Components[:1]
	sizing := parse(t, "bn2s")
	even := f.Saturation(sizing)
	f.Components[0].Skew = 0.4
	if skewed := f.Saturation(sizing); math.Abs(skewed/even-1/1.4) > 1e-9 {
		t.Errorf("%g skewed, %g even", skewed, even)
	}
	use := f.Run(sim.Trial{Sizing: sizing, Rate: 300, Duration: time.Second, Repeat: 1}).Use
	if busy, idle := *use["bono-1"].CPU, *use["bono-2"].CPU; math.Abs(busy/idle-0.7/0.3) > 1e-9 {
		t.Errorf("busiest uses %g, the other %g", busy, idle)
	}
}

func TestGeneratorCeilingIsInvalid(t *testing.T) {
	f := sim.IMS(1)
	f.Ceiling = 200
	o := f.Run(sim.Trial{Sizing: parse(t, "bn1s-sp1s-hs1s"), Rate: 300, Duration: 10 * time.Second, Repeat: 1})
	if o.Valid || o.Reason != "generator: offered 0.67 of its schedule" || o.Offered != 2000 || o.Scheduled != 3000 {
		t.Errorf("%+v", o)
	}
}

// TestOutcomesAreConsistent checks that totals are the sums of the seconds, and
// that a trial gives the same outcome whatever ran before.
func TestOutcomesAreConsistent(t *testing.T) {
	f := sim.IMS(9)
	f.Noise = sim.Noise{Deployment: 0.1, Second: 0.2, Hold: 0.5, Use: 0.1}
	cfg := rate.Config{Min: 100, Max: 600, Increase: 100, Duration: 10 * time.Second, Repeat: 2, Thresholds: []float64{0.9}}
	m, history := f.Measure(parse(t, "bn1s-sp1s-hs1s"), rate.NewRamp(cfg), cfg)
	if m.Bottleneck != "sprout" || m.Resources.VCPUs != 3 || len(history) != 12 {
		t.Errorf("%+v after %d trials", m, len(history))
	}
	for i := len(history) - 1; i >= 0; i-- {
		o := history[i]
		again := f.Run(sim.Trial{Sizing: m.Sizing, Rate: o.Rate, Duration: o.Duration, Repeat: o.Repeat, Attempt: o.Attempt})
		again.Seq = o.Seq
		if !reflect.DeepEqual(o, again) {
			t.Fatalf("trial %d differs when run again", o.Seq)
		}
		var scheduled, succeeded, failed int64
		for _, s := range o.Seconds {
			scheduled, succeeded, failed = scheduled+s.Scheduled, succeeded+s.Succeeded, failed+s.Failed
		}
		if len(o.Seconds) != 10 || scheduled != o.Scheduled || succeeded != o.Succeeded || failed != o.FailedTotal() || succeeded+failed != scheduled {
			t.Errorf("%+v", o)
		}
	}
}
