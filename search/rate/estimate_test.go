package rate_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// trials makes a history of trials of 1000 calls each, from rows of success
// ratios at rates 100, 200, ...; below 0: an invalid trial.
func trials(rows ...[]float64) []vitrine.Outcome {
	var history []vitrine.Outcome
	for r, row := range rows {
		for k, share := range row {
			o := ratio(max(0, share))
			if share < 0 {
				o = invalid()
			}
			o.Repeat, o.Rate = r+1, float64(100*(k+1))
			history = append(history, o)
		}
	}
	return history
}

func estimate(history []vitrine.Outcome) vitrine.Capacity {
	return rate.Estimate(history, rate.Config{Thresholds: []float64{0.9}, Seed: 7})[0]
}

func TestEstimateCensoring(t *testing.T) {
	for name, test := range map[string]struct {
		history []vitrine.Outcome
		want    vitrine.Capacity
	}{
		"crosses":           {trials([]float64{1, 1, 0.8}), vitrine.Capacity{Rate: 250, Low: 200, High: 300, Censored: "none"}},
		"below":             {trials([]float64{0.5, 0.4, 0.3}), vitrine.Capacity{Rate: 100, Low: 0, High: 100, Censored: "below"}},
		"above":             {trials([]float64{1, 1, 1}), vitrine.Capacity{Rate: 300, Low: 300, High: 300, Censored: "above"}},
		"generator":         {trials([]float64{1, 1, -1, -1, -1}), vitrine.Capacity{Rate: 200, Low: 200, High: 200, Censored: "generator"}},
		"invalid but found": {trials([]float64{1, 1, 0.8, -1}), vitrine.Capacity{Rate: 250, Low: 200, High: 300, Censored: "none"}},
		"tried again":       {append(trials([]float64{1, -1}), trials([]float64{1, 1})...), vitrine.Capacity{Rate: 200, Low: 200, High: 200, Censored: "above"}},
		"never valid":       {trials([]float64{-1, -1}), vitrine.Capacity{Censored: "generator"}},
		"nothing tried":     {nil, vitrine.Capacity{Censored: "generator"}},
	} {
		test.want.Threshold = 0.9
		if got := estimate(test.history); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

// TestInvalidTrialsAreNoVerdict checks that an invalid trial changes nothing,
// whatever it claims.
func TestInvalidTrialsAreNoVerdict(t *testing.T) {
	history := trials([]float64{1, 1, 0.8}, []float64{1, 0.95, 0.7})
	want := estimate(history)
	liar := ratio(0)
	liar.Valid, liar.Repeat, liar.Rate = false, 3, 100
	if got := estimate(append(history, liar)); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestEstimateWeighsCalls(t *testing.T) {
	history := trials([]float64{1, 0.8, 0.95, 0.5})
	if got := estimate(history); got.Rate != 100+100*0.1/(1-0.875) || got.Low != 100 || got.High != 400 {
		t.Errorf("equal weights: %+v", got) // 0.8 and 0.95 pool to 0.875
	}
	history[2].Scheduled, history[2].Succeeded = 9000, 8550 // pools to 0.935
	if got := estimate(history); got.Rate <= 300 {
		t.Errorf("nine times the calls at 300: %+v", got)
	}
}

// TestIntervalOfOneRepeat checks that the interval is [last pass, first fail]
// when all seconds are alike, and wider when they are not.
func TestIntervalOfOneRepeat(t *testing.T) {
	history := trials([]float64{0.95, 0.94, 0.91, 0.89, 0.86, 0.5})
	swinging := func(by int64) vitrine.Capacity {
		for i, o := range history {
			history[i].Seconds = nil
			for range 5 {
				history[i].Seconds = append(history[i].Seconds,
					vitrine.Second{Scheduled: 100, Offered: 100, Succeeded: o.Succeeded/10 + by},
					vitrine.Second{Scheduled: 100, Offered: 100, Succeeded: o.Succeeded/10 - by})
			}
		}
		return estimate(history)
	}
	if c := swinging(0); c.Low != 300 || c.High != 400 {
		t.Errorf("even seconds: %+v", c)
	}
	if c := swinging(5); c.Low > 290 || c.High < 410 {
		t.Errorf("uneven seconds: %+v", c)
	}
}

func TestIntervalNarrowsWithRepeats(t *testing.T) {
	width := func(repeats int) float64 {
		f := sim.IMS(11)
		f.Noise.Deployment = 0.05
		cfg := simulated(repeats)
		cfg.Increase = 5
		m, _ := f.Measure(parse(t, "bn1s-sp1s-hs1s"), rate.NewRamp(cfg), cfg)
		return m.Capacities[0].High - m.Capacities[0].Low
	}
	few, many := width(3), width(30)
	if few < 1.5*many || many > 40 {
		t.Errorf("%g with 3 repeats, %g with 30", few, many)
	}
}

// TestIntervalHoldsTheTruth checks the report's promise: about 95% of campaigns
// have the true capacity within their interval. The increase is far finer than
// the noise, so that the bracket does not help.
func TestIntervalHoldsTheTruth(t *testing.T) {
	sizing := parse(t, "bn1s-sp1s-hs1s")
	for name, test := range map[string]struct {
		search   func(rate.Config) rate.Search
		repeats  int
		collapse float64
		widest   float64 // mean width, as a share of the truth
	}{
		"ramp, 3 repeats, collapsing":    {rate.NewRamp, 3, 2, 0.20},
		"ramp, 5 repeats, saturating":    {rate.NewRamp, 5, 1, 0.13},
		"bisect, 3 repeats, collapsing":  {rate.NewBisect, 3, 2, 0.25},
		"bisect, 10 repeats, saturating": {rate.NewBisect, 10, 1, 0.10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const seeds = 200
			held, width := 0, 0.0
			for seed := range uint64(seeds) {
				f := sim.IMS(seed)
				f.Collapse = test.collapse
				f.Noise = sim.Noise{Deployment: 0.03, Second: 0.05, Hold: 0.7}
				cfg := simulated(test.repeats)
				cfg.Seed = seed
				truth := f.Capacity(sizing, 0.9)
				m, _ := f.Measure(sizing, test.search(cfg), cfg)
				c := m.Capacities[0]
				if c.Low <= truth && truth <= c.High {
					held++
				}
				width += (c.High - c.Low) / truth / seeds
			}
			t.Logf("%d of %d intervals hold the truth; they are %.1f%% of it wide", held, seeds, 100*width)
			if held < seeds*90/100 {
				t.Errorf("%d of %d intervals hold the truth, want 90%%", held, seeds)
			}
			if width > test.widest {
				t.Errorf("they are %.3g of the truth wide, want at most %.3g", width, test.widest)
			}
		})
	}
}

// simulated returns a configuration with a fine range around the small IMS's
// capacity.
func simulated(repeats int) rate.Config {
	return rate.Config{Min: 200, Max: 480, Increase: 10, Duration: 20 * time.Second, Repeat: repeats,
		Thresholds: []float64{0.9}, Seed: 1,
		Stop: func(o vitrine.Outcome) bool { return o.SuccessRatio() < 0.6 }}
}

func parse(t *testing.T, name string) vitrine.Sizing {
	t.Helper()
	s, err := vitrine.ParseSizing(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEstimateDependsOnItsInputAlone(t *testing.T) {
	history := trials([]float64{1, 1, 0.8}, []float64{1, 0.85, 0.7}, []float64{1, 0.95, 0.9})
	first := estimate(history)
	before := slices.Clone(history)
	if again := estimate(history); again != first {
		t.Errorf("%+v, then %+v", first, again)
	}
	for i := range history {
		if history[i].Rate != before[i].Rate || history[i].Repeat != before[i].Repeat {
			t.Fatal("the history was changed")
		}
	}
	if math.IsNaN(first.Rate + first.Low + first.High) {
		t.Errorf("%+v", first)
	}
}
