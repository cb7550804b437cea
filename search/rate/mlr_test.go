package rate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
)

func single() rate.Config {
	cfg := config()
	cfg.Repeat, cfg.Precision = 1, 0.05
	return cfg
}

// TestMLRFindsEveryCapacity checks that both bounds are seen at the full
// duration, no further apart than the precision, with the capacity between them.
func TestMLRFindsEveryCapacity(t *testing.T) {
	trials := 0
	for capacity := 50.5; capacity < 360; capacity += 3 {
		cfg := single()
		steps, history := run(t, rate.NewMLR(cfg), saturating(capacity))
		trials += len(history)
		got := rate.NewMLR(cfg).(rate.Estimator).Estimate(history)
		for i, threshold := range cfg.Thresholds {
			truth, c := capacity/threshold, got[i]
			switch {
			case truth > cfg.Max:
				if c.Censored != vitrine.CensoredAbove || c.Low != cfg.Max {
					t.Errorf("capacity %g: %+v", truth, c)
				}
				continue
			case c.Censored != vitrine.CensoredNone || c.Low > 1.001*truth || c.High < 0.999*truth || c.High-c.Low > 0.05*c.High*(1+1e-9): // to the resolution of 1000 calls
				t.Errorf("capacity %g: %+v", truth, c)
			case !(c.Low < c.Rate && c.Rate < c.High):
				t.Errorf("capacity %g: %+v", truth, c)
			}
			for _, bound := range []float64{c.Low, c.High} {
				if !seen(history, bound, cfg.Duration) {
					t.Errorf("capacity %g: %g was not tried for the full duration: %s", truth, bound, offered(steps))
				}
			}
		}
	}
	if mean := float64(trials) / 104; mean > 20 {
		t.Errorf("%.1f trials in the mean for two thresholds", mean)
	}
}

func seen(history []vitrine.Outcome, rate float64, length time.Duration) bool {
	for _, o := range history {
		if o.Rate == rate && o.Duration == length {
			return true
		}
	}
	return false
}

// TestMLRBeginsAsTheDraftHasIt checks the order of trials: a second at the top,
// where its goodput points, and next to that; then longer trials.
func TestMLRBeginsAsTheDraftHasIt(t *testing.T) {
	cfg := single()
	cfg.Thresholds = []float64{0.9}
	steps, _ := run(t, rate.NewMLR(cfg), saturating(180))
	if steps[0].Rate != 400 || steps[0].Duration != time.Second || !steps[0].Restart {
		t.Errorf("begins with %+v", steps[0])
	}
	if r := steps[1].Rate; math.Abs(r/200-1) > 0.01 {
		t.Errorf("goes to %g, the goodput points to 200", r)
	}
	longest := time.Duration(0)
	for _, s := range steps[:len(steps)-1] {
		if s.Duration < longest {
			t.Errorf("a trial of %s after one of %s", s.Duration, longest)
		}
		longest = s.Duration
	}
	if longest != cfg.Duration {
		t.Errorf("the longest trial lasts %s", longest)
	}
}

func TestMLRNeverBeginsAStatefulFunctionAtTheTop(t *testing.T) {
	cfg := single()
	cfg.Stateful = true
	steps, _ := run(t, rate.NewMLR(cfg), saturating(180))
	if steps[0].Rate != cfg.Min {
		t.Errorf("begins with %+v", steps[0])
	}
	for _, s := range steps[:len(steps)-1] {
		if s.Rate > 2*225 {
			t.Errorf("goes as far as %g", s.Rate)
		}
	}
}

// TestMLRBeginsAtThePrior checks that a right prior saves trials and a wrong one
// does not mislead.
func TestMLRBeginsAtThePrior(t *testing.T) {
	cfg := single()
	cfg.Thresholds, cfg.Max = []float64{0.9}, 40000
	_, without := run(t, rate.NewMLR(cfg), passes(252))
	cfg.Prior = rate.Prior{Low: 240, High: 260}
	steps, with := run(t, rate.NewMLR(cfg), passes(252))
	if len(with) >= len(without) || steps[0].Rate > 260 {
		t.Errorf("%d trials with a prior, %d without: %s", len(with), len(without), offered(steps))
	}
	for _, truth := range []float64{60, 900, 39000} {
		_, history := run(t, rate.NewMLR(cfg), passes(truth))
		if c := rate.NewMLR(cfg).(rate.Estimator).Estimate(history)[0]; c.Low > truth || c.High < truth || c.High > 1.06*c.Low {
			t.Errorf("capacity %g: %+v", truth, c)
		}
	}
}

