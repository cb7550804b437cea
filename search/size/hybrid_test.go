package size_test

import (
	"slices"
	"strings"
	"testing"

	"vitrine"
	"vitrine/search/sim"
	"vitrine/search/size"
)

// TestHybridGrowsTheBetterWay checks that the search goes up where clustering is
// expensive, and out where threads are few. It ends with at least the capacity
// that up alone finds.
func TestHybridGrowsTheBetterWay(t *testing.T) {
	t.Parallel()
	space := ims(vitrine.Resources{VCPUs: 8})
	for name, test := range map[string]struct {
		spoil func(*sim.Function)
		want  string // a sizing on the path
		never string // a part of none
	}{
		"clustering is dear": {func(*sim.Function) {}, "bn1s-sp1l-hs1m", "sp3"},
		"one thread": {func(f *sim.Function) {
			for i := range f.Components {
				f.Components[i].Cluster, f.Components[i].Threads = 0.02, 1
			}
		}, "bn1s-sp2s-hs1s", "hs1l"},
	} {
		f := sim.IMS(1)
		test.spoil(f)
		f.Noise = sim.Noise{Deployment: 0.01, Second: 0.02, Use: 0.02}
		history, steps := pursue(t, directed(t, space, size.DirectedConfig{Scaling: size.Hybrid}), f)
		path := names(history)
		if !slices.Contains(path, test.want) || slices.ContainsFunc(path, func(s string) bool { return strings.Contains(s, test.never) }) {
			t.Errorf("%s: %v", name, path)
		}
		objective := size.Objective{Limit: space.Limit}
		hybrid := f.Capacity(find(history, objective).Sizing, 0.9)
		for _, scaling := range []string{size.Up, size.Out} {
			alone, _ := pursue(t, directed(t, space, size.DirectedConfig{Scaling: scaling}), f)
			if other := f.Capacity(find(alone, objective).Sizing, 0.9); other > 1.01*hybrid {
				t.Errorf("%s: hybrid ends with %.0f, %s alone with %.0f: %v", name, hybrid, scaling, other, path)
			}
		}
		for _, step := range steps[1 : len(steps)-1] {
			if !strings.Contains(step.Why, "uses the most cpu") {
				t.Errorf("%s: why: %s", name, step.Why)
			}
		}
	}
}

// TestHybridMeasuresBothWhenUnsure checks that the search then continues from the
// better one.
func TestHybridMeasuresBothWhenUnsure(t *testing.T) {
	space := ims(vitrine.Resources{VCPUs: 6})
	search := directed(t, space, size.DirectedConfig{Scaling: size.Hybrid})
	use := map[string]float64{"bono": 0.4, "sprout": 0.95, "homestead": 0.7}
	at := func(name string, vcpus, rate float64) vitrine.Measured {
		return measured(t, name, vcpus, vitrine.Capacity{Rate: rate, Low: 0.98 * rate, High: 1.02 * rate}, use)
	}
	history := []vitrine.Measured{at("bn1s-sp1s-hs1s", 3, 300)}
	first := search.Next(history)
	if !slices.Contains([]string{"bn1s-sp1m-hs1s", "bn1s-sp2s-hs1s"}, first.Sizing.String()) || first.Predicted == nil {
		t.Fatalf("%+v", first)
	}
	history = append(history, at("bn1s-sp1m-hs1s", 4, 310), at("bn1s-sp2s-hs1s", 4, 420))
	if next := search.Next(history); next.Done || next.Sizing.Part("sp").Count < 2 {
		t.Errorf("from two small ones, which carry more, on to %+v", next)
	}
	history[1], history[2] = at("bn1s-sp1m-hs1s", 4, 290), at("bn1s-sp2s-hs1s", 4, 280)
	if next := search.Next(history); !next.Done || !strings.Contains(next.Why, "no growth of it brought more") {
		t.Errorf("neither way brought more, but %+v", next)
	}
	history[0].Capacities[0].Low = 500
	if next := directed(t, space, size.DirectedConfig{Scaling: size.Hybrid, Reach: 400}).Next(history[:1]); !next.Done || !strings.Contains(next.Why, "reaches the workload") {
		t.Errorf("%+v", next)
	}
	if next := search.Next(nil); next.Sizing.String() != "bn1s-sp1s-hs1s" {
		t.Errorf("%+v", next)
	}
}
