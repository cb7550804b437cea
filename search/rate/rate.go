// Package rate decides which rate to offer next, and says what capacity the
// trials show. It is pure: no clock, no I/O, no goroutine; the same history,
// configuration and seed give the same step, so that a resumed run replays it.
package rate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"vitrine"
)

// A Step is the next trial of one sizing, or the end of its search.
type Step struct {
	Rate     float64
	Duration time.Duration // of the window
	Repeat   int           // 1, 2, ...
	Restart  bool          // deploy afresh before this trial: it is the first of its repeat
	Settle   time.Duration // let the function rest at least this long before the trial; 0: as the workload says
	Done     bool          // no more trials
	Why      string        // always set: why this rate, or why it is done
}

// A Search decides the next step from the trials of one sizing so far, in the
// order in which they ran. Invalid outcomes are in the history too: the search
// asks for the same rate again, for up to Config.Attempts trials.
type Search interface {
	Next(history []vitrine.Outcome) Step
}

// An Estimator is a Search with its own estimate, because its trials are not of
// one length, or not spread over the range as Estimate expects.
type Estimator interface {
	// Estimate returns the capacity for each of Config.Thresholds.
	Estimate(history []vitrine.Outcome) []vitrine.Capacity
}

// A Planner is a Search that knows in advance how many trials it may take.
type Planner interface {
	// Trials returns how many trials the search takes when none is invalid:
	// exactly for a ramp that does not stop early, roughly for the others.
	Trials() int
}

// A Config is what the workload says about the rates.
type Config struct {
	Min, Max float64 // the workload's range
	// Increase is the step between rates: a ramp rises by it, and a bisection
	// stops at it. A bisection without it works to 2% of the rate.
	Increase   float64
	Duration   time.Duration // of the window of a trial
	Repeat     int           // fresh deployments
	Thresholds []float64     // of the success ratio, 0..1; descending
	Seed       uint64        // for the bootstrap of the interval
	Attempts   int           // trials of a rate while they are invalid; 0: 3
	// Precision is the widest acceptable interval, as a share of the capacity,
	// and Confidence the probability that it holds the capacity; 0:
	// defaultPrecision, confidence.
	Precision, Confidence float64
	// Overhead is the expected time of a trial outside its window (warm-up, settling).
	// The adaptive search counts it as load when it chooses how long a function rests
	// after an overload.
	Overhead time.Duration
	// Stateful says that an overload lingers in the function. Searches then do
	// not begin at the top, and adaptive deploys afresh after a trial that
	// failed.
	Stateful bool
	// Prior is the capacity that neighbouring sizes suggest; zero: none.
	Prior Prior
	// Stop ends a repeat of a ramp when it returns true for a valid outcome; nil:
	// never.
	Stop func(vitrine.Outcome) bool
}

// A Prior is a belief about the capacity at the first threshold, before any
// trial: a guess, not a bound.
type Prior struct{ Low, High float64 }

const (
	defaultPrecision  = 0.05
	defaultAttempts   = 3
	defaultResolution = 0.02    // of the rate, when there is no Increase
	mostRates         = 100_000 // far more than anyone has time to try
	stepTolerance     = 1e-9    // of a step: tolerance for rounding at the last one
)

// Check returns an error that says what is wrong with the configuration, or nil.
// A search with a wrong configuration is done at once and says why.
func (c Config) Check() error {
	switch {
	case !(c.Min > 0) || math.IsInf(c.Max, 0) || !(c.Max >= c.Min):
		return fmt.Errorf("range [%g, %g]: want two positive rates, the lower one first", c.Min, c.Max)
	case !(c.Increase >= 0) || math.IsInf(c.Increase, 0):
		return fmt.Errorf("increase %g: want a positive rate", c.Increase)
	case c.count() > mostRates:
		return fmt.Errorf("range [%g, %g] has more than %d rates at an increase of %g: raise the increase",
			c.Min, c.Max, mostRates, c.Increase)
	case c.Duration <= 0:
		return fmt.Errorf("duration %s: want a positive time", c.Duration)
	case c.Repeat < 1:
		return fmt.Errorf("repeat %d: want at least 1", c.Repeat)
	case c.Attempts < 0:
		return fmt.Errorf("attempts %d: want at least 1", c.Attempts)
	case len(c.Thresholds) == 0:
		return errors.New("no threshold: want at least one success ratio, such as 0.9")
	}
	for _, t := range c.Thresholds {
		if !(t > 0 && t <= 1) {
			return fmt.Errorf("threshold %g: want a success ratio above 0 and at most 1", t)
		}
	}
	return nil
}

func (c Config) attempts() int { return cmp.Or(c.Attempts, defaultAttempts) }

func (c Config) confidence() float64 { return cmp.Or(c.Confidence, confidence) }

func (c Config) precision() float64 { return cmp.Or(c.Precision, defaultPrecision) }

// count returns the number of rates on the grid. It is a float because it may be
// huge.
func (c Config) count() float64 {
	switch {
	case c.Max == c.Min:
		return 1
	case c.Increase == 0:
		return math.Ceil(math.Log(c.Max/c.Min)/math.Log1p(defaultResolution)) + 1
	default:
		return math.Floor((c.Max-c.Min)/c.Increase+stepTolerance) + 1
	}
}

// rates returns the grid of the ramp and the bisection: Min, Min+Increase, ... up
// to Max, which is included when the increase divides the range. Without an
// increase, the steps are equal ratios of at most 1.02, and Max is the last. So
// trials of all thresholds and repeats meet at the same rates.
func (c Config) rates() []float64 {
	rates := make([]float64, int(c.count()))
	last := float64(len(rates) - 1)
	for k := range rates {
		if c.Increase == 0 && last > 0 {
			rates[k] = tidy(c.Min * math.Pow(c.Max/c.Min, float64(k)/last))
		} else {
			rates[k] = tidy(c.Min + float64(k)*c.Increase)
		}
	}
	return rates
}

// tidy removes binary rounding from a rate: 0.1+2*0.1 becomes 0.3.
func tidy(rate float64) float64 {
	text := strconv.FormatFloat(rate, 'g', 12, 64)
	tidied, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return rate
	}
	return tidied
}

// counts reports whether the outcome says anything about the function: it is
// valid, and calls were due.
func counts(o vitrine.Outcome) bool { return o.Valid && o.Scheduled > 0 }

// reason returns why an outcome does not count.
func reason(o vitrine.Outcome) string {
	switch {
	case o.Reason != "":
		return o.Reason
	case o.Valid:
		return "no call was due in the window"
	default:
		return "no reason given"
	}
}

// LoadSeconds returns for how many seconds the trials offered load, including
// invalid trials and without warm-ups.
func LoadSeconds(history []vitrine.Outcome) float64 {
	var total time.Duration
	for _, o := range history {
		total += o.Duration
	}
	return total.Seconds()
}
