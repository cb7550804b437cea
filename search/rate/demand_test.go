package rate

import (
	"math"
	"testing"
	"time"

	"vitrine"
)

func TestDemands(t *testing.T) {
	trial := func(rate, ratio float64, use map[string]vitrine.Use) vitrine.Outcome {
		n := int64(10 * rate)
		return vitrine.Outcome{
			Key: vitrine.Key{Rate: rate}, Valid: true, Duration: 10 * time.Second,
			Scheduled: n, Offered: n, Succeeded: int64(ratio * float64(n)), Use: use,
		}
	}
	cpu := func(component string, v float64) vitrine.Use { return vitrine.Use{Component: component, CPU: &v} }
	var history []vitrine.Outcome
	for i, rate := range []float64{10, 20, 30, 40, 50} {
		history = append(history, trial(rate, 1, map[string]vitrine.Use{
			"a-1": cpu("a", 0.01+0.001*rate), "a-2": cpu("a", 0.002*rate), // 0.003 a call, 0.01 idle
			"b-1":       cpu("b", 0.3*float64(i%2)),         // nothing to do with the load
			"generator": cpu(vitrine.Generator, 0.004*rate), // no component
			"c-1":       {Component: "c"},                   // not read
		}))
	}
	history = append(history, trial(60, 0.2, map[string]vitrine.Use{"a-1": cpu("a", 9)})) // overloaded
	full := cpu("a", 0.2)
	full.VCPUs = 0.21 // at its quota
	history = append(history, trial(70, 1, map[string]vitrine.Use{"a-1": full}))
	bad := trial(5, 1, map[string]vitrine.Use{"a-1": cpu("a", 9)})
	bad.Valid = false
	got := Demands(append(history, bad), 0.9)
	if len(got) != 2 || got[0].Component != "a" || got[1].Component != "b" {
		t.Fatalf("demands %+v, want those of a and b", got)
	}
	a, b := got[0], got[1]
	if math.Abs(a.PerCall-0.003) > 1e-12 || math.Abs(a.Idle-0.01) > 1e-12 || math.Abs(a.R2-1) > 1e-9 || len(a.Rates) != 5 {
		t.Errorf("a: %+v, want 0.003 s a call, 0.01 idle, R2 1 over 5 trials", a)
	}
	if math.Abs(a.R2Medians-1) > 1e-9 {
		t.Errorf("a: R2 of the medians %g, want 1", a.R2Medians)
	}
	if b.R2 > 0.1 {
		t.Errorf("b: R2 %g, want hardly any", b.R2)
	}
	if d := Demands(history[:3], 0.9); len(d) != 0 {
		t.Errorf("three trials gave %+v, want nothing: too few", d)
	}
}

// TestDemandOfMedians has one disturbed trial in three at each rate. That costs
// the line through the trials much, and the line through the medians nothing.
func TestDemandOfMedians(t *testing.T) {
	var history []vitrine.Outcome
	for i := range 18 {
		rate := float64(10 * (1 + i/3))
		cpu := 0.01 + 0.001*rate
		if i%3 == 1 {
			cpu *= 1.5
		}
		history = append(history, vitrine.Outcome{
			Key: vitrine.Key{Rate: rate}, Valid: true, Duration: time.Second,
			Scheduled: int64(rate), Offered: int64(rate), Succeeded: int64(rate),
			Use: map[string]vitrine.Use{"a-1": {Component: "a", CPU: &cpu}},
		})
	}
	d := Demands(history, 0.9)[0]
	if d.R2 > 0.9 || math.Abs(d.R2Medians-1) > 1e-9 {
		t.Errorf("R2 %g over the trials and %g over the medians, want below 0.9 and 1", d.R2, d.R2Medians)
	}
	if d := Demands(history[:9], 0.9)[0]; !math.IsNaN(d.R2Medians) {
		t.Errorf("R2 of the medians %g over three rates, want none", d.R2Medians)
	}
}

// TestUseAtCapacityLeavesTheGeneratorOut checks that the generator, which has its
// share of the traffic, is not a component.
func TestUseAtCapacityLeavesTheGeneratorOut(t *testing.T) {
	use := func(component string, bytes float64) vitrine.Use {
		return vitrine.Use{Component: component, RxBytes: &bytes, TxBytes: &bytes}
	}
	o := vitrine.Outcome{
		Key: vitrine.Key{Rate: 10}, Valid: true, Duration: time.Second, Scheduled: 10, Offered: 10, Succeeded: 10,
		Use: map[string]vitrine.Use{"a-1": use("a", 300), "b-1": use("b", 100), "generator": use(vitrine.Generator, 400)},
	}
	got := UseAtCapacity([]vitrine.Outcome{o}, vitrine.Capacity{Threshold: 0.9, Rate: 10})[vitrine.Network]
	if len(got) != 2 || got["a"] != 0.75 || got["b"] != 0.25 {
		t.Errorf("shares of the traffic %v, want a 0.75 and b 0.25", got)
	}
}
