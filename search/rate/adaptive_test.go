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
	"vitrine/search/sim"
)

// wanted returns the configuration of a search for one threshold to 5%, in trials
// of at most 10 s.
func wanted() rate.Config {
	return rate.Config{Min: 100, Max: 11500, Duration: 10 * time.Second, Repeat: 1,
		Thresholds: []float64{0.9}, Precision: 0.05, Overhead: 5 * time.Second}
}

// drawn returns a population of functions with saturations from 100 to 10000
// calls a second, and bad seconds in clusters.
func drawn(shape string) sim.Population {
	return sim.Population{Shape: shape, Low: 100, High: 10_000, Noise: 0.02, Seed: 1}
}

func drive(f *sim.Function, cfg rate.Config, search func(rate.Config) rate.Search) sim.Measurement {
	return sim.Drive(f, sim.Population{}.Sizing(), search(cfg), cfg, sim.Costs{Trial: cfg.Overhead}, 5000)
}

func truth(f *sim.Function, threshold float64) float64 {
	return f.Capacity(sim.Population{}.Sizing(), threshold)
}

// A study sums up one search on many functions.
type study struct {
	load, trials, most float64 // means, and the most trials of one search
	errors, widths     []float64
	held               int
}

func (s study) error(p float64) float64 { return s.errors[int(p*float64(len(s.errors)))] }
func (s study) width() float64          { return s.widths[len(s.widths)/2] }
func (s study) share() float64          { return float64(s.held) / float64(len(s.errors)) }

func (s study) String() string {
	return fmt.Sprintf("%.1f trials (%g), %.1f s of load, errors %.4f %.4f, %.3f held, %.4f wide",
		s.trials, s.most, s.load, s.error(0.5), s.error(0.9), s.share(), s.width())
}

func studied(p sim.Population, n int, cfg rate.Config, search func(rate.Config) rate.Search) study {
	var s study
	for i := range n {
		f := p.Function(i)
		m := drive(f, cfg, search)
		want, c := truth(f, cfg.Thresholds[0]), m.Capacities[0]
		s.trials += float64(len(m.History)) / float64(n)
		s.most = max(s.most, float64(len(m.History)))
		s.load += m.Load.Seconds() / float64(n)
		s.errors = append(s.errors, math.Abs(math.Log(c.Rate/want)))
		s.widths = append(s.widths, (c.High-c.Low)/c.Rate)
		if c.Low <= want && want <= c.High {
			s.held++
		}
	}
	slices.Sort(s.errors)
	slices.Sort(s.widths)
	return s
}

// TestAdaptiveOverManyFunctions checks that intervals hold the truth about as
// often as they say, are as narrow as wanted, and cost little load. That holds
// for every shape, whether overloads linger or not.
func TestAdaptiveOverManyFunctions(t *testing.T) {
	t.Parallel()
	const n = 60
	for _, c := range []struct {
		shape    string
		remember bool
	}{
		{sim.Saturating, false}, {sim.Saturating, true}, {sim.Collapsing, false}, {sim.Collapsing, true},
		{sim.Rounded, false}, {sim.Rounded, true}, {sim.SlowToHeal, false},
	} {
		p := drawn(c.shape)
		p.Remember = c.remember
		s := studied(p, n, wanted(), rate.NewAdaptive)
		t.Logf("%s %v: %s", c.shape, c.remember, s)
		if s.share() < 0.9 || s.width() > 0.05 || s.error(0.9) > 0.02 || s.trials > 30 || s.load > 750 {
			t.Errorf("%s, remembers %v: %s", c.shape, c.remember, s)
		}
	}
}

// TestAdaptiveAgainstRamp checks that the search has less than half of the ramp's
// error, for about the ramp's load.
func TestAdaptiveAgainstRamp(t *testing.T) {
	t.Parallel()
	const n = 40
	for _, shape := range []string{sim.Saturating, sim.Collapsing} {
		p := drawn(shape)
		p.Remember = true
		cfg := wanted()
		cfg.Increase, cfg.Repeat = 115, 3
		cfg.Stop = func(o vitrine.Outcome) bool { return o.SuccessRatio() < 0.5 }
		ours, ramp := studied(p, n, wanted(), rate.NewAdaptive), studied(p, n, cfg, rate.NewRamp)
		if ours.load > 1.1*ramp.load || ours.error(0.9) > ramp.error(0.9)/2 {
			t.Errorf("%s: %s; the ramp: %s", shape, ours, ramp)
		}
	}
}

