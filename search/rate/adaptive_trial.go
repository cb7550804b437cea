package rate

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// deploy makes the next trial the first of a fresh deployment. A deployment
// without a trial is fresh.
func (c *campaign) deploy() *deployment {
	if n := len(c.deployments); n > 0 && !c.ran(c.number()) {
		return c.deployments[n-1]
	}
	number := 1
	if c.at > 0 {
		number = c.readings[c.at-1].repeat + 1
	}
	d := &deployment{number: number}
	c.deployments = append(c.deployments, d)
	c.drained = 0
	return d
}

// ran reports whether the last outcome consumed is of this deployment.
func (c *campaign) ran(number int) bool { return c.at > 0 && c.readings[c.at-1].repeat == number }

// trial offers the rate once to the current deployment, and again while the trial
// is invalid. If no attempt was valid, the reading is not valid. It returns false
// when the history ends; next is set then.
func (c *campaign) trial(rate float64, window time.Duration, why string) (reading, bool) {
	d := c.deployments[len(c.deployments)-1]
	for tries := 1; ; tries++ {
		if c.at == len(c.readings) {
			c.next = Step{Rate: rate, Duration: window, Repeat: d.number, Restart: !c.ran(d.number), Why: why}
			if !c.next.Restart {
				c.next.Settle = c.drained
			}
			return reading{}, false
		}
		r := c.readings[c.at]
		c.at++
		if r.valid {
			c.drained = c.rest(r)
			return r, true
		}
		c.ceiling = findCeiling(c.cfg, c.history[:c.at])
		if tries >= c.cfg.attempts() || rate > c.ceiling.rate {
			return r, true
		}
		why = fmt.Sprintf("attempt %d of %d, because the last was invalid: %s", tries+1, c.cfg.attempts(), r.reason)
	}
}

// rest returns how long a function may still work on the calls that a trial left
// behind: as long as it takes to serve the failed calls, at the rate of the
// successful ones.
func (c *campaign) rest(r reading) time.Duration {
	const most = 5 * time.Second
	if r.success >= c.cfg.Thresholds[0] {
		return 0
	}
	loaded := r.duration + c.cfg.Overhead.Seconds()
	left := loaded * (1 - r.whole) / max(r.whole, 0.01)
	return min(time.Duration(left*float64(time.Second)).Round(time.Millisecond), most)
}

// measure offers the rate until a trial is steady, with at most three extensions.
func (c *campaign) measure(d *deployment, rate float64, long bool, why string) (reading, bool) {
	window := c.window(rate)
	if long {
		window = c.long(rate)
	}
	for n := 0; ; n++ {
		r, ok := c.trial(rate, window, why)
		if !ok {
			return r, false
		}
		if !r.valid {
			return r, true
		}
		unsteady := r.unsteady(c.cfg.Thresholds)
		if !unsteady || n == extensions {
			r.unresolved, r.verified = unsteady, long
			d.add(r)
			return r, true
		}
		window = c.atMost(2 * window)
		why = "longer, since calls in flight may still grow"
	}
}

// add keeps the reading in place of an earlier one at its rate, unless only the
// earlier one is of a long trial.
func (d *deployment) add(r reading) {
	for i, old := range d.trials {
		if math.Abs(old.x-r.x) < rounding {
			if old.verified && !r.verified {
				return
			}
			d.trials = slices.Delete(d.trials, i, i+1)
			break
		}
	}
	d.trials = append(d.trials, r)
}

// window returns how long a trial at the rate lasts: Config.Duration, or as long
// as it takes to tell the growth of a backlog, up to a limit.
func (c *campaign) window(rate float64) time.Duration {
	const longest = 8
	return min(max(c.cfg.Duration, c.needed(rate)), longest*c.cfg.Duration)
}

// long returns how long a trial lasts that shows slow backlogs and rare stalls.
func (c *campaign) long(rate float64) time.Duration {
	return c.atMost(max(c.timeForBacklog(rate), c.timeForStalls()))
}

// timeForBacklog returns how long a trial must be to show a backlog that grows slowly.
func (c *campaign) timeForBacklog(rate float64) time.Duration {
	const windows, needs = 3, 6
	return max(windows*c.window(rate), needs*c.needed(rate))
}

// timeForStalls returns how long a trial must be to see, more often than not, stalls of
// two seconds that cost as much as the precision.
func (c *campaign) timeForStalls() time.Duration {
	const stall = 2.4 // seconds
	return time.Duration(stall / c.cfg.precision() * float64(time.Second)).Round(time.Second)
}

// atMost limits how long a trial lasts.
func (c *campaign) atMost(window time.Duration) time.Duration {
	return min(window, longestWindow*c.cfg.Duration)
}

// needed returns how long it takes to tell the growth of a backlog of paced
// arrivals to the precision.
func (c *campaign) needed(rate float64) time.Duration {
	const calls, least = 9, 100 * time.Millisecond
	p := c.cfg.precision()
	return time.Duration(calls/(p*p*rate)*float64(time.Second)).Round(least) + least
}

// round rounds a rate to four digits, within the range.
func (c *campaign) round(rate float64) float64 {
	digits := math.Pow(10, math.Floor(math.Log10(rate))-3)
	return min(max(tidy(math.Round(rate/digits)*digits), c.cfg.Min), c.ceiling.rate)
}
