package rate_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/search/rate"
)

// config is a tenth of the paper's workload range, with three repeats.
func config() rate.Config {
	return rate.Config{Min: 50, Max: 400, Increase: 50, Duration: 10 * time.Second, Repeat: 3,
		Thresholds: []float64{0.9, 0.8}, Seed: 1}
}

// A function returns the outcome of a step, given the trials before it.
type function func(step rate.Step, history []vitrine.Outcome) vitrine.Outcome

// ratio returns a valid outcome of 1000 calls with this share of successes.
func ratio(share float64) vitrine.Outcome {
	succeeded := int64(math.Round(1000 * share))
	return vitrine.Outcome{Valid: true, Scheduled: 1000, Offered: 1000, Succeeded: succeeded,
		Failed: map[string]int64{"503": 1000 - succeeded}}
}

func invalid() vitrine.Outcome {
	return vitrine.Outcome{Scheduled: 1000, Offered: 900, Succeeded: 900, Reason: "generator: offered 0.90 of its schedule"}
}

// saturating returns a function that carries up to the capacity, and keeps its
// goodput beyond it.
func saturating(capacity float64) function {
	return func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome { return ratio(min(1, capacity/s.Rate)) }
}

// run drives a search to its end. It fails the test when the search does not end.
func run(t *testing.T, search rate.Search, f function) (steps []rate.Step, history []vitrine.Outcome) {
	t.Helper()
	for range 3000 {
		step := search.Next(history)
		steps = append(steps, step)
		if step.Done {
			return steps, history
		}
		o := f(step, history)
		o.Seq, o.Repeat, o.Rate, o.Duration = len(history)+1, step.Repeat, step.Rate, step.Duration
		history = append(history, o)
	}
	t.Fatal("the search does not end")
	return nil, nil
}

func offered(steps []rate.Step) string {
	var b strings.Builder
	for _, s := range steps {
		switch {
		case s.Done:
			b.WriteString("done")
		case s.Restart:
			fmt.Fprintf(&b, "%d: %g ", s.Repeat, s.Rate)
		default:
			fmt.Fprintf(&b, "%g ", s.Rate)
		}
	}
	return b.String()
}

func TestConfigCheck(t *testing.T) {
	if err := config().Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*rate.Config){
		"range":              func(c *rate.Config) { c.Min = 0 },
		"range [400, 50]":    func(c *rate.Config) { c.Min, c.Max = c.Max, c.Min },
		"range [NaN":         func(c *rate.Config) { c.Min = math.NaN() },
		"increase -1":        func(c *rate.Config) { c.Increase = -1 },
		"more than 100000":   func(c *rate.Config) { c.Increase = 1e-9 },
		"duration":           func(c *rate.Config) { c.Duration = 0 },
		"repeat 0":           func(c *rate.Config) { c.Repeat = 0 },
		"attempts -1":        func(c *rate.Config) { c.Attempts = -1 },
		"no threshold":       func(c *rate.Config) { c.Thresholds = nil },
		"threshold 90: want": func(c *rate.Config) { c.Thresholds = []float64{90} },
	} {
		cfg := config()
		spoil(&cfg)
		err := cfg.Check()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
			continue
		}
		for _, search := range []rate.Search{rate.NewRamp(cfg), rate.NewBisect(cfg)} {
			if step := search.Next(nil); !step.Done || step.Why != err.Error() {
				t.Errorf("%s: the search goes on: %+v", want, step)
			}
		}
	}
}

// TestSearchesAlwaysEnd drives both searches over random functions, most of them
// absurd, and checks what must hold for every function.
func TestSearchesAlwaysEnd(t *testing.T) {
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 1))
		cfg := randomConfig(random)
		kind, f := randomFunction(random)
		for name, search := range map[string]func(rate.Config) rate.Search{"ramp": rate.NewRamp, "bisect": rate.NewBisect} {
			steps, history := run(t, search(cfg), f)
			label := fmt.Sprintf("seed %d: %s over a %s function", seed, name, kind)
			checkSteps(t, label, cfg, steps)
			if name == "bisect" {
				checkBeginnings(t, label, cfg, steps)
			}
			for k := range steps {
				if again := search(cfg).Next(history[:k]); again != steps[k] {
					t.Fatalf("%s: replayed step %d is %+v, was %+v", label, k, again, steps[k])
				}
			}
			checkCapacities(t, label, cfg, history)
		}
	}
}

func randomConfig(random *rand.Rand) rate.Config {
	cfg := config()
	cfg.Min = 1 + math.Round(random.Float64()*1000)/10
	cfg.Increase = math.Round(1+random.Float64()*100) / 10
	cfg.Max = cfg.Min + cfg.Increase*float64(random.IntN(60)) + cfg.Increase*random.Float64()*float64(random.IntN(2))
	cfg.Repeat = 1 + random.IntN(4)
	cfg.Attempts = random.IntN(4)
	cfg.Thresholds = [][]float64{{0.9}, {0.9, 0.8}, {0.99, 0.9, 0.5}, {1}}[random.IntN(4)]
	if random.IntN(2) == 0 {
		cfg.Stop = func(o vitrine.Outcome) bool { return o.SuccessRatio() < 0.7 }
	}
	return cfg
}