// thousand returns a function of one component that saturates at 1000 calls a
// second.
func thousand(seed uint64) *sim.Function {
	f := drawn(sim.Saturating).Function(0)
	f.Components[0].Demand, f.Components[0].Idle = 0.001, 0
	f.Seed = seed
	return f
}

// near checks that the interval holds the truth, and the estimate is within a
// share of it.
func near(t *testing.T, label string, c vitrine.Capacity, want, within float64) {
	t.Helper()
	if c.Censored != vitrine.CensoredNone || c.Low > want || c.High < want || math.Abs(c.Rate/want-1) > within {
		t.Errorf("%s: want %.4g, got %+v", label, want, c)
	}
}

// TestAdaptiveSeesPastAQueue uses a queue that takes in two seconds' worth of
// calls, so that short trials pass far beyond the capacity.
func TestAdaptiveSeesPastAQueue(t *testing.T) {
	for seed := range uint64(5) {
		f := thousand(seed)
		f.Queue = 2
		cfg := wanted()
		cfg.Duration = 60 * time.Second
		if o := drive(f, cfg, oneTrial(1500, time.Second)).History[0]; o.SuccessRatio() < 0.99 {
			t.Fatalf("a trial of a second shows it already: %g", o.SuccessRatio())
		}
		m := drive(f, cfg, rate.NewAdaptive)
		near(t, fmt.Sprintf("seed %d", seed), m.Capacities[0], truth(f, 0.9), 0.05)
		if !slices.ContainsFunc(m.History, func(o vitrine.Outcome) bool { return o.Duration == cfg.Duration }) {
			t.Error("no trial of the full length")
		}
	}
}

// A oneStep is a search of a single trial.
type oneStep rate.Step

func (s oneStep) Next(history []vitrine.Outcome) rate.Step {
	if len(history) > 0 {
		return rate.Step{Done: true, Why: "it was one"}
	}
	return rate.Step(s)
}

func oneTrial(r float64, window time.Duration) func(rate.Config) rate.Search {
	return func(rate.Config) rate.Search {
		return oneStep{Rate: r, Duration: window, Repeat: 1, Restart: true, Why: "the only one"}
	}
}

// TestAdaptiveSaysThatTheDurationIsTooShort uses a queue that takes longer to
// fill near the capacity than the longest trial lasts.
func TestAdaptiveSaysThatTheDurationIsTooShort(t *testing.T) {
	f := thousand(1)
	f.Queue = 12
	m := drive(f, wanted(), rate.NewAdaptive)
	c, why := m.Capacities[0], m.Steps[len(m.Steps)-1].Why
	if !strings.Contains(why, "longer trials would help") || len(m.History) > 300 {
		t.Errorf("%d trials: %s", len(m.History), why)
	}
	if want := truth(f, 0.9); c.Low > want || c.High < want {
		t.Errorf("want %g, got %+v", want, c)
	}
}

// TestAdaptiveAfterAnOverload checks that a function that recovers by itself
// keeps its capacity. Where only a fresh deployment ends an overload, the lower
// capacity counts, and the fresh one is reported beside it.
func TestAdaptiveAfterAnOverload(t *testing.T) {
	t.Parallel()
	for name, recovery := range map[string]float64{"recovers": 1, "lingers": 0} {
		held := 0
		for seed := range uint64(12) {
			f := thousand(seed)
			f.Memory = sim.Memory{Damage: 0.5, Bears: 0.2, Recovery: recovery}
			m := drive(f, wanted(), rate.NewAdaptive)
			c, fresh := m.Capacities[0], 1000/0.9
			want := fresh
			if name == "lingers" {
				want /= 2
				if math.Abs(c.Fresh/fresh-1) > 0.1 {
					t.Errorf("%s, seed %d: fresh deployments carry %g, got %+v", name, seed, fresh, c)
				}
			}
			if math.Abs(c.Rate/want-1) > 0.03 {
				t.Errorf("%s, seed %d: want %g, got %+v after %d trials", name, seed, want, c, len(m.History))
			}
			if c.Low <= want && want <= c.High {
				held++
			}
		}
		if held < 10 {
			t.Errorf("%s: %d of 12 intervals hold the capacity", name, held)
		}
	}
}

