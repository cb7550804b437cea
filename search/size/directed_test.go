package size_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"vitrine"
	"vitrine/search/sim"
	"vitrine/search/size"
)

func directed(t *testing.T, space size.Space, cfg size.DirectedConfig) size.Search {
	t.Helper()
	if cfg.ScaleOn == "" {
		cfg.ScaleOn = vitrine.CPU
	}
	search, err := size.NewDirected(space, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return search
}

// TestDirectedTakesThePapersPath repeats the demonstration of NFV-VITAL, III.B.1:
// scaling up within 6 vCPUs.
func TestDirectedTakesThePapersPath(t *testing.T) {
	search := directed(t, ims(vitrine.Resources{VCPUs: 6}), size.DirectedConfig{Scaling: size.Up})
	history, why := follow(t, search, sim.IMS(1), ramp())
	want := []string{"bn1s-sp1s-hs1s", "bn1s-sp1m-hs1s", "bn1s-sp1m-hs1m"}
	if got := names(history); !slices.Equal(got, want) {
		t.Fatalf("path %v, want %v", got, want)
	}
	for i, bottleneck := range []string{"sprout", "homestead", "sprout"} {
		if history[i].Bottleneck != bottleneck {
			t.Errorf("%s: bottleneck %s, want %s", want[i], history[i].Bottleneck, bottleneck)
		}
	}
	for _, part := range []string{"sprout uses the most cpu", "cannot grow", "bn1s-sp1l-hs1m would be over the limit by 1 vCPUs"} {
		if !strings.Contains(why, part) {
			t.Errorf("why it ended: %q, want %q in it", why, part)
		}
	}
	best, reason := size.Optimal(history, size.Objective{Limit: vitrine.Resources{VCPUs: 6}, Unit: "calls/s"})
	if best.String() != "bn1s-sp1m-hs1m" || !strings.Contains(reason, "calls/s") {
		t.Errorf("best is %s: %s", best, reason)
	}
}

func TestDirectedSaysWhy(t *testing.T) {
	flat := map[string]float64{"bono": 0.4, "sprout": 0.9, "homestead": 0.7}
	six := ims(vitrine.Resources{VCPUs: 6})
	few := six
	few.MaxCount = 1
	found := vitrine.Capacity{Rate: 350, Low: 300, High: 400}
	for name, test := range map[string]struct {
		space size.Space
		cfg   size.DirectedConfig
		last  vitrine.Measured
		want  string // the sizing, or a part of why it is done
	}{
		"up":           {six, size.DirectedConfig{Scaling: size.Up}, measured(t, "bn1s-sp1s-hs1s", 3, found, flat), "bn1s-sp1m-hs1s"},
		"out":          {six, size.DirectedConfig{Scaling: size.Out}, measured(t, "bn1s-sp1s-hs1s", 3, found, flat), "bn1s-sp2s-hs1s"},
		"largest":      {ims(vitrine.Resources{}), size.DirectedConfig{Scaling: size.Up}, measured(t, "bn1s-sp1l-hs1s", 6, found, flat), "no larger flavor"},
		"most":         {few, size.DirectedConfig{Scaling: size.Out}, measured(t, "bn1s-sp1s-hs1s", 3, found, flat), "1 instances, the most allowed"},
		"limit":        {six, size.DirectedConfig{Scaling: size.Out}, measured(t, "bn1s-sp4s-hs1s", 6, found, flat), "over the limit by 1 vCPUs"},
		"not scalable": {six, size.DirectedConfig{Scaling: size.Up}, measured(t, "bn1s-sp1s-hs1s", 3, found, map[string]float64{"sprout": 0.5, "homer": 0.9}), "homer uses the most cpu at capacity in bn1s-sp1s-hs1s (90% of what it was given), but cannot grow: it is not scalable"},
		"not measured": {six, size.DirectedConfig{Scaling: size.Up}, measured(t, "bn1s-sp1s-hs1s", 3, found, nil), "no cpu use was measured"},
		"reached":      {six, size.DirectedConfig{Scaling: size.Up, Reach: 300}, measured(t, "bn1s-sp1s-hs1s", 3, found, flat), "reaches the workload of 300"},
		"not yet sure": {six, size.DirectedConfig{Scaling: size.Up, Reach: 310}, measured(t, "bn1s-sp1s-hs1s", 3, found, flat), "bn1s-sp1m-hs1s"},
		"below":        {six, size.DirectedConfig{Scaling: size.Up, Reach: 40}, measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{Rate: 50, High: 50, Censored: vitrine.CensoredBelow}, flat), "bn1s-sp1m-hs1s"},
		"above":        {six, size.DirectedConfig{Scaling: size.Up}, measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{Rate: 400, Low: 400, High: 400, Censored: vitrine.CensoredAbove}, flat), "raise the range"},
		"generator":    {six, size.DirectedConfig{Scaling: size.Up}, measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{Rate: 400, Censored: vitrine.CensoredGenerator}, flat), "no trial at a higher rate was valid"},
		"no capacity":  {six, size.DirectedConfig{Scaling: size.Up, Threshold: 3}, measured(t, "bn1s-sp1s-hs1s", 3, found, flat), "no capacity"},
	} {
		step := directed(t, test.space, test.cfg).Next([]vitrine.Measured{test.last})
		got := step.Why
		if !step.Done {
			got = step.Sizing.String()
			if !strings.Contains(step.Why, "sprout uses the most cpu") {
				t.Errorf("%s: why: %s", name, step.Why)
			}
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}

func TestDirectedScalesOnMemory(t *testing.T) {
	space := ims(vitrine.Resources{})
	space.Flavors = []vitrine.Flavor{{Name: "small", VCPUs: 1, Memory: gib}, {Name: "quick", VCPUs: 2, Memory: gib}, {Name: "large", VCPUs: 4, Memory: 4 * gib}}
	m := measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{Rate: 350}, map[string]float64{"sprout": 0.9})
	m.Utilization[vitrine.Memory] = map[string]float64{"bono": 0.8, "sprout": 0.3}
	step := directed(t, space, size.DirectedConfig{Scaling: size.Up, ScaleOn: vitrine.Memory}).Next([]vitrine.Measured{m})
	if step.Sizing.String() != "bn1l-sp1s-hs1s" { // quick would give it no more memory
		t.Errorf("%+v", step)
	}
}

