package load

import (
	"math"
	"time"
)

// A Pace is the fixed schedule of a trial's calls. Call 0 is due when the window
// begins, and from then on the rate is constant; calls below 0 warm up.
type Pace struct {
	rate float64 // calls per second, whole or not
	hold float64 // seconds before the window that have the window's rate
	rise float64 // seconds before those, in which the rate rises evenly from 0
}

// Pace is the schedule of a trial: over the first half of the warm-up the rate
// rises, for a function that was just deployed and is driven at its capacity at
// once may drop nearly all for longer than a trial lasts.
func (t Trial) Pace() Pace { return Pace{rate: t.Rate, hold: t.Warmup / 2, rise: t.Warmup / 2} }

// Steady is the schedule for a generator that knows one rate only.
func (t Trial) Steady() Pace { return Pace{rate: t.Rate, hold: t.Warmup} }

// At is when call n is due, from the beginning of the window.
func (p Pace) At(n int64) time.Duration {
	if early := -float64(n) - p.rate*p.hold; early > 0 && p.rise > 0 {
		// So many calls before the rate is reached: s seconds before that,
		// early = rate x (s - s^2 / (2 rise)).
		s := p.rise * (1 - math.Sqrt(max(0, 1-2*early/(p.rate*p.rise))))
		return -time.Duration((p.hold + s) * float64(time.Second))
	}
	// Whole seconds and the rest apart, so that a day at a high rate stays exact
	// to the nanosecond.
	whole, part := math.Modf(float64(n) / p.rate)
	return time.Duration(whole)*time.Second + time.Duration(math.Round(part*float64(time.Second)))
}

// Calls says which calls a trial of so many seconds has: first is 0 or below
// (warm-up), and those from 0 to end-1 are due inside the window.
func (p Pace) Calls(duration float64) (first, end int64) {
	const slack = 1e-9 // 0.3 s at 10 a second is 3 calls, whatever binary fractions say
	return -int64(math.Floor((p.hold+p.rise/2)*p.rate + slack)), int64(math.Ceil(duration*p.rate - slack))
}