func TestAdaptiveOnAStatefulFunction(t *testing.T) {
	for seed := range uint64(20) {
		f := drawn(sim.Saturating).Function(int(seed))
		f.Memory = sim.Memory{Damage: 0.5, Bears: 0.1}
		cfg := wanted()
		cfg.Stateful = true
		m := drive(f, cfg, rate.NewAdaptive)
		if first := m.Steps[0]; first.Rate > cfg.Max/2 {
			t.Errorf("begins at %g of %g", first.Rate, cfg.Max)
		}
		for i, o := range m.History[:len(m.History)-1] {
			if next := m.Steps[i+1]; o.SuccessRatio() < 0.9 && (!next.Restart || next.Repeat != o.Repeat+1) {
				t.Fatalf("seed %d: goes on after an overload: %+v", seed, next)
			}
		}
	}
}

func TestAdaptiveWithDrift(t *testing.T) {
	held := 0
	for seed := range uint64(40) {
		f := thousand(seed)
		f.Noise.Drift = -1 // a tenth in the six minutes that the search may take
		m := drive(f, wanted(), rate.NewAdaptive)
		c := m.Capacities[0]
		if c.Low <= truth(f, 0.9) && c.High >= truth(f, 0.9)*(1-m.Wall.Hours()) {
			held++
		}
	}
	if held < 36 {
		t.Errorf("%d of 40 intervals reach the capacities that there were", held)
	}
}

func TestAdaptiveEndsOfTheRange(t *testing.T) {
	for name, c := range map[string]struct {
		low, high, rate float64
		censored        string
		ceiling         float64
	}{
		"below":             {2000, 9000, 2000, vitrine.CensoredBelow, 0},
		"above":             {100, 900, 900, vitrine.CensoredAbove, 0},
		"generator":         {100, 9000, 0, vitrine.CensoredGenerator, 700},
		"one rate, carried": {500, 500, 500, vitrine.CensoredAbove, 0},
		"one rate, refused": {1500, 1500, 1500, vitrine.CensoredBelow, 0},
		"no rate offered":   {100, 9000, 0, vitrine.CensoredGenerator, 50},
	} {
		f := thousand(3)
		f.Ceiling = c.ceiling
		cfg := wanted()
		cfg.Min, cfg.Max = c.low, c.high
		m := drive(f, cfg, rate.NewAdaptive)
		got := m.Capacities[0]
		if got.Censored != c.censored || len(m.History) > 40 {
			t.Errorf("%s: %+v after %d trials: %s", name, got, len(m.History), m.Steps[len(m.Steps)-1].Why)
		}
		if c.rate > 0 && got.Rate != c.rate {
			t.Errorf("%s: %+v", name, got)
		}
		if name == "generator" && (got.Rate < 0.9*c.ceiling || got.Rate > c.ceiling) {
			t.Errorf("the generator could offer %g: %+v", c.ceiling, got)
		}
	}
}

func TestAdaptiveServesAllThresholds(t *testing.T) {
	alone, together := 0, 0
	for seed := range uint64(20) {
		f := thousand(seed)
		cfg := wanted()
		alone += len(drive(f, cfg, rate.NewAdaptive).History)
		cfg.Thresholds = []float64{0.9, 0.8}
		m := drive(f, cfg, rate.NewAdaptive)
		together += len(m.History)
		for i, c := range m.Capacities {
			if want := truth(f, c.Threshold); c.Threshold != cfg.Thresholds[i] || math.Abs(c.Rate/want-1) > 0.05 || c.High-c.Low > 0.06*c.Rate {
				t.Errorf("seed %d: want %g, got %+v", seed, want, c)
			}
		}
	}
	if together > alone*7/4 {
		t.Errorf("%d trials for both, %d for one", together, alone)
	}
}

// TestAdaptiveOverDeployments checks that the interval covers how deployments
// differ, and so is wide where they differ and few are wanted.
func TestAdaptiveOverDeployments(t *testing.T) {
	t.Parallel()
	held, most := 0, 0
	for seed := range uint64(60) {
		f := thousand(seed)
		f.Noise.Deployment = 0.03
		cfg := wanted()
		cfg.Repeat = 4
		m := drive(f, cfg, rate.NewAdaptive)
		c, repeats := m.Capacities[0], m.History[len(m.History)-1].Repeat
		if repeats < cfg.Repeat {
			t.Fatalf("seed %d: %d deployments: %s", seed, repeats, m.Steps[len(m.Steps)-1].Why)
		}
		most = max(most, repeats)
		if want := truth(f, 0.9); c.Low <= want && want <= c.High {
			held++
		}
	}
	if held < 53 || most > 35 {
		t.Errorf("%d of 60 intervals hold the truth; up to %d deployments", held, most)
	}
}