// TestMLRLongTrialsOverruleShortOnes uses a function that fills a queue for three
// seconds, so that every short trial passes.
func TestMLRLongTrialsOverruleShortOnes(t *testing.T) {
	cfg := single()
	cfg.Thresholds = []float64{0.9}
	slow := func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
		if s.Duration <= 3*time.Second {
			return ratio(1)
		}
		return ratio(min(1, 180/s.Rate))
	}
	_, history := run(t, rate.NewMLR(cfg), slow)
	if c := rate.NewMLR(cfg).(rate.Estimator).Estimate(history)[0]; c.Low > 200 || c.High < 200 || c.High > 1.06*c.Low {
		t.Errorf("%+v", c)
	}
}

func TestMLRCensors(t *testing.T) {
	for want, f := range map[string]function{
		vitrine.CensoredBelow: func(rate.Step, []vitrine.Outcome) vitrine.Outcome { return ratio(0.2) },
		vitrine.CensoredAbove: func(rate.Step, []vitrine.Outcome) vitrine.Outcome { return ratio(1) },
		vitrine.CensoredGenerator: func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
			if s.Rate > 200 {
				return invalid()
			}
			return ratio(1)
		},
	} {
		cfg := config()
		cfg.Repeat = 2
		steps, history := run(t, rate.NewMLR(cfg), f)
		c := rate.NewMLR(cfg).(rate.Estimator).Estimate(history)[0]
		if c.Censored != want || c.Low > c.Rate || c.Rate > c.High {
			t.Errorf("want %s: %+v", want, c)
		}
		if want == vitrine.CensoredGenerator && (c.Low > 200 || c.Low < 185) {
			t.Errorf("the generator's ceiling is 200: %+v", c)
		}
		if why := steps[len(steps)-1].Why; !strings.Contains(why, "passed") {
			t.Errorf("ended: %s", why)
		}
	}
}

// TestMLRAlwaysEnds drives the search over random functions, most of them absurd,
// and checks what must hold for every function.
func TestMLRAlwaysEnds(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		cfg := randomConfig(random)
		cfg.Max += 1
		cfg.Duration = []time.Duration{300 * time.Millisecond, time.Second, 10 * time.Second, 300 * time.Second}[random.IntN(4)]
		cfg.Precision = []float64{0, 0.005, 0.05, 0.3}[random.IntN(4)]
		cfg.Stateful = random.IntN(2) == 0
		kind, f := randomFunction(random)
		steps, history := run(t, rate.NewMLR(cfg), f)
		label := fmt.Sprintf("seed %d: a %s function", seed, kind)
		repeat := 0
		for i, s := range steps {
			if s.Why == "" || !s.Done && (s.Rate < cfg.Min || s.Rate > cfg.Max || s.Duration > cfg.Duration || s.Duration <= 0) {
				t.Fatalf("%s: step %d: %+v", label, i, s)
			}
			if !s.Done && s.Restart != (s.Repeat == repeat+1) {
				t.Fatalf("%s: step %d after repeat %d: %+v", label, i, repeat, s)
			}
			repeat = s.Repeat
			if again := rate.NewMLR(cfg).Next(history[:i]); again != s {
				t.Fatalf("%s: replayed step %d is %+v, was %+v", label, i, again, s)
			}
		}
		if repeat != cfg.Repeat {
			t.Fatalf("%s: done in repeat %d of %d", label, repeat, cfg.Repeat)
		}
		for cut := range history {
			for i, c := range rate.NewMLR(cfg).(rate.Estimator).Estimate(history[:cut]) {
				if !(c.Low <= c.Rate && c.Rate <= c.High) || c.Low < 0 || c.High > cfg.Max || c.Threshold != cfg.Thresholds[i] {
					t.Fatalf("%s: after %d trials: %+v", label, cut, c)
				}
			}
		}
	}
}

func TestMLRRefusesWhatIsWrong(t *testing.T) {
	cfg := config()
	cfg.Max = cfg.Min
	if s := rate.NewMLR(cfg).Next(nil); !s.Done || !strings.Contains(s.Why, "two rates") {
		t.Errorf("%+v", s)
	}
}