func randomFunction(random *rand.Rand) (string, function) {
	middle := 1 + random.Float64()*300
	kinds := []struct {
		name string
		f    function
	}{
		{"saturating", saturating(middle)},
		{"always passing", func(rate.Step, []vitrine.Outcome) vitrine.Outcome { return ratio(1) }},
		{"always failing", func(rate.Step, []vitrine.Outcome) vitrine.Outcome { return ratio(0) }},
		{"never valid", func(rate.Step, []vitrine.Outcome) vitrine.Outcome { return invalid() }},
		{"random", func(rate.Step, []vitrine.Outcome) vitrine.Outcome { return ratio(random.Float64()) }},
		{"upside-down", func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome { return ratio(min(1, s.Rate/middle)) }},
		{"noisy", func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
			return ratio(max(0, min(1, middle/s.Rate+0.2*random.NormFloat64())))
		}},
		{"generator-bound", func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
			if s.Rate > middle {
				return invalid()
			}
			return ratio(1)
		}},
		{"often invalid", func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
			if random.IntN(2) == 0 {
				return invalid()
			}
			return ratio(min(1, middle/s.Rate))
		}},
		{"empty", func(rate.Step, []vitrine.Outcome) vitrine.Outcome { return vitrine.Outcome{Valid: true} }},
	}
	k := kinds[random.IntN(len(kinds))]
	return k.name, k.f
}

func checkSteps(t *testing.T, label string, cfg rate.Config, steps []rate.Step) {
	t.Helper()
	repeat := 0
	for i, s := range steps {
		if s.Why == "" {
			t.Fatalf("%s: step %d does not say why: %+v", label, i, s)
		}
		if s.Done {
			if repeat != cfg.Repeat || i != len(steps)-1 {
				t.Fatalf("%s: done in repeat %d of %d: %+v", label, repeat, cfg.Repeat, s)
			}
			return
		}
		if s.Rate < cfg.Min || s.Rate > cfg.Max*(1+1e-9) || s.Duration != cfg.Duration {
			t.Fatalf("%s: step %d is out of range: %+v", label, i, s)
		}
		if s.Restart != (s.Repeat == repeat+1) || !s.Restart && s.Repeat != repeat {
			t.Fatalf("%s: step %d after repeat %d: %+v", label, i, repeat, s)
		}
		repeat = s.Repeat
	}
}

// checkBeginnings checks that no repeat begins with the highest rate.
func checkBeginnings(t *testing.T, label string, cfg rate.Config, steps []rate.Step) {
	t.Helper()
	for i, s := range steps {
		if s.Restart && s.Rate > cfg.Min && s.Rate+cfg.Increase > cfg.Max*(1+1e-9) {
			t.Fatalf("%s: step %d begins at the top: %+v", label, i, s)
		}
	}
}

// checkCapacities checks what must hold for any estimate.
func checkCapacities(t *testing.T, label string, cfg rate.Config, history []vitrine.Outcome) {
	t.Helper()
	capacities := rate.Estimate(history, cfg)
	if !slices.Equal(capacities, rate.Estimate(history, cfg)) {
		t.Fatalf("%s: two estimates of one history differ", label)
	}
	if len(capacities) != len(cfg.Thresholds) {
		t.Fatalf("%s: %d capacities for %d thresholds", label, len(capacities), len(cfg.Thresholds))
	}
	for i, c := range capacities {
		lastPass, firstFail := verdicts(history, cfg.Thresholds[i])
		if c.Threshold != cfg.Thresholds[i] || !(c.Low <= c.Rate && c.Rate <= c.High) || c.Low < 0 || c.High > cfg.Max*(1+1e-9) {
			t.Fatalf("%s: %+v", label, c)
		}
		if c.Censored == vitrine.CensoredNone && lastPass < firstFail && (c.Low > lastPass || c.High < firstFail) {
			t.Fatalf("%s: %+v is narrower than [%g, %g]", label, c, lastPass, firstFail)
		}
		if i > 0 && c.Rate < capacities[i-1].Rate {
			t.Fatalf("%s: the capacity at %g is below that at %g", label, c.Threshold, capacities[i-1].Threshold)
		}
	}
}

// verdicts returns the highest rate that passed and the lowest that failed.
func verdicts(history []vitrine.Outcome, threshold float64) (lastPass, firstFail float64) {
	scheduled, succeeded := map[float64]int64{}, map[float64]int64{}
	for _, o := range history {
		if o.Valid && o.Scheduled > 0 {
			scheduled[o.Rate] += o.Scheduled
			succeeded[o.Rate] += o.Succeeded
		}
	}
	firstFail = math.Inf(1)
	for r := range scheduled {
		if float64(succeeded[r])/float64(scheduled[r]) >= threshold {
			lastPass = max(lastPass, r)
		} else {
			firstFail = min(firstFail, r)
		}
	}
	return lastPass, firstFail
}

func TestLoadSeconds(t *testing.T) {
	_, history := run(t, rate.NewRamp(config()), saturating(1000))
	if got := rate.LoadSeconds(history); got != 3*8*10 {
		t.Errorf("%g s of load, want 240", got)
	}
}
