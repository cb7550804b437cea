package rate_test

import (
	"math"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
)

// TestLoads checks that trials with refused calls do not count, that the busiest
// instance is the same in all trials, and that a component that was not read is
// left out.
func TestLoads(t *testing.T) {
	cpu := func(component string, used float64) vitrine.Use {
		return vitrine.Use{Component: component, VCPUs: 1, CPU: &used}
	}
	trial := func(succeeded int64, one, two float64) vitrine.Outcome {
		return vitrine.Outcome{Valid: true, Duration: 10 * time.Second, Scheduled: 1000, Succeeded: succeeded,
			Use: map[string]vitrine.Use{
				"sprout-1": cpu("sprout", one), "sprout-2": cpu("sprout", two), "bono-1": {Component: "bono"},
				"generator": cpu(vitrine.Generator, 0.9),
			}}
	}
	history := []vitrine.Outcome{trial(1000, 0.31, 0.30), trial(990, 0.2, 0.35), trial(930, 0.9, 0.9)}
	loads := rate.Loads(history, 0.9)
	if len(loads) != 2 {
		t.Fatalf("%+v", loads)
	}
	want := vitrine.Load{Component: "sprout", Instances: 2, VCPUs: 1, Rate: 100, CPU: 0.61, Busiest: 0.30}
	if got := loads[0]; math.Abs(got.CPU-want.CPU) > 1e-12 || got.Busiest != want.Busiest || got.Instances != 2 || got.Rate != 100 {
		t.Errorf("%+v, want %+v", got, want)
	}
	if loads := rate.Loads(history[2:], 0.9); len(loads) != 1 || loads[0].Rate != 93 {
		t.Errorf("%+v: with nothing better, what passed counts", loads)
	}
	if loads := rate.Loads(history[2:], 0.95); len(loads) != 0 {
		t.Errorf("%+v of a trial that failed", loads)
	}
}
