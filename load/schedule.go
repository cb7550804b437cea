package load

import (
	"math"
	"math/rand/v2"
	"time"
)

// The values of the parameter "arrivals" of the built-in generators.
const (
	Paced   = "paced"   // at equal intervals; this flatters a function, because no two calls arrive together
	Poisson = "poisson" // at random and independently, as the calls of many users do
)

// A Schedule returns the due times of a trial's calls in order, relative to the start of the
// window. Calls due before 0 are the warm-up. The same trial always has the same schedule. A
// Schedule does not store the times.
type Schedule struct {
	pace     pace
	end      time.Duration // end of the window
	next     float64       // place of the next call on the pace
	calls    float64       // paced only: the place of the first call after the window
	arrivals *rand.Rand    // nil if paced
}

// Schedule returns the trial's schedule, paced or Poisson. The rate rises over the first half of
// the warm-up, because a function that is driven at its capacity right after its deployment may
// drop nearly all calls for longer than a trial lasts. A Poisson process has exponential gaps,
// drawn from the trial's seed. The standard deviation of its number of calls, over seeds, is the
// square root of the mean.
func (t Trial) Schedule(arrivals string) *Schedule {
	return t.schedule(pace{rate: t.Rate, hold: t.Warmup / 2, rise: t.Warmup / 2}, arrivals)
}

// Steady returns the paced schedule of a generator that supports only one rate: the whole warm-up
// has the window's rate.
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
	// The schedule has its own random stream, so that other random numbers of the generator do not
	// change it.
	const stream = 0x61727269 // "arri"
	s.arrivals = rand.New(rand.NewPCG(t.Seed, stream))
	s.next = -p.warmups() + s.arrivals.ExpFloat64()
	return s
}

// MostOpen returns how many calls are open at once, if a call stays open for at most lasting.
// Poisson arrivals exceed it in about one second of three million.
func MostOpen(arrivals string, rate float64, lasting time.Duration) float64 {
	open := rate * lasting.Seconds() // the mean
	most := math.Ceil(open) + 1
	if arrivals == Poisson {
		const deviations = 5
		most += math.Ceil(deviations * math.Sqrt(open))
	}
	return most
}

// Next returns the due time of the next call. ok is false at the end of the window.
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

// A pace maps the place of a call to its time. Place 0 is the start of the window, and places
// below 0 are the warm-up. It converts a Poisson process with one call per place to a process with
// the pace's rate (time change).
type pace struct {
	rate float64 // calls per second, may be a fraction
	hold float64 // seconds before the window with the window's rate
	rise float64 // seconds before hold, over which the rate rises linearly from 0
}

// at returns the due time of a place, relative to the start of the window.
func (p pace) at(place float64) time.Duration {
	if early := -place - p.rate*p.hold; early > 0 && p.rise > 0 {
		// early counts calls back from the end of the rise. The call is due s
		// seconds before that end, where early = rate x (s - s^2 / (2 rise)).
		s := p.rise * (1 - math.Sqrt(max(0, 1-2*early/(p.rate*p.rise))))
		return -time.Duration((p.hold + s) * float64(time.Second))
	}
	// Converting whole seconds and the fraction separately keeps a day at a high rate exact to the
	// nanosecond.
	whole, part := math.Modf(place / p.rate)
	return time.Duration(whole)*time.Second + time.Duration(math.Round(part*float64(time.Second)))
}

// warmups returns the number of calls in the warm-up, which may be a fraction.
func (p pace) warmups() float64 { return (p.hold + p.rise/2) * p.rate }

// calls returns the range of whole places in a trial of duration seconds. first
// is 0 or below (warm-up). Places from 0 to end-1 are due inside the window.
func (p pace) calls(duration float64) (first, end int64) {
	const slack = 1e-9 // 0.3 s at 10 a second is 3 calls, despite binary fractions
	return -int64(math.Floor(p.warmups() + slack)), int64(math.Ceil(duration*p.rate - slack))
}
