package rate

import (
	"math"
	"slices"
)

// ascend finds the rates at which one deployment of a stateful function crosses
// each threshold. The first overload ends it, because an overload lingers. So it
// goes up by single steps, and the trials near the capacity are long: none can be
// repeated for longer afterwards.
func (c *campaign) ascend(d *deployment) bool {
	step := c.ascentStep()
	known := slices.Sorted(slices.Values(c.samples(c.climbs, 0).values))
	bottom, top := math.Log(c.cfg.Min), math.Log(c.ceiling.rate)
	x, why := max(c.foot(known)-(1+d.shift())*step, bottom), "a fresh deployment, below the capacity"
	for range mostOnOne {
		r, ok := c.measure(d, c.round(math.Exp(x)), c.isClose(x, known, step), why)
		if !ok {
			return false
		}
		top = min(top, math.Log(c.ceiling.rate))
		if !r.valid || r.success < c.lowest() || r.x > top-rounding {
			return true
		}
		x, why = min(above(r.x, known, step), top), "higher on this deployment, because it passed"
	}
	return true
}

// foot returns the logarithm of the rate that ascents start one to two steps below.
func (c *campaign) foot(known []float64) float64 {
	lowest := c.guess
	if len(known) >= deploymentsToTell {
		lowest = known[0]
	} else if len(known) > 0 {
		lowest = min(lowest, known[0])
	}
	return lowest - c.lead
}

// above returns the rate after x. Between two groups of samples, such as those of
// two states, it skips the rates at which no deployment has failed.
func above(x float64, known []float64, step float64) float64 {
	next := x + step
	if at, _ := slices.BinarySearch(known, x); len(known) >= deploymentsToTell && at < len(known) {
		next = max(next, known[at]-2*step)
	}
	return next
}

// isClose reports whether a deployment may fail at x, judging by the samples.
func (c *campaign) isClose(x float64, known []float64, step float64) bool {
	return len(known) < deploymentsToTell || slices.ContainsFunc(known, func(v float64) bool { return v < x+1.5*step })
}

// ascentStep returns the distance between the rates of an ascent: that of a climb,
// but two states of deployments do not make it wider.
func (c *campaign) ascentStep() float64 {
	step, _ := c.steps()
	if m, two := mixtureOf(c.samples(c.climbs, 0).values, c.cfg.precision()); two {
		step = max(c.cfg.precision(), m.sd)
	}
	return step
}

// tooHigh reports whether a deployment failed where its ascent began. Then its
// capacity is not known, and deployments that carry little are missing from the
// samples: ascents start again, from lower rates.
func (c *campaign) tooHigh(d *deployment) bool {
	const lowest = 1.5 // lead, as a logarithm
	if !c.cfg.Stateful || len(d.trials) == 0 || d.trials[0].x < math.Log(c.cfg.Min)+rounding {
		return false
	}
	first := slices.MinFunc(d.trials, func(a, b reading) int { return int(math.Copysign(1, a.x-b.x)) })
	return first.success < c.cfg.Thresholds[0] && c.lead < lowest
}
