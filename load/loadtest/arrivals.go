package loadtest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"vitrine/load"
)

// inFlight compares the calls in flight with rate x latency (Little's law). The lower bound uses
// the responder's delay. The upper bound uses the latency measured on this host.
func (s Subject) inFlight(t *testing.T) {
	t.Parallel()
	const delay = 200 * time.Millisecond
	const attempts = 5 // a busy host may delay the calls at both ends of the window
	var wrong string
	for range attempts {
		res := s.run(t, Behaviour{Delay: delay}, func(trial *load.Trial) { trial.Warmup = 2 })
		res.whole(t)
		if n := len(res.report.InFlight); n != 20 {
			t.Fatalf("%d samples in 2 s, want 20", n)
		}
		h, err := res.report.Histogram()
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, n := range res.report.InFlight { // ParseReport has checked that no number is below 0
			sum += float64(n)
		}
		mean := sum / 20
		low, high := res.trial.Rate*float64(s.Protocol.Delayed)*delay.Seconds(), res.trial.Rate*time.Duration(h.Mean()).Seconds()
		if mean >= 0.75*low && mean <= 1.25*high+1 {
			return
		}
		wrong = fmt.Sprintf("a mean of %.1f calls in flight, want %.1f to %.1f: %v", mean, low, high, res.report.InFlight)
		t.Log(wrong)
	}
	t.Error(wrong)
}

// poisson compares the arrivals with the schedule of the trial's seed.
func (s Subject) poisson(t *testing.T) {
	t.Parallel()
	const attempts = 5 // on a busy host calls may arrive late
	var off, even float64
	for range attempts {
		res := s.run(t, Behaviour{}, func(trial *load.Trial) { trial.Params["arrivals"] = load.Poisson })
		res.whole(t)
		if off, even = res.poisson(t); off <= even/2 {
			t.Logf("the calls' median deviation from the schedule is %.1f ms", off*1e3)
			return
		}
	}
	t.Errorf("the calls' median deviation from the schedule is %.1f ms; evenly spaced calls have %.1f ms", off*1e3, even*1e3)
}

// poisson returns two deviations from the schedule of the trial's seed, in seconds: that of the
// arrivals, and that of evenly spaced calls.
func (res result) poisson(t *testing.T) (off, even float64) {
	t.Helper()
	var dues []float64 // seconds
	bySecond := make([]int64, 2)
	schedule := res.trial.Schedule(load.Poisson)
	for due, ok := schedule.Next(); ok; due, ok = schedule.Next() {
		dues = append(dues, due.Seconds())
		if due >= 0 {
			bySecond[due/time.Second]++
		}
	}
	if !slices.Equal(res.report.Seconds.Scheduled, bySecond) {
		t.Errorf("scheduled by second: %v, want %v", res.report.Seconds.Scheduled, bySecond)
	}
	if res.report.Succeeded != res.report.Scheduled {
		t.Errorf("%d of %d calls succeeded: %v", res.report.Succeeded, res.report.Scheduled, res.report.Failed)
	}
	if len(res.seen.Arrivals) != len(dues) {
		t.Fatalf("the responder saw %d calls, want %d", len(res.seen.Arrivals), len(dues))
	}
	last := len(dues) - 1
	gap := (dues[last] - dues[0]) / float64(last)
	var offsets, evenOffsets []float64
	for i, due := range dues {
		offsets = append(offsets, res.seen.Arrivals[i].Sub(res.seen.Arrivals[0]).Seconds()-due)
		evenOffsets = append(evenOffsets, dues[0]+gap*float64(i)-due)
	}
	return spread(offsets), spread(evenOffsets)
}

// spread returns the median absolute deviation.
func spread(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	middle := v[len(v)/2]
	for i := range v {
		v[i] = math.Abs(v[i] - middle)
	}
	slices.Sort(v)
	return v[len(v)/2]
}
