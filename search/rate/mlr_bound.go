package rate

import (
	"math"
	"slices"
	"time"
)

// An mlrTarget is one stage of the search for a goal.
type mlrTarget struct {
	loss  float64       // largest loss ratio of a trial that passes
	width int           // largest distance between its bounds, in grid steps
	trial time.Duration // length of a trial that counts in full
	total time.Duration // total length of the trials that decide on a rate
}

// mlrTargets returns the targets of a goal, from coarse to fine. Each wants
// bounds half as far apart as the one before, by trials longer in equal ratios.
func mlrTargets(loss float64, longest time.Duration) []mlrTarget {
	shortest := min(mlrShortest, longest)
	targets := make([]mlrTarget, mlrCoarser+1)
	for i := range targets {
		way := float64(i) / mlrCoarser
		length := time.Duration(float64(shortest) * math.Pow(float64(longest)/float64(shortest), way))
		if length > time.Second {
			length = length.Round(time.Second) // trials have one entry per second
		}
		targets[i] = mlrTarget{loss: loss, width: mlrSteps << (mlrCoarser - i), trial: length, total: length}
	}
	targets[mlrCoarser].trial, targets[mlrCoarser].total = longest, longest
	return targets
}

// An mlrTrial is the result of one trial at a rate.
type mlrTrial struct {
	length time.Duration // requested length
	loss   float64
}

// A verdict on a rate, for one target.
type verdict int

const (
	undecided verdict = iota
	lower             // a lower bound: the function carries the rate
	upper             // an upper bound
)

// judge returns the verdict of the trials at one rate for the target. Trials
// shorter than the target's count only against a rate, and only where more of
// their time failed than the exceed ratio allows. A verdict stands when no
// outcome of the time that is still missing could change it.
func (t mlrTarget) judge(trials []mlrTrial) verdict {
	var passed, failed, shortPassed, shortFailed float64 // seconds
	for _, trial := range trials {
		seconds := trial.length.Seconds()
		switch good := trial.loss <= t.loss+stepTolerance; {
		case trial.length >= t.trial && good:
			passed += seconds
		case trial.length >= t.trial:
			failed += seconds
		case good:
			shortPassed += seconds
		default:
			shortFailed += seconds
		}
	}
	against := failed + max(0, shortFailed-shortPassed*mlrExceed/(1-mlrExceed))
	whole := max(passed+against, t.total.Seconds())
	switch may := mlrExceed * whole; {
	case against > may:
		return upper
	case whole-passed <= may:
		return lower
	}
	return undecided
}

// relevant returns the lowest upper bound for the target and the highest lower
// bound below it, as grid indices; -1: none.
func (r *mlrRun) relevant(t mlrTarget) (lo, hi int) {
	lo, hi = -1, -1
	for _, i := range r.tried {
		v := t.judge(r.trials[i])
		if r.blocked[i] {
			v = upper
		}
		switch v {
		case upper:
			return lo, i
		case lower:
			lo = i
		}
	}
	return lo, hi
}

// bounds returns the relevant bounds of the finest target that has any; false:
// none has.
func (r *mlrRun) bounds(goal int) (lo, hi int, ok bool) {
	for _, t := range slices.Backward(r.goals[goal]) {
		if lo, hi := r.relevant(t); lo >= 0 || hi >= 0 {
			return lo, hi, true
		}
	}
	return -1, -1, false
}