// TestAdaptiveDoesNotInsist lets deployments differ so much that no curve fits
// all trials. The search must not try the same rate on one deployment over and
// over.
func TestAdaptiveDoesNotInsist(t *testing.T) {
	t.Parallel()
	const seeds = 30
	trials := 0
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 4))
		cfg := rate.Config{Min: 30, Max: 1200, Duration: 4 * time.Second, Repeat: 2, Thresholds: []float64{0.9, 0.8},
			Precision: 0.1, Overhead: 4 * time.Second, Stateful: true}
		capacities := []float64{265, 272, 268, 300, 294, 270}
		for len(capacities) < 40 {
			capacities = append(capacities, 265+80*random.Float64())
		}
		_, history := run(t, rate.NewAdaptive(cfg), func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
			if s.Rate <= capacities[s.Repeat] {
				return ratio(1)
			}
			return ratio(0.3 + 0.4*random.Float64())
		})
		same := 0
		for i := 1; i < len(history); i++ {
			if a, b := history[i-1], history[i]; a.Repeat == b.Repeat && math.Abs(a.Rate/b.Rate-1) < 0.01 {
				same++
			} else {
				same = 0
			}
			if same > 2 {
				t.Fatalf("seed %d: trials up to #%d are of one rate and deployment", seed, i+1)
			}
		}
		trials += len(history)
	}
	if trials > 100*seeds {
		t.Errorf("%d trials of %d functions", trials, seeds)
	}
}

// TestAdaptiveOnOddFunctions checks that the search is right on shapes that it
// does not expect, though it may take longer.
func TestAdaptiveOnOddFunctions(t *testing.T) {
	for name, c := range map[string]struct {
		want    float64
		success func(load float64) float64 // of the rate over 1000
	}{
		"cliff":     {1000, func(x float64) float64 { return map[bool]float64{true: 1, false: 0.3 / x}[x <= 1] }},
		"dead":      {1000, func(x float64) float64 { return map[bool]float64{true: 1, false: 0}[x <= 1] }},
		"lossy":     {1000 * 0.96 / 0.9, func(x float64) float64 { return 0.96 * min(1, 1/x) }},
		"logistic":  {1000, func(x float64) float64 { return 1 / (1 + math.Exp(math.Log(1.0/9)+8*(x-1))) }},
		"slow":      {1000 / (0.9 * 0.9), func(x float64) float64 { return min(1, 1/math.Sqrt(x)) }},
		"staircase": {1000, func(x float64) float64 { return map[bool]float64{true: 0.97, false: 0.85 / x}[x <= 1] }},
	} {
		for seed := range uint64(8) {
			random := rand.New(rand.NewPCG(seed, 7))
			_, history := run(t, rate.NewAdaptive(wanted()), func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
				return played(s, random, func(int) float64 { return c.success(s.Rate / 1000) })
			})
			got := rate.NewAdaptive(wanted()).(rate.Estimator).Estimate(history)[0]
			if math.Abs(got.Rate/c.want-1) > 0.05 || got.Low > c.want*1.02 || got.High < c.want*0.98 {
				t.Errorf("%s, seed %d: want %g, got %+v after %d trials", name, seed, c.want, got, len(history))
			}
		}
	}
}

// played returns a trial whose seconds succeed as the function says, with random
// variation.
func played(s rate.Step, random *rand.Rand, success func(second int) float64) vitrine.Outcome {
	o := vitrine.Outcome{Valid: true, Failed: map[string]int64{}}
	for i := range int(s.Duration.Seconds()) {
		ok := success(i)
		n := math.Round(s.Rate)
		good := math.Round(max(0, min(n, n*ok+math.Sqrt(n*ok*(1-ok))*random.NormFloat64())))
		o.Seconds = append(o.Seconds, vitrine.Second{Scheduled: int64(n), Offered: int64(n), Succeeded: int64(good), Failed: int64(n - good)})
		o.Scheduled, o.Offered, o.Succeeded = o.Scheduled+int64(n), o.Offered+int64(n), o.Succeeded+int64(good)
	}
	o.Failed["503"] = o.Scheduled - o.Succeeded
	return o
}

// TestAdaptiveWithoutSeconds checks that a generator need not report seconds.
func TestAdaptiveWithoutSeconds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	_, history := run(t, rate.NewAdaptive(wanted()), func(s rate.Step, _ []vitrine.Outcome) vitrine.Outcome {
		o := played(s, random, func(int) float64 { return min(1, 1000/s.Rate) })
		o.Seconds = nil
		return o
	})
	near(t, "without seconds", rate.NewAdaptive(wanted()).(rate.Estimator).Estimate(history)[0], 1000/0.9, 0.03)
}

