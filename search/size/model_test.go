package size_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
	"vitrine/search/size"
)

func model(t *testing.T, space size.Space, cfg size.ModelConfig) size.Search {
	t.Helper()
	if cfg.Objective == "" {
		cfg.Objective = size.MostCapacity
	}
	search, err := size.NewModel(space, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return search
}

// pursue drives a search with bisections on a simulated function. A sizing that
// is measured again gets other random noise.
func pursue(t *testing.T, search size.Search, f *sim.Function) ([]vitrine.Measured, []size.Step) {
	t.Helper()
	cfg := rate.Config{Min: 5, Max: 20_000, Duration: 10 * time.Second, Repeat: 3, Thresholds: []float64{0.9}, Seed: 1}
	var history []vitrine.Measured
	var steps []size.Step
	for range 100 {
		step := search.Next(history)
		steps = append(steps, step)
		if step.Why == "" {
			t.Fatalf("no reason after %d sizings", len(history))
		}
		if step.Done {
			return history, steps
		}
		lucky := *f
		if step.Again {
			lucky.Seed++
		}
		m, _ := lucky.Measure(step.Sizing, rate.NewBisect(cfg), cfg)
		m.Again = step.Again
		history = append(history, m)
	}
	t.Fatal("the search does not end")
	return nil, nil
}

func best(f *sim.Function, sizings []vitrine.Sizing) (most float64) {
	for _, s := range sizings {
		most = max(most, f.Capacity(s, 0.9))
	}
	return most
}

// TestModelFindsTheBest checks that the model finds the best with a tenth of the
// deployments of an exhaustive search. It measures the best once more, and
// predicts what it did not measure.
func TestModelFindsTheBest(t *testing.T) {
	t.Parallel()
	const functions = 4
	held := 0.0
	for seed := range uint64(functions) {
		c := sim.DrawCluster(seed)
		sizings := c.Sizings()
		search := model(t, c.Space, size.ModelConfig{})
		history, steps := pursue(t, search, c.Function)
		chosen, why := search.(size.Chooser).Choose(history)
		top := best(c.Function, sizings)
		if got := c.Capacity(history[chosen].Sizing, 0.9); got < 0.97*top {
			t.Errorf("seed %d: %s carries %.0f, the best %.0f: %s", seed, history[chosen].Sizing, got, top, why)
		}
		if !history[chosen].Again || !strings.Contains(why, "measured once more") {
			t.Errorf("seed %d: the winner was not measured again: %s", seed, why)
		}
		if 10*len(history) > len(sizings) {
			t.Errorf("seed %d: %d of %d sizings measured", seed, len(history), len(sizings))
		}
		for i, step := range steps[1 : len(steps)-1] {
			if step.Predicted == nil || !(step.Predicted.Low <= step.Predicted.Rate && step.Predicted.Rate <= step.Predicted.High) {
				t.Errorf("seed %d: step %d: predicted %+v", seed, i+2, step.Predicted)
			}
		}
		fit, err := size.NewFit(c.Space, history, 0, seed)
		if err != nil {
			t.Fatal(err)
		}
		middle, hold := accuracy(t, fit, history, func(s vitrine.Sizing) float64 { return c.Capacity(s, 0.9) })
		if middle > 0.1 {
			t.Errorf("seed %d: untried sizings are off by %.2f", seed, middle)
		}
		held += hold / functions
	}
	if held < 0.9 { // one function's errors are correlated: intervals hold over functions
		t.Errorf("%.2f of the intervals hold the truth", held)
	}
}

// accuracy returns the median relative error of the sizings that were not
// measured, and the share of them whose interval holds the truth.
func accuracy(t *testing.T, fit *size.Fit, history []vitrine.Measured, truth func(vitrine.Sizing) float64) (middle, held float64) {
	t.Helper()
	measured := names(history)
	var errors []float64
	for _, s := range fit.Sizings() {
		if slices.Contains(measured, s.String()) {
			continue
		}
		p, ok := fit.Predict(s)
		if !ok {
			t.Fatalf("%s is not predicted", s)
		}
		want := truth(s)
		errors = append(errors, math.Abs(p.Rate/want-1))
		if want >= p.Low && want <= p.High {
			held++
		}
	}
	slices.Sort(errors)
	return errors[len(errors)/2], held / float64(len(errors))
}

// bent is a function that follows neither the simulator's laws nor the model's.
// Twice the vCPUs carry 1.7 times as much (as in NFV-VITAL, Table II). Clustered
// components lose by the square root of their instances, and one saturates at
// 70%.
func bent(s vitrine.Sizing) (capacity float64, loads []vitrine.Load) {
	vcpus := map[byte]float64{'s': 1, 'm': 2, 'l': 4}
	parts := []struct {
		name             string
		rate, root, used float64
	}{{"bono", 750, 0, 0.95}, {"sprout", 320, 0.5, 0.95}, {"homestead", 430, 0.9, 0.7}}
	capacity = math.Inf(1)
	for i, p := range parts {
		n, v := float64(s[i].Count), vcpus[s[i].Initial]
		capacity = min(capacity, p.rate*math.Pow(v, math.Log2(1.7))*n/(1+p.root*(math.Sqrt(n)-1)*n/2))
	}
	for _, share := range []float64{0.3, 0.6, 0.95} {
		for i, p := range parts {
			n, v := float64(s[i].Count), vcpus[s[i].Initial]
			full := p.rate * math.Pow(v, math.Log2(1.7)) * n / (1 + p.root*(math.Sqrt(n)-1)*n/2)
			one := p.used * v * (0.05 + 0.95*share*capacity/full)
			loads = append(loads, vitrine.Load{Component: p.name, Instances: s[i].Count, VCPUs: v,
				Rate: share * capacity, CPU: n * one, Busiest: one})
		}
	}
	return capacity, loads
}

// TestModelSurvivesOtherLaws uses a function that follows other laws than the
// model.
func TestModelSurvivesOtherLaws(t *testing.T) {
	t.Parallel()
	space := ims(vitrine.Resources{VCPUs: 10})
	search := model(t, space, size.ModelConfig{})
	all, err := size.NewExhaustive(space)
	if err != nil {
		t.Fatal(err)
	}
	sizings := all.(size.Planner).Plan()
	top := 0.0
	for _, s := range sizings {
		capacity, _ := bent(s)
		top = max(top, capacity)
	}
	var history []vitrine.Measured
	for step := search.Next(nil); !step.Done; step = search.Next(history) {
		capacity, loads := bent(step.Sizing)
		m := measured(t, step.Sizing.String(), space.Resources(step.Sizing).VCPUs,
			vitrine.Capacity{Threshold: 0.9, Rate: capacity, Low: 0.97 * capacity, High: 1.03 * capacity}, nil)
		m.Loads, m.Again = loads, step.Again
		history = append(history, m)
		if len(history) > len(sizings) {
			t.Fatal("the search does not end")
		}
	}
	chosen, why := search.(size.Chooser).Choose(history)
	if got := history[chosen].Capacities[0].Rate; got < 0.97*top {
		t.Errorf("%s carries %.0f, the best %.0f: %s", history[chosen].Sizing, got, top, why)
	}
	if 10*len(history) > len(sizings) {
		t.Errorf("%d of %d sizings measured", len(history), len(sizings))
	}
	fit, err := size.NewFit(space, history, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	middle, held := accuracy(t, fit, history, func(s vitrine.Sizing) float64 { c, _ := bent(s); return c })
	if middle > 0.1 || held < 0.9 {
		t.Errorf("untried sizings are off by %.2f, and %.2f of the intervals hold", middle, held)
	}
}

// TestModelCarriesAWorkload checks that it does so with the fewest vCPUs, or at
// the lowest price.
func TestModelCarriesAWorkload(t *testing.T) {
	t.Parallel()
	c := sim.DrawCluster(3)
	for i, price := range []float64{1, 2.5, 3} { // large flavors are cheap
		c.Space.Flavors[i].Price = price
	}
	sizings := c.Sizings()
	reach := 0.6 * best(c.Function, sizings)
	for objective, cost := range map[string]func(vitrine.Sizing) float64{
		size.FewestVCPUs: func(s vitrine.Sizing) float64 { return c.Space.Resources(s).VCPUs },
		size.LowestPrice: c.Space.Price,
	} {
		search := model(t, c.Space, size.ModelConfig{Objective: objective, Reach: reach})
		history, steps := pursue(t, search, c.Function)
		chosen, why := search.(size.Chooser).Choose(history)
		if chosen < 0 {
			t.Fatalf("%s: %s", objective, why)
		}
		m := history[chosen]
		if !m.Again || m.Capacities[0].Low < reach {
			t.Errorf("%s: %s carries %+v for %.0f", objective, m.Sizing, m.Capacities[0], reach)
		}
		least := math.Inf(1)
		for _, s := range sizings {
			if c.Capacity(s, 0.9) >= 1.1*reach { // with margin for an interval
				least = min(least, cost(s))
			}
		}
		if cost(m.Sizing) > least {
			t.Errorf("%s: %s costs %g, and %g would do (%s)", objective, m.Sizing, cost(m.Sizing), least, steps[len(steps)-1].Why)
		}
		if 10*len(history) > len(sizings) {
			t.Errorf("%s: %d of %d sizings measured", objective, len(history), len(sizings))
		}
	}
	search := model(t, c.Space, size.ModelConfig{Objective: size.FewestVCPUs, Reach: 2 * best(c.Function, sizings)})
	history, steps := pursue(t, search, c.Function)
	if chosen, why := search.(size.Chooser).Choose(history); chosen >= 0 || !strings.Contains(why, "can plausibly carry") || !strings.Contains(why, "the closest") {
		t.Errorf("out of reach: %d: %s", chosen, why)
	}
	if len(steps) > 15 {
		t.Errorf("%d steps to see that it is out of reach", len(steps))
	}
}

// TestModelEnds checks that the search ends where further measurements would show
// nothing, and says so.
func TestModelEnds(t *testing.T) {
	t.Parallel()
	space := ims(vitrine.Resources{VCPUs: 6})
	search := model(t, space, size.ModelConfig{Unit: "calls/s"})
	none := measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{}, nil)
	none.Capacities = nil
	if step := search.Next([]vitrine.Measured{none}); !step.Done || !strings.Contains(step.Why, "no capacity was found") {
		t.Errorf("%+v", step)
	}
	use := map[string]float64{"bono": 0.2, "sprout": 0.5, "homestead": 0.3}
	above := measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{Rate: 400, Low: 400, High: 400, Censored: vitrine.CensoredAbove}, use)
	step := search.Next([]vitrine.Measured{above})
	if step.Done || !step.Again || !strings.Contains(step.Why, "raise the range") {
		t.Errorf("%+v", step)
	}
	above.Again = true
	if step := search.Next([]vitrine.Measured{above, above}); !step.Done {
		t.Errorf("%+v", step)
	}
	below := measured(t, "bn1s-sp1s-hs1s", 3, vitrine.Capacity{Rate: 400, High: 400, Censored: vitrine.CensoredBelow}, use)
	if step := search.Next([]vitrine.Measured{below}); step.Done || step.Sizing.String() == "bn1s-sp1s-hs1s" {
		t.Errorf("%+v", step)
	}
	var history []vitrine.Measured
	space = ims(vitrine.Resources{VCPUs: 4})
	search = model(t, space, size.ModelConfig{})
	for step := search.Next(nil); !step.Done; step = search.Next(history) {
		m := below
		m.Sizing, m.Resources = step.Sizing, space.Resources(step.Sizing)
		history = append(history, m)
		if len(history) > 10 {
			t.Fatal("does not end while nothing carries anything")
		}
	}
	if chosen, why := search.(size.Chooser).Choose(history); chosen >= 0 || why == "" {
		t.Errorf("%d: %s", chosen, why)
	}
}

