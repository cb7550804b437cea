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
	Settle   time.Duration // let the function rest at least so long before it; 0: as the workload says
	Done     bool          // no more trials
	Why      string        // always said: why this rate, or why it is done
}

// A Search decides the next step from the trials so far of one sizing, in the
// order in which they were run. Invalid outcomes are in the history too: the
// search asks for the same rate again until Config.Attempts of them are.
type Search interface {
	Next(history []vitrine.Outcome) Step
}

// An Estimator is a Search with an estimate of its own, for its trials are not
// of one length or not spread over the range as Estimate wants them.
type Estimator interface {
	// Estimate is the capacity for each of Config.Thresholds.
	Estimate(history []vitrine.Outcome) []vitrine.Capacity
}

// A Planner is a Search that knows ahead how many trials it may take.
type Planner interface {
	// Trials is how many trials the search takes when none is invalid: as many
	// for a ramp that does not stop early, about as many for the others.
	Trials() int
}

// A Config is what the workload says about the rates.
type Config struct {
	Min, Max float64 // the workload's range, both offered
	// Increase is the step between rates: what a ramp rises by and what a
	// bisection stops at. A bisection without one works to 2% of the rate.
	Increase   float64
	Duration   time.Duration // of the window of a trial
	Repeat     int           // fresh deployments
	Thresholds []float64     // of the success ratio, 0..1; descending
	Seed       uint64        // of the interval's resampling
	Attempts   int           // how often a rate is tried while its trials are invalid; 0: 3
	// Precision is how wide the interval may be, as a share of the capacity, and
	// Confidence how sure it is to hold it; 0: defaultPrecision, confidence.
	Precision, Confidence float64
	// Overhead is what a trial is thought to cost beside its window (warm-up,
	// settling) until outcomes say what theirs cost; it makes long trials worth more.
	Overhead time.Duration
	// Stateful says that an overload lingers in the function: a search does not
	// begin at the top, and starts afresh after a trial that failed.
	Stateful bool
	// Prior is where neighbours already measured put the capacity; zero: nowhere.
	Prior Prior
	// Stop ends a repeat's ramp once it holds of a valid outcome; nil: never.
	Stop func(vitrine.Outcome) bool
}

// A Prior is a belief about the capacity at the first threshold, before any
// trial: a guess of where it is, not a bound.
type Prior struct{ Low, High float64 }

const (
	defaultPrecision  = 0.05
	defaultAttempts   = 3
	defaultResolution = 0.02    // of the rate, when there is no Increase
	mostRates         = 100_000 // far beyond what anyone has time to try
	steps             = 1e-9    // of a step: what rounding may take from the last one
)

// Check says what is wrong with the configuration; nil: nothing. A search made
// from a wrong one is done at once and says why.
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

// count is how many rates lie on the grid; a float, for it may be huge.
func (c Config) count() float64 {
	switch {
	case c.Max == c.Min:
		return 1
	case c.Increase == 0:
		return math.Ceil(math.Log(c.Max/c.Min)/math.Log1p(defaultResolution)) + 1
	default:
		return math.Floor((c.Max-c.Min)/c.Increase+steps) + 1
	}
}

// rates is the grid that every search works on: Min, Min+Increase, ... up to
// Max, which is among them when the increase divides the range. Without an
// increase the steps are equal ratios of at most 1.02 and Max is the last.
// Trials of all thresholds and repeats thus meet at the same rates.
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

// tidy takes binary dust off a rate: 0.1+2*0.1 is asked for as 0.3.
func tidy(rate float64) float64 {
	text := strconv.FormatFloat(rate, 'g', 12, 64)
	tidied, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return rate
	}
	return tidied
}

// counts says whether the outcome says anything about the function: it is
// valid, and something was asked of the function.
func counts(o vitrine.Outcome) bool { return o.Valid && o.Scheduled > 0 }

// reason is why an outcome does not count.
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

// LoadSeconds is the time, in seconds, that the trials offered load for:
// invalid ones too, warm-ups not.
func LoadSeconds(history []vitrine.Outcome) float64 {
	var total time.Duration
	for _, o := range history {
		total += o.Duration
	}
	return total.Seconds()
}
