package load

import (
	"math"
	"time"
)

// A Pace is a fixed schedule of calls at a constant rate, in calls per second,
// whole or not. Call 0 is due when the window begins; calls below 0 warm up.
type Pace float64

// At is when call n is due, from the beginning of the window.
func (p Pace) At(n int64) time.Duration {
	// Whole seconds and the rest apart, so that a day at a high rate stays exact
	// to the nanosecond.
	whole, part := math.Modf(float64(n) / float64(p))
	return time.Duration(whole)*time.Second + time.Duration(math.Round(part*float64(time.Second)))
}

// Calls says which calls a trial has: first is 0 or below (warm-up), and those
// from 0 to end-1 are due inside the window.
func (p Pace) Calls(warmup, duration float64) (first, end int64) {
	const slack = 1e-9 // 0.3 s at 10 a second is 3 calls, whatever binary fractions say
	return -int64(math.Floor(warmup*float64(p) + slack)), int64(math.Ceil(duration*float64(p) - slack))
}
