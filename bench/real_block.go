package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"vitrine"
	"vitrine/search/rate"
)

const (
	blockExtensions = 3 // of a window that is not steady; each doubles its length
	blockAttempts   = 3 // for an invalid trial
)

// blockFactors returns the rates of a block as shares of the estimate.
func blockFactors() []float64 { return []float64{0.9, 0.95, 1, 1.05, 1.1} }

// A realTrial is one trial in the form of the files.
type realTrial struct {
	Rate       float64 // offered
	Seconds    float64 // of the window
	Deployment int
	Scheduled  int64
	Succeeded  int64
	CPU        float64 `json:",omitempty"` // CPU time of the function in s, per scheduled call; 0: not known
	Speed      float64 `json:",omitempty"` // of the slowest CPU during the trial, as a share of its best; 0: not known
	Invalid    string  `json:",omitempty"` // why the trial is invalid
	Success    float64 `json:",omitempty"` // of a block: success ratio in steady state
	Growth     float64 `json:",omitempty"` // of a block: growth of the calls in flight, as a share of the rate
	Steady     bool    `json:",omitempty"` // of a block: the backlog does not grow
}

// newRealTrial returns the fields that every trial has.
func newRealTrial(o vitrine.Outcome) realTrial {
	t := realTrial{Rate: o.Rate, Seconds: o.Duration.Seconds(), Deployment: o.Repeat, Scheduled: o.Scheduled, Succeeded: o.Succeeded, CPU: cpuPerCall(o)}
	if o.Host != nil {
		t.Speed = o.Host.During
	}
	if !o.Valid {
		t.Invalid = o.Reason
	}
	return t
}

// showsCost reports whether the trial shows what a call costs: it passed, at costFrom to costTo times
// the capacity.
func (t realTrial) showsCost(capacity float64) bool {
	return t.CPU > 0 && t.Rate >= costFrom*capacity && t.Rate <= costTo*capacity && float64(t.Succeeded) >= realThreshold*float64(t.Scheduled)
}

// cpuPerCall returns the CPU time of all components per scheduled call, in s, or 0 if it is not known.
func cpuPerCall(o vitrine.Outcome) float64 {
	total, seconds := 0.0, o.CPUPerCall()
	for _, name := range slices.Sorted(maps.Keys(seconds)) {
		total += seconds[name]
	}
	if math.IsNaN(total) {
		return 0
	}
	return total
}

// A block offers given rates, each to a fresh deployment. Capacity is defined by the mean over
// fresh deployments, and an earlier trial would leave effects behind. A window that meets the
// threshold but is not steady is extended. A block is a rate.Search, so that a campaign can drive
// it.
type block struct {
	rates     []float64
	window    time.Duration
	precision float64 // limit of what counts as growth
	threshold float64
}

// Next implements rate.Search.
func (b block) Next(history []vitrine.Outcome) rate.Step {
	_, next := b.walk(history)
	return next
}

// walk returns the completed trials of the history and the next step. An outcome that was extended
// or repeated is not a trial of its own.
func (b block) walk(history []vitrine.Outcome) (trials []realTrial, next rate.Step) {
	for i, r := range b.rates {
		window, fresh, invalid := b.windowLength(r), true, 0
		for extended := 0; ; {
			if len(history) == 0 {
				return trials, rate.Step{Rate: r, Duration: window, Repeat: i + 1, Restart: fresh,
					Why: fmt.Sprintf("rate %d of %d, extended %d times", i+1, len(b.rates), extended)}
			}
			o := history[0]
			history = history[1:]
			if !o.Valid || o.Scheduled == 0 {
				if invalid++; invalid == blockAttempts {
					trials = append(trials, newRealTrial(o))
					break
				}
				fresh = true
				continue
			}
			t, ratio := b.judge(o)
			if t.Steady || ratio < b.threshold || extended == blockExtensions {
				trials = append(trials, t)
				break
			}
			extended++
			window, fresh = 2*window, false
		}
	}
	return trials, rate.Step{Done: true, Why: "all rates were offered"}
}

// windowLength returns the length of a window at the rate. Its second half is long enough to detect
// the growth of a backlog under paced arrivals, with the wanted precision.
func (b block) windowLength(r float64) time.Duration {
	const calls, longest = 9, time.Minute
	half := time.Duration(math.Ceil(calls/(b.precision*b.precision*r))) * time.Second
	return max(b.window, min(2*half, longest))
}

// judge returns the trial with its steady-state success, and the success ratio of the second half
// of the window. By then queues are full and caches are warm. If the calls in flight grow, judge
// subtracts their growth from the trial's success: a function in steady state could not carry those
// calls.
func (b block) judge(o vitrine.Outcome) (t realTrial, ratio float64) {
	t = newRealTrial(o)
	half := vitrine.Outcome{Key: o.Key, Valid: true, Seconds: o.Seconds[len(o.Seconds)/2:], InFlight: o.InFlight[len(o.InFlight)/2:]}
	var scheduled, succeeded int64
	for _, s := range half.Seconds {
		scheduled += s.Scheduled
		succeeded += s.Succeeded
	}
	if scheduled == 0 { // no seconds were reported
		scheduled, succeeded = o.Scheduled, o.Succeeded
	}
	ratio = float64(succeeded) / float64(scheduled)
	t.Success = ratio
	t.Growth = backlogGrowth(half.InFlight) / o.Rate
	if t.Steady = !rate.Grows(half, b.precision); !t.Steady {
		t.Success = max(ratio-max(t.Growth, 0), 0)
	}
	return t, ratio
}

// backlogGrowth returns the growth of the calls in flight from the first quarter to the last, in
// calls per second.
func backlogGrowth(inFlight []int64) float64 {
	n := len(inFlight) / 4
	if n == 0 {
		return 0
	}
	first, last := 0.0, 0.0
	for i := range n {
		first += float64(inFlight[i]) / float64(n)
		last += float64(inFlight[len(inFlight)-1-i]) / float64(n)
	}
	return (last - first) / (float64(len(inFlight)-n) * vitrine.InFlightEvery.Seconds())
}
