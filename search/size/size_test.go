package size_test

import (
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
	"vitrine/search/size"
)

const gib = 1 << 30

// ims returns the space of the paper's demonstration: three components, the
// flavors of Table I.
func ims(limit vitrine.Resources) size.Space {
	f := sim.IMS(1)
	space := size.Space{Flavors: f.Flavors, Limit: limit}
	for _, c := range f.Components {
		space.Components = append(space.Components, c.Component)
	}
	return space
}

func sizing(t *testing.T, name string) vitrine.Sizing {
	t.Helper()
	s, err := vitrine.ParseSizing(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// measured returns the result of one sizing, from its capacity and CPU use.
func measured(t *testing.T, name string, vcpus float64, c vitrine.Capacity, cpu map[string]float64) vitrine.Measured {
	t.Helper()
	if c.Censored == "" {
		c.Censored = vitrine.CensoredNone
	}
	return vitrine.Measured{Sizing: sizing(t, name), Resources: vitrine.Resources{VCPUs: vcpus},
		Capacities: []vitrine.Capacity{c}, Utilization: map[string]map[string]float64{vitrine.CPU: cpu}}
}

// follow drives a search over a simulated function to its end.
func follow(t *testing.T, search size.Search, f *sim.Function, cfg rate.Config) ([]vitrine.Measured, string) {
	t.Helper()
	var history []vitrine.Measured
	for range 2000 {
		step := search.Next(history)
		if step.Why == "" {
			t.Fatalf("no reason after %d sizings", len(history))
		}
		if step.Done {
			return history, step.Why
		}
		m, _ := f.Measure(step.Sizing, rate.NewRamp(cfg), cfg)
		history = append(history, m)
	}
	t.Fatal("the search does not end")
	return nil, ""
}

func ramp() rate.Config {
	return rate.Config{Min: 200, Max: 1100, Increase: 50, Duration: 10 * time.Second, Repeat: 3,
		Thresholds: []float64{0.9, 0.8}, Seed: 1,
		Stop: func(o vitrine.Outcome) bool { return o.SuccessRatio() < 0.7 }}
}

func names(history []vitrine.Measured) (path []string) {
	for _, m := range history {
		path = append(path, m.Sizing.String())
	}
	return path
}