func TestDirectedRefusals(t *testing.T) {
	six := ims(vitrine.Resources{VCPUs: 6})
	for want, test := range map[string]struct {
		space size.Space
		cfg   size.DirectedConfig
	}{
		`scaling "sideways"`:          {six, size.DirectedConfig{Scaling: "sideways", ScaleOn: vitrine.CPU}},
		`scale_on "disk"`:             {six, size.DirectedConfig{Scaling: size.Up, ScaleOn: "disk"}},
		"over the limit by 0.5 vCPUs": {ims(vitrine.Resources{VCPUs: 2.5}), size.DirectedConfig{Scaling: size.Up, ScaleOn: vitrine.CPU}},
		"1024 MiB of memory":          {ims(vitrine.Resources{Memory: 5 * gib}), size.DirectedConfig{Scaling: size.Up, ScaleOn: vitrine.CPU}},
		"nothing bounds":              {ims(vitrine.Resources{}), size.DirectedConfig{Scaling: size.Out, ScaleOn: vitrine.CPU, Reach: 500}},
	} {
		_, err := size.NewDirected(test.space, test.cfg)
		if err == nil || !strings.Contains(err.Error(), want) || !vitrine.IsBadInput(err) {
			t.Errorf("got %v, want bad input with %q", err, want)
		}
	}
}

// TestDirectedStopsWhereThereIsNoPlace checks that a search ends without room on
// the CPUs, even if the limit would allow more.
func TestDirectedStopsWhereThereIsNoPlace(t *testing.T) {
	space := ims(vitrine.Resources{VCPUs: 6})
	space.Place = func(s vitrine.Sizing) error {
		if s.String() != "bn1s-sp1s-hs1s" {
			return errors.New("one CPU is too few")
		}
		return nil
	}
	for _, scaling := range []string{size.Up, size.Hybrid} {
		search := directed(t, space, size.DirectedConfig{Scaling: scaling})
		flat := map[string]float64{"bono": 0.2, "sprout": 0.9, "homestead": 0.3}
		step := search.Next([]vitrine.Measured{measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{Rate: 100, Low: 90, High: 110, Censored: vitrine.CensoredNone}, flat)})
		if !step.Done || !strings.Contains(step.Why, "has no place: one CPU is too few") {
			t.Errorf("%s: %+v", scaling, step)
		}
	}
}

