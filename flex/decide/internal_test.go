package decide

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// bruteForce returns the fewest CPUs that carry the need with at most most instances, by trying all
// combinations.
func bruteForce(need float64, flavors []Flavor, most int) float64 {
	if need <= 1e-9 {
		return 0
	}
	if most == 0 || len(flavors) == 0 {
		return math.Inf(1)
	}
	best := math.Inf(1)
	for n := 0; n <= most; n++ {
		rest := need - float64(n)*flavors[0].Capacity
		best = min(best, float64(n)*flavors[0].CPUs+bruteForce(rest, flavors[1:], most-n))
		if rest <= 0 {
			break
		}
	}
	return best
}

func TestCoverTakesTheFewestCPUs(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 3))
		var flavors []Flavor
		for range 1 + r.IntN(3) {
			flavors = append(flavors, Flavor{Capacity: 20 + 200*r.Float64(), CPUs: 0.5 + float64(r.IntN(8))/2})
		}
		need, most := 1200*r.Float64(), 12
		counts := cover(need, flavors, most)
		var carried, cpus float64
		n := 0
		for i, k := range counts {
			carried += float64(k) * flavors[i].Capacity
			cpus += float64(k) * flavors[i].CPUs
			n += k
		}
		best := bruteForce(need, flavors, most)
		switch {
		case n > most:
			t.Errorf("seed %d: got %d instances, want at most %d", seed, n, most)
		case math.IsInf(best, 1):
			if n != most {
				t.Errorf("seed %d: got %d instances, want all %d because the capacity is too low", seed, n, most)
			}
		case carried < need-1e-6 || cpus > best+1e-9:
			t.Errorf("seed %d: %v carry %.4g of %.4g with %.4g CPUs, the optimum is %.4g: %+v", seed, counts, carried, need, cpus, best, flavors)
		}
	}
}

func TestCoverIsQuickForLargeNeeds(t *testing.T) {
	flavors := []Flavor{{Capacity: 10, CPUs: 1}, {Capacity: 25, CPUs: 2}, {Capacity: 60, CPUs: 5}, {Capacity: 101, CPUs: 9}, {Capacity: 130, CPUs: 11}}
	counts := cover(123_456, flavors, 100_000)
	carried, cpus := 0.0, 0.0
	for i, k := range counts {
		carried += float64(k) * flavors[i].Capacity
		cpus += float64(k) * flavors[i].CPUs
	}
	if floor := 123_456 / 12.5; carried < 123_456 || cpus > floor+2 {
		t.Errorf("%v carry %.6g with %.6g CPUs, the lower bound is %.6g", counts, carried, cpus, floor)
	}
}

func TestTheBootTimeIsThe90thPercentileOfTheLastStarts(t *testing.T) {
	var k Track
	v := &TypeView{}
	if got := k.boot(v); got != DefaultBoot {
		t.Errorf("boot time without a start: got %v, want the default", got)
	}
	for i := range 10 {
		k.Boots = append(k.Boots, time.Duration(i+1)*time.Second)
	}
	if got := k.boot(v); got != 9*time.Second {
		t.Errorf("boot time after starts of 1 to 10 s: got %v, want 9s", got)
	}
}

// TestABrokenObjectiveIsShown checks that the measured value and the objective differ in the text.
func TestABrokenObjectiveIsShown(t *testing.T) {
	f := fleet{TypeView: &TypeView{}, rate: 100, good: 99.996}
	f.Objective = Objective{Success: 0.99999}
	if got, want := f.ailment(), "the success ratio is 0.99996, below the objective of 0.99999"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f.Objective, f.slowest = Objective{P99: 300 * time.Microsecond}, &Instance{Name: "a", P99: 400_001}
	if got, want := f.ailment(), "the 99th percentile of a is 400µs, above the objective of 300µs"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLevelFollowsAStepAndIgnoresNoise(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	var rates []float64
	for range 64 {
		rates = append(rates, 100+10*r.NormFloat64())
	}
	if got, _ := level(rates, noise(rates)); math.Abs(got-100) > 4 {
		t.Errorf("level of 100/s with noise: got %.4g", got)
	}
	rates = append(rates[1:], 300)
	if got, _ := level(rates, noise(rates)); got != 300 {
		t.Errorf("level in the first second at 300/s: got %.4g", got)
	}
}

// TestLevelFollowsASmallBurstWithinSeconds uses the small rates of small hosts. Such a burst is
// only a few standard deviations of the rate of one second.
func TestLevelFollowsASmallBurstWithinSeconds(t *testing.T) {
	for _, c := range []struct {
		before, after float64
		within        int // seconds
	}{{0, 40, 1}, {20, 50, 2}, {20, 100, 1}, {50, 100, 2}} {
		var rates []float64
		for range 40 {
			rates = append(rates, c.before)
		}
		for second := 1; ; second++ {
			rates = append(rates, c.after)
			if got, _ := level(rates, noise(rates)); got == c.after {
				break
			}
			if second == c.within {
				t.Errorf("the step from %g/s to %g/s was not noticed within %d s", c.before, c.after, c.within)
				break
			}
		}
	}
}

func TestAStepIsNotExtrapolated(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 4))
	for at := 1; at < 64; at++ {
		var rates []float64
		for i := range 64 {
			mean := 100.0
			if i >= 64-at {
				mean = 500
			}
			rates = append(rates, mean+math.Sqrt(mean)*r.NormFloat64())
		}
		now, _ := level(rates, noise(rates))
		if got := forecast(rates, now, noise(rates), 30); got > 560 {
			t.Errorf("forecast %d s after a step to 500/s: got %.4g/s, want at most 560/s", at, got)
		}
	}
}
