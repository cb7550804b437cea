package rate_test

import (
	"testing"

	"vitrine"
	"vitrine/search/rate"
)

func fine() rate.Config {
	cfg := config()
	cfg.Increase, cfg.Thresholds = 5, []float64{0.9}
	return cfg // 71 rates
}

// passes returns a function that carries rates up to a limit and fails above it.
func passes(upTo float64) function {
	return func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
		if s.Rate > upTo {
			return ratio(0.5)
		}
		return ratio(1)
	}
}

func TestBisectHalvesThenVerifies(t *testing.T) {
	search := rate.NewBisect(fine())
	steps, _ := run(t, search, passes(252))
	want := "1: 50 225 315 270 245 255 250 255 250 " + // halved; both ends again
		"2: 250 255 3: 250 255 done" // the bracket holds
	if got := offered(steps); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if plan, took := search.(rate.Planner).Trials(), len(steps)-1; plan < took-2 || plan > took+2 {
		t.Errorf("planned %d trials, took %d", plan, took)
	}
}

func TestBisectFindsEveryCapacity(t *testing.T) {
	for k := range 71 {
		edge := 50 + 5*float64(k)
		steps, history := run(t, rate.NewBisect(fine()), passes(edge))
		if len(steps) > 20 {
			t.Errorf("capacity %g took %d trials: %s", edge, len(steps)-1, offered(steps))
		}
		c := rate.Estimate(history, fine())[0]
		if edge == 400 {
			if c.Censored != vitrine.CensoredAbove || c.Rate != 400 {
				t.Errorf("all pass: %+v", c)
			}
			continue
		}
		if c.Low != edge || c.High != edge+5 || c.Censored != vitrine.CensoredNone {
			t.Errorf("capacity %g: %+v", edge, c)
		}
	}
}

func TestBisectMovesABracketThatDoesNotHold(t *testing.T) {
	for _, later := range []float64{51, 103, 247, 254, 262, 301, 399} {
		_, history := run(t, rate.NewBisect(fine()), func(s rate.Step, h []vitrine.Outcome) vitrine.Outcome {
			if s.Repeat == 1 {
				return passes(252)(s, h)
			}
			return passes(later)(s, h)
		})
		low, high := 0.0, 1000.0
		trials := 0
		for _, o := range history {
			if o.Repeat != 2 {
				continue
			}
			trials++
			if o.SuccessRatio() >= 0.9 {
				low = max(low, o.Rate)
			} else {
				high = min(high, o.Rate)
			}
		}
		if high-low != 5 || low > later || high < later {
			t.Errorf("capacity moved to %g: found [%g, %g]", later, low, high)
		}
		if trials > 15 {
			t.Errorf("capacity moved to %g: took %d trials", later, trials)
		}
	}
}

// TestBisectSurvivesADisturbedTrial checks that one disturbed trial does not
// mislead the search.
func TestBisectSurvivesADisturbedTrial(t *testing.T) {
	for disturbed := range 9 {
		cfg := fine()
		cfg.Repeat = 1
		_, history := run(t, rate.NewBisect(cfg), func(s rate.Step, h []vitrine.Outcome) vitrine.Outcome {
			o := passes(252)(s, h)
			if len(h) == disturbed && o.SuccessRatio() == 1 {
				return ratio(0.85)
			}
			return o
		})
		if c := rate.Estimate(history, cfg)[0]; c.Low > 252 || c.High < 252 || c.High-c.Low > 100 {
			t.Errorf("trial %d disturbed: %+v", disturbed+1, c)
		}
	}
}

func TestBisectSharesTrialsAmongThresholds(t *testing.T) {
	cfg := fine()
	cfg.Repeat, cfg.Thresholds = 1, []float64{0.9, 0.8}
	steps, history := run(t, rate.NewBisect(cfg), saturating(200)) // 222.2 and 250
	got := rate.Estimate(history, cfg)
	for i, want := range []float64{220, 250} {
		if c := got[i]; c.Low > want || c.High != want+5 || c.Censored != vitrine.CensoredNone {
			t.Errorf("threshold %g: %+v", cfg.Thresholds[i], c)
		}
	}
	alone := 0
	for _, threshold := range cfg.Thresholds {
		cfg.Thresholds = []float64{threshold}
		one, _ := run(t, rate.NewBisect(cfg), saturating(200))
		alone += len(one) - 1
	}
	if len(steps)-1 > alone-2 {
		t.Errorf("%d trials together, %d apart: %s", len(steps)-1, alone, offered(steps))
	}
}

func TestBisectEndsAtTheGeneratorsCeiling(t *testing.T) {
	cfg := fine()
	cfg.Repeat = 2
	steps, history := run(t, rate.NewBisect(cfg), func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
		if s.Rate > 183 {
			return invalid()
		}
		return ratio(1)
	})
	if c := rate.Estimate(history, cfg)[0]; c.Rate != 180 || c.Censored != vitrine.CensoredGenerator {
		t.Errorf("%+v", c)
	}
	want := "1: 50 225 225 225 135 180 200 200 200 190 190 190 185 185 185 180 2: 180 185 185 185 done"
	if got := offered(steps); got != want { // three attempts at each rate that is out of reach
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestBisectWithoutIncreaseIsRelative(t *testing.T) {
	cfg := fine()
	cfg.Min, cfg.Max, cfg.Increase = 10, 10_000, 0
	for _, edge := range []float64{15, 333, 9000} {
		_, history := run(t, rate.NewBisect(cfg), passes(edge))
		if c := rate.Estimate(history, cfg)[0]; c.Low > edge || c.High < edge || c.High/c.Low > 1.02+1e-9 {
			t.Errorf("capacity %g: %+v", edge, c)
		}
	}
}
