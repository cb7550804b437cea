package rate

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// deploy makes the next trial the first of a fresh deployment. A deployment
// that ran no trial yet is fresh.
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

// ran says whether the last outcome consumed is of this deployment.
func (c *campaign) ran(number int) bool { return c.at > 0 && c.readings[c.at-1].repeat == number }

// trial offers the rate once to the current deployment, and again while the
// trial is invalid. It returns a reading that is not valid when no attempt was,
// and false when the history ends; next is set then.
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
			c.drained = 0
			if r.success < c.cfg.Thresholds[0] {
				c.drained = rest
			}
			return r, true
		}
		c.ceiling = findCeiling(c.cfg, c.history[:c.at])
		if tries >= c.cfg.attempts() || rate > c.ceiling.rate {
			return r, true
		}
		why = fmt.Sprintf("attempt %d of %d, for the last was invalid: %s", tries+1, c.cfg.attempts(), r.reason)
	}
}

// rest lets a function finish the calls that an overload left behind.
const rest = 5 * time.Second

// measure offers the rate until a trial is steady, three extensions at most.
func (c *campaign) measure(d *deployment, rate float64, why string) (reading, bool) {
	window := c.window(rate)
	if d.thorough {
		window = min(thorough*window, longestWindow*c.cfg.Duration)
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
			r.unresolved = unsteady
			d.add(r)
			return r, true
		}
		window = min(2*window, longestWindow*c.cfg.Duration)
		why = "longer, since calls in flight may still grow"
	}
}

// thorough is how many times longer trials are that verify a rate.
const thorough = 6

// add keeps the reading, in place of an earlier one at its rate.
func (d *deployment) add(r reading) {
	for i, old := range d.trials {
		if math.Abs(old.x-r.x) < rounding {
			d.trials = slices.Delete(d.trials, i, i+1)
			break
		}
	}
	r.verified = d.thorough
	d.trials = append(d.trials, r)
}

// window is how long a trial at the rate lasts: Config.Duration, or as long as
// it takes to tell the growth of a backlog of paced arrivals to the precision.
func (c *campaign) window(rate float64) time.Duration {
	const calls, longest = 9, 8
	p := c.cfg.precision()
	needed := time.Duration(math.Ceil(calls/(p*p*rate))) * time.Second
	return min(max(c.cfg.Duration, needed), longest*c.cfg.Duration)
}

// round takes a rate to four digits, within the range.
func (c *campaign) round(rate float64) float64 {
	digits := math.Pow(10, math.Floor(math.Log10(rate))-3)
	return min(max(tidy(math.Round(rate/digits)*digits), c.cfg.Min), c.ceiling.rate)
}
