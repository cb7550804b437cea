// Package rate decides which rate to offer next, and says what capacity the
// trials show. It is pure: no clock, no I/O, no goroutine; the same history,
// configuration and seed give the same step, so that a resumed run replays it.
package rate

import (
	"time"

	"vitrine"
)

// A Step is the next trial of one sizing, or the end of its search.
type Step struct {
	Rate     float64
	Duration time.Duration // of the window
	Repeat   int           // 1, 2, ...
	Restart  bool          // deploy afresh before this trial
	Done     bool          // no more trials
	Why      string        // always said: why this rate, or why it is done
}

// A Search decides the next step from the trials so far of one sizing, in the
// order in which they were run. Invalid outcomes are in the history too.
type Search interface {
	Next(history []vitrine.Outcome) Step
}

// A Config is what the workload says about the rates.
type Config struct {
	Min, Max   float64       // the workload's range
	Increase   float64       // ramp: step between rates; bisect: the resolution to stop at
	Duration   time.Duration // of the window of a trial
	Repeat     int           // fresh deployments
	Thresholds []float64     // of the success ratio; descending
	Seed       uint64
	// Stop ends a repeat's ramp once it holds of an outcome; nil: never.
	Stop func(vitrine.Outcome) bool
}
