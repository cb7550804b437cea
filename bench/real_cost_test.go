package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"vitrine"
)

// TestSensitivity recovers the power with which CPU time follows the host's speed. A trial that fails
// uses its whole quota, so it says nothing.
func TestSensitivity(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	run := realRecord{Capacity: &vitrine.Capacity{Rate: 1000}}
	for range 40 {
		o := realTrial{Rate: 500 + 250*random.Float64(), Speed: 0.8 + 0.2*random.Float64(), Scheduled: 100, Succeeded: 100}
		o.CPU = 1e-5 * math.Pow(o.Rate, -0.3) * math.Pow(o.Speed, -2)
		failed := o
		failed.CPU, failed.Succeeded = 1e-5, 50
		run.Trials = append(run.Trials, o, failed, realTrial{Rate: 100, Speed: 0.5, CPU: 1, Scheduled: 100, Succeeded: 100})
	}
	s, ok := realRecords{run}.sensitivity()
	if !ok || math.Abs(s.power-2) > 1e-6 || s.slowest < 0.8 || s.fastest > 1 {
		t.Errorf("got %+v, %t, want a power of 2", s, ok)
	}
	run.Trials = run.Trials[:9]
	if _, ok := (realRecords{run}).sensitivity(); ok {
		t.Error("three trials were enough")
	}
}

// TestCallCosts recovers how much more a call costs in some runs than in others on the same host, and
// how their capacities follow. A call costs less on the other host, which carries more. Trials at full
// quota and failed ones say nothing.
func TestCallCosts(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	run := func(host string, capacity, usual, cost float64) judged {
		r := realRecord{Host: host, Capacity: &vitrine.Capacity{Rate: capacity * math.Pow(cost, -1.5)}}
		for range 6 {
			rate := capacity * (0.55 + 0.15*random.Float64())
			o := realTrial{Rate: rate, CPU: usual * cost * math.Pow(rate, -0.4), Scheduled: 100, Succeeded: 100}
			failed, full := o, o
			failed.CPU, failed.Succeeded = 1, 50
			full.Rate, full.CPU = 0.99*capacity, 0.5/(0.99*capacity)
			r.Trials = append(r.Trials, o, failed, full)
		}
		return judged{realRecord: r}
	}
	var runs []judged
	for _, cost := range []float64{1, 1.2, 0.9, 1.1, 1} {
		runs = append(runs, run("slow", 1000, 1, cost))
	}
	both := slices.Insert(slices.Clone(runs), 3, run("fast", 1700, 0.6, 1.25), run("fast", 1700, 0.6, 0.8), run("fast", 1700, 0.6, 1))
	for i, want := range []float64{1, 1.2, 0.9, 1.25, 0.8, 1, 1.1, 1} {
		if got := callCosts(both)[i]; math.Abs(got-want) > 1e-6 {
			t.Errorf("run %d: a call costs %g of the median, want %g", i, got, want)
		}
	}
	for most, all := range map[float64][]judged{1.2: runs, 1.25: both} {
		if e, ok := effectOfCosts(all); !ok || math.Abs(e.power+1.5) > 1e-6 || e.correlation > -0.999 || math.Abs(e.most-most) > 1e-6 {
			t.Errorf("got %+v, %t, want a power of -1.5 and at most %g", e, ok, most)
		}
	}
	if !math.IsNaN(callCosts(runs[1:2])[0]) {
		t.Error("a single run is compared with itself")
	}
	runs[0].Trials = nil
	if !math.IsNaN(callCosts(runs)[0]) {
		t.Error("a run without trials has a cost")
	}
	if _, ok := effectOfCosts(runs); ok {
		t.Error("four runs were enough")
	}
}
