package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// How the calls of a trial arrive: the values of the parameter "arrivals" of the
// built-in generators.
const (
	Paced   = "paced"   // evenly, which flatters a function: no two calls come at once
	Poisson = "poisson" // at random and independently of each other, as those of many users do
)

// A Schedule gives the times at which a trial's calls are due, in order and
// from the beginning of the window; calls due before 0 warm up. It is the same
// for the same trial, and keeps nothing of what it has given.
type Schedule struct {
	pace     pace
	end      time.Duration // of the window
	next     float64       // place of the next call on the pace
	calls    float64       // paced: the place of the first call after the window
	arrivals *rand.Rand    // nil: paced
}

// Schedule is the trial's schedule, paced or Poisson. Over the first half of the
// warm-up the rate rises, for a function that was just deployed and is driven at
// its capacity at once may drop nearly all for longer than a trial lasts. A
// Poisson process has exponential gaps, drawn from the trial's seed; so the
// number of its calls varies from seed to seed by the square root of their mean.
func (t Trial) Schedule(arrivals string) *Schedule {
	return t.schedule(pace{rate: t.Rate, hold: t.Warmup / 2, rise: t.Warmup / 2}, arrivals)
}

// Steady is the paced schedule of a generator that knows one rate only: the
// warm-up has the rate from its beginning.
func (t Trial) Steady() *Schedule {
	return t.schedule(pace{rate: t.Rate, hold: t.Warmup}, Paced)
}

func (t Trial) schedule(p pace, arrivals string) *Schedule {
	s := &Schedule{pace: p, end: time.Duration(t.Duration * float64(time.Second))}
	if arrivals != Poisson {
		first, end := p.calls(t.Duration)
		s.next, s.calls = float64(first), float64(end)
		return s
	}
	// The numbers of the source are the schedule's own: others that the generator
	// draws from the seed leave it as it is.
	const stream = 0x61727269 // "arri"
	s.arrivals = rand.New(rand.NewPCG(t.Seed, stream))
	s.next = -p.warmups() + s.arrivals.ExpFloat64()
	return s
}

// Next is when the next call is due; false: the window has no more.
func (s *Schedule) Next() (due time.Duration, ok bool) {
	due = s.pace.at(s.next)
	if s.arrivals == nil {
		if s.next >= s.calls {
			return 0, false
		}
		s.next++
		return due, true
	}
	if due >= s.end {
		return 0, false
	}
	s.next += s.arrivals.ExpFloat64()
	return due, true
}

// A pace maps the place of a call to its time: place 0 is the beginning of the
// window, and places below 0 warm up. A Poisson process of one call a place
// becomes one of the pace's rate (time change).
type pace struct {
	rate float64 // calls per second, whole or not
	hold float64 // seconds before the window that have the window's rate
	rise float64 // seconds before those, in which the rate rises evenly from 0
}

// at is when a place is due, from the beginning of the window.
func (p pace) at(place float64) time.Duration {
	if early := -place - p.rate*p.hold; early > 0 && p.rise > 0 {
		// So many calls before the rate is reached: s seconds before that,
		// early = rate x (s - s^2 / (2 rise)).
		s := p.rise * (1 - math.Sqrt(max(0, 1-2*early/(p.rate*p.rise))))
		return -time.Duration((p.hold + s) * float64(time.Second))
	}
	// Whole seconds and the rest apart, so that a day at a high rate stays exact
	// to the nanosecond.
	whole, part := math.Modf(place / p.rate)
	return time.Duration(whole)*time.Second + time.Duration(math.Round(part*float64(time.Second)))
}

// warmups is how many calls the warm-up has, whole or not.
func (p pace) warmups() float64 { return (p.hold + p.rise/2) * p.rate }

// calls says which whole places a trial of so many seconds has: first is 0 or
// below (warm-up), and those from 0 to end-1 are due inside the window.
func (p pace) calls(duration float64) (first, end int64) {
	const slack = 1e-9 // 0.3 s at 10 a second is 3 calls, whatever binary fractions say
	return -int64(math.Floor(p.warmups() + slack)), int64(math.Ceil(duration*p.rate - slack))
}
