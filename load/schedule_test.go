package load

import (
	"math"
	"slices"
	"testing"
	"time"
)

// all returns the due times of the whole schedule.
func all(s *Schedule) []time.Duration {
	var dues []time.Duration
	for due, ok := s.Next(); ok; due, ok = s.Next() {
		dues = append(dues, due)
	}
	return dues
}

// inWindow returns the number of calls due in the window.
func inWindow(dues []time.Duration) int {
	n := 0
	for _, due := range dues {
		if due >= 0 {
			n++
		}
	}
	return n
}

func TestMostOpen(t *testing.T) {
	for _, c := range []struct {
		arrivals string
		rate     float64
		lasting  time.Duration
		want     float64
	}{
		{Paced, 100, time.Second, 101}, {Paced, 1, 500 * time.Millisecond, 2},
		{Poisson, 100, time.Second, 151}, {Poisson, 2, time.Second, 11},
	} {
		if got := MostOpen(c.arrivals, c.rate, c.lasting); got != c.want {
			t.Errorf("%s arrivals at %g/s, open for %s: got %g calls, want %g", c.arrivals, c.rate, c.lasting, got, c.want)
		}
	}
}

func TestPaced(t *testing.T) {
	for _, c := range []struct {
		rate             float64
		warmup, duration float64
		steady, rising   int // calls in the warm-up
		calls            int // calls in the window
	}{
		{10, 0, 0.3, 0, 0, 3}, {10, 1, 3, 10, 7, 30}, {0.5, 0, 3, 0, 0, 2}, {0.1, 5, 3, 0, 0, 1},
		{333.3, 0.5, 10, 166, 124, 3333}, {3, 0, 1, 0, 0, 3},
	} {
		trial := Trial{Rate: c.rate, Warmup: c.warmup, Duration: c.duration}
		for schedule, warmups := range map[*Schedule]int{trial.Steady(): c.steady, trial.Schedule(Paced): c.rising} {
			dues := all(schedule)
			if n := inWindow(dues); n != c.calls || len(dues)-n != warmups {
				t.Errorf("rate %v: got %d calls and %d warm-up calls, want %d and %d", c.rate, n, len(dues)-n, c.calls, warmups)
			}
			if last := dues[len(dues)-1]; last >= time.Duration(c.duration*1e9) {
				t.Errorf("rate %v: the last call is due at %v, after the window", c.rate, last)
			}
			if first := dues[0]; first < -time.Duration(c.warmup*1e9) {
				t.Errorf("rate %v: the first call is due at %v, before the warm-up", c.rate, first)
			}
		}
	}
	if got := (pace{rate: 3}).at(259_199); got != 86400*time.Second-333333333*time.Nanosecond {
		t.Errorf("call late in a day: got %v", got)
	}
}

// TestWarmupRises checks that the rate rises linearly to the window's rate over
// the first half of the warm-up, and then stays there.
func TestWarmupRises(t *testing.T) {
	for arrivals, slack := range map[string]float64{Paced: 2, Poisson: 200} { // 6 standard deviations
		dues := all(Trial{Rate: 1000, Warmup: 4, Duration: 1, Seed: 7}.Schedule(arrivals))
		if !slices.IsSorted(dues) {
			t.Errorf("%s: the calls are not sorted", arrivals)
		}
		var calls [5]float64 // in each second
		for _, due := range dues {
			calls[int((due+4*time.Second)/time.Second)]++
		}
		for i, want := range []float64{250, 750, 1000, 1000, 1000} {
			if math.Abs(calls[i]-want) > slack {
				t.Errorf("%s: second %d has %v calls, want %v", arrivals, i+1, calls[i], want)
			}
		}
	}
}

// TestPoisson checks that gaps are exponential, and that counts vary as in a Poisson process at
// every scale. The seed is fixed, so the calls are always the same.
func TestPoisson(t *testing.T) {
	trial := Trial{Rate: 200, Duration: 1000, Seed: 3}
	dues := all(trial.Schedule(Poisson))
	const calls = 200_000
	if got := float64(len(dues)); math.Abs(got-calls) > 4*math.Sqrt(calls) {
		t.Errorf("got %v calls, want %d within 4 standard deviations", got, calls)
	}
	longer := map[float64]float64{0: 0, 0.5: 0, 1: 0, 2: 0, 4: 0} // number of gaps longer than the key, in mean gaps
	for i := 1; i < len(dues); i++ {
		for bound := range longer {
			if (dues[i]-dues[i-1]).Seconds()*trial.Rate >= bound {
				longer[bound]++
			}
		}
	}
	for bound, n := range longer {
		p := math.Exp(-bound)
		if got, slack := n/float64(len(dues)-1), 4*math.Sqrt(p*(1-p)/calls); math.Abs(got-p) > slack+1e-9 {
			t.Errorf("got a share %.4f of gaps above %v mean gaps, want %.4f", got, bound, p)
		}
	}
	for _, width := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		counts := make([]float64, 1000*time.Second/width)
		for _, due := range dues {
			counts[due/width]++
		}
		mean, squares := float64(len(dues))/float64(len(counts)), 0.0
		for _, n := range counts {
			squares += (n - mean) * (n - mean)
		}
		dispersion := squares / float64(len(counts)-1) / mean
		if slack := 4 * math.Sqrt(2/float64(len(counts))); math.Abs(dispersion-1) > slack {
			t.Errorf("counts in %v have variance / mean %.3f, want 1 within %.3f", width, dispersion, slack)
		}
	}
}

// TestScheduleIsOfTheSeed checks that the same seed gives the same calls, and
// another seed gives other calls.
func TestScheduleIsOfTheSeed(t *testing.T) {
	trial := Trial{Rate: 50, Duration: 4, Warmup: 2, Seed: 5}
	first := all(trial.Schedule(Poisson))
	if !slices.Equal(first, all(trial.Schedule(Poisson))) {
		t.Error("the same seed gave a different schedule")
	}
	trial.Seed = 6
	if slices.Equal(first, all(trial.Schedule(Poisson))) {
		t.Error("a different seed gave the same schedule")
	}
}

func TestScheduleDoesNotAllocate(t *testing.T) {
	s := Trial{Rate: 1000, Duration: 100}.Schedule(Poisson)
	if allocs := testing.AllocsPerRun(1000, func() { s.Next() }); allocs != 0 {
		t.Errorf("%v allocations a call", allocs)
	}
}