// TestModelIsPure checks that a resumed run asks the same questions.
func TestModelIsPure(t *testing.T) {
	t.Parallel()
	c := sim.DrawCluster(1)
	search := model(t, c.Space, size.ModelConfig{Seed: 3})
	history, steps := pursue(t, search, c.Function)
	again := model(t, c.Space, size.ModelConfig{Seed: 3})
	for _, n := range []int{len(history), 2} {
		if step := again.Next(history[:n]); !reflect.DeepEqual(step, steps[n]) {
			t.Errorf("after %d: %+v, was %+v", n, step, steps[n])
		}
	}
}

func TestModelRefusals(t *testing.T) {
	six := ims(vitrine.Resources{VCPUs: 6})
	for want, cfg := range map[string]size.ModelConfig{
		`objective "speed"`:               {Objective: "speed"},
		"but the objective is capacity":   {Objective: size.MostCapacity, Reach: 5},
		"but no workload to carry":        {Objective: size.FewestVCPUs},
		"flavor small has no price":       {Objective: size.LowestPrice, Reach: 5},
		"no sizing is within the limit: ": {Objective: size.MostCapacity, Threshold: -1},
	} {
		space := six
		if cfg.Threshold < 0 {
			space = ims(vitrine.Resources{VCPUs: 1})
		}
		_, err := size.NewModel(space, cfg)
		if err == nil || !strings.Contains(err.Error(), want) || !vitrine.IsBadInput(err) {
			t.Errorf("got %v, want bad input with %q", err, want)
		}
	}
}