// TestDirectedGrowsOneComponentWithinTheLimit checks this on random functions.
func TestDirectedGrowsOneComponentWithinTheLimit(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 3))
		space := randomSpace(random)
		cfg := size.DirectedConfig{Scaling: []string{size.Up, size.Out}[random.IntN(2)], ScaleOn: vitrine.CPU}
		search, err := size.NewDirected(space, cfg)
		if err != nil {
			continue
		}
		var history []vitrine.Measured
		for step := search.Next(nil); !step.Done; step = search.Next(history) {
			if !space.Resources(step.Sizing).Within(space.Limit) {
				t.Fatalf("seed %d: %s is over the limit", seed, step.Sizing)
			}
			if n := len(history); n > 0 && changes(history[n-1].Sizing, step.Sizing) != 1 {
				t.Fatalf("seed %d: from %s to %s", seed, history[n-1].Sizing, step.Sizing)
			}
			cpu := map[string]float64{}
			for _, c := range space.Components {
				cpu[c.Name] = random.Float64()
			}
			history = append(history, vitrine.Measured{Sizing: step.Sizing, Utilization: map[string]map[string]float64{vitrine.CPU: cpu},
				Capacities: []vitrine.Capacity{{Rate: 1, Censored: vitrine.CensoredNone}}})
			if len(history) > 200 {
				t.Fatalf("seed %d: does not end", seed)
			}
		}
	}
}

// changes returns the number of components that differ.
func changes(a, b vitrine.Sizing) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// TestDirectedEndsWithTheBest checks that, within six small units, the directed
// search ends within the interval of the best sizing of an exhaustive search.
func TestDirectedEndsWithTheBest(t *testing.T) {
	limit := vitrine.Resources{VCPUs: 6}
	for seed := range uint64(10) {
		f := sim.IMS(seed)
		f.Noise = sim.Noise{Deployment: 0.02, Second: 0.04, Hold: 0.5, Use: 0.01}
		all, err := size.NewExhaustive(ims(limit))
		if err != nil {
			t.Fatal(err)
		}
		everything, _ := follow(t, all, f, ramp())
		path, _ := follow(t, directed(t, ims(limit), size.DirectedConfig{Scaling: size.Up}), f, ramp())
		objective := size.Objective{Limit: limit}
		best, chosen := find(everything, objective), find(path, objective)
		if c, b := chosen.Capacities[0], best.Capacities[0]; c.Rate < b.Low || c.Rate > b.High {
			t.Errorf("seed %d: directed ends with %s at %+v, exhaustive with %s at %+v", seed, chosen.Sizing, c, best.Sizing, b)
		}
		if len(path) >= len(everything)/4 {
			t.Errorf("seed %d: directed took %d sizings of %d", seed, len(path), len(everything))
		}
	}
}

func find(history []vitrine.Measured, objective size.Objective) vitrine.Measured {
	best, _ := size.Optimal(history, objective)
	i := slices.IndexFunc(history, func(m vitrine.Measured) bool { return m.Sizing.String() == best.String() })
	return history[i]
}

// TestDirectedReachesAWorkload checks that the search ends with the first sizing
// that reaches it.
func TestDirectedReachesAWorkload(t *testing.T) {
	cfg := ramp()
	search := directed(t, ims(vitrine.Resources{}), size.DirectedConfig{Scaling: size.Up, Reach: 600})
	history, why := follow(t, search, sim.IMS(1), cfg)
	if last := history[len(history)-1]; last.Capacities[0].Low < 600 || !strings.Contains(why, "reaches the workload of 600") {
		t.Errorf("ended at %s: %s", last.Sizing, why)
	}
	for _, m := range history[:len(history)-1] {
		if m.Capacities[0].Low >= 600 {
			t.Errorf("went on after %s", m.Sizing)
		}
	}
}