// TestAdaptiveAlwaysEnds drives the search over random functions, most of them
// absurd, and checks what must hold for every function.
func TestAdaptiveAlwaysEnds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(80) {
		random := rand.New(rand.NewPCG(seed, 2))
		cfg := randomConfig(random)
		cfg.Increase, cfg.Stateful = 0, random.IntN(4) == 0
		kind, f := randomFunction(random)
		label := fmt.Sprintf("seed %d: a %s function", seed, kind)
		steps, history := run(t, rate.NewAdaptive(cfg), f)
		checkAdaptiveSteps(t, label, cfg, steps)
		if len(history) > 600 {
			t.Errorf("%s: %d trials", label, len(history))
		}
		for k := 0; k < len(steps); k += 3 {
			if again := rate.NewAdaptive(cfg).Next(history[:k]); again != steps[k] {
				t.Fatalf("%s: replayed step %d is %+v, was %+v", label, k, again, steps[k])
			}
		}
		for k := 0; k <= len(history); k += 5 {
			capacities := rate.NewAdaptive(cfg).(rate.Estimator).Estimate(history[:k])
			for i, c := range capacities {
				if c.Threshold != cfg.Thresholds[i] || !(0 <= c.Low && c.Low <= c.Rate && c.Rate <= c.High && c.High <= cfg.Max) || c.Censored == "" ||
					i > 0 && c.Rate < capacities[i-1].Rate {
					t.Fatalf("%s: after %d trials: %+v", label, k, capacities)
				}
			}
		}
	}
}

func checkAdaptiveSteps(t *testing.T, label string, cfg rate.Config, steps []rate.Step) {
	t.Helper()
	repeat := 0
	for i, s := range steps {
		if s.Why == "" || s.Done != (i == len(steps)-1) {
			t.Fatalf("%s: step %d: %+v", label, i, s)
		}
		if s.Done {
			return
		}
		if s.Rate < cfg.Min || s.Rate > cfg.Max || s.Duration <= 0 || s.Duration > 16*cfg.Duration || s.Settle < 0 {
			t.Fatalf("%s: step %d is out of range: %+v", label, i, s)
		}
		if s.Restart != (s.Repeat == repeat+1) || !s.Restart && s.Repeat != repeat {
			t.Fatalf("%s: step %d after repeat %d: %+v", label, i, repeat, s)
		}
		repeat = s.Repeat
	}
}

// TestAdaptiveBeginsWhereNeighboursAre checks that a right prior saves trials
// where the goodput of an overload tells nothing. A wrong prior only costs
// trials.
func TestAdaptiveBeginsWhereNeighboursAre(t *testing.T) {
	t.Parallel()
	spent := map[string]int{} // trials
	for i := range 40 {
		f := drawn(sim.Collapsing).Function(i)
		want := truth(f, 0.9)
		for name, prior := range map[string]rate.Prior{"none": {}, "right": {Low: want / 1.15, High: want * 1.2}, "wrong": {Low: want * 2, High: want * 3}} {
			cfg := wanted()
			cfg.Prior = prior
			m := drive(f, cfg, rate.NewAdaptive)
			spent[name] += len(m.History)
			if c := m.Capacities[0]; math.Abs(c.Rate/want-1) > 0.06 {
				t.Errorf("function %d, %s: want %g, got %+v", i, name, want, c)
			}
		}
	}
	if spent["right"] >= spent["none"] || spent["wrong"] > spent["none"]*3/2 {
		t.Errorf("trials: %v", spent)
	}
}

// TestAdaptiveMeasuresContrasts checks for the trials that the report's figure
// shows beside the capacity: underload and overload.
func TestAdaptiveMeasuresContrasts(t *testing.T) {
	for seed := range uint64(20) {
		f := drawn(sim.Saturating).Function(int(seed))
		m := drive(f, wanted(), rate.NewAdaptive)
		p := rate.At(m.History, m.Capacities[0])
		if p.Underload == nil || p.Overload == nil || p.Overload.Rate > 2*m.Capacities[0].Rate {
			t.Errorf("seed %d: %+v of %s", seed, p, offered(m.Steps))
		}
	}
}

func BenchmarkAdaptiveNext(b *testing.B) {
	f := thousand(1)
	f.Noise.Second = 0.2 // far from precise: the search takes as many trials as it may
	m := drive(f, wanted(), rate.NewAdaptive)
	b.ReportMetric(float64(len(m.History)), "trials")
	for b.Loop() {
		rate.NewAdaptive(wanted()).Next(m.History)
	}
}
