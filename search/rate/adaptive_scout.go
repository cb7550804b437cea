package rate

import "math"

// scout looks for a rate that passes and a higher one that fails, close to each
// other, in short trials. It replaces a deployment that fails, so that no
// overload lingers.
func (c *campaign) scout() bool {
	const most, near = 40, 1.2
	low, high := 0.0, math.Inf(1) // highest rate that passed, lowest that failed
	d := c.deploy()
	at, why := c.first()
	for range most {
		at = c.round(at)
		r, ok := c.trial(at, c.cfg.Duration, why)
		if !ok {
			return false
		}
		switch {
		case !r.valid && low == 0 && (c.ceiling.final || at <= c.cfg.Min) && (at <= c.cfg.Min || c.ceiling.rate <= c.cfg.Min):
			c.end("no trial was valid: " + r.reason)
			return false
		case !r.valid:
		case r.success >= c.cfg.Thresholds[0]:
			low = max(low, at)
			d.trials = append(d.trials, r)
		default:
			high = min(high, at)
			d.trials = append(d.trials, r)
			d = c.deploy()
		}
		if guess, found := c.found(low, high, near); found {
			c.guess = math.Log(guess)
			return true
		}
		at, why = c.further(low, high, r)
	}
	c.guess = math.Log(at)
	return true
}

// found reports whether scouting is over, and returns where the capacity is then.
func (c *campaign) found(low, high, near float64) (rate float64, over bool) {
	switch {
	case low >= c.ceiling.rate*(1-rounding):
		return c.ceiling.rate, true
	case high <= c.cfg.Min*(1+rounding):
		return c.cfg.Min, true
	case low > 0 && high <= near*low:
		return math.Sqrt(low * high), true
	}
	return 0, false
}

// first returns where scouting begins.
func (c *campaign) first() (rate float64, why string) {
	if p := c.cfg.Prior; p.Low > 0 && p.High >= p.Low {
		return min(max(math.Sqrt(p.Low*p.High), c.cfg.Min), c.cfg.Max), "where the neighbours' capacities are"
	}
	const middle, careful = 0.5, 0.35 // of the range, in the logarithm
	share := middle
	if c.cfg.Stateful {
		share = careful
	}
	return c.cfg.Min * math.Pow(c.cfg.Max/c.cfg.Min, share), "inside the range, because nothing is known"
}

// further returns the next rate to scout. If the function keeps its goodput, what
// succeeded in an overload shows where the capacity is.
func (c *campaign) further(low, high float64, last reading) (rate float64, why string) {
	const up, down, apart = 2, 6, 1.05
	step := float64(up)
	if c.cfg.Prior.Low > 0 {
		step = math.Sqrt(up)
	}
	goodput := last.rate * last.success / c.cfg.Thresholds[0]
	switch {
	case low == 0 && math.IsInf(high, 1): // nothing valid yet
		return c.ceiling.rate, "lower, because the rate could not be offered"
	case math.IsInf(high, 1):
		return min(low*step, c.ceiling.rate), "higher, because all passed"
	case low == 0:
		return max(min(goodput, high/1.1), high/down, c.cfg.Min), "lower, because all failed"
	case last.valid && last.success < c.cfg.Thresholds[0] && goodput > apart*low && goodput < high/apart:
		return goodput, "as much as succeeded in the overload"
	}
	return math.Sqrt(low * high), "between the rates that passed and failed"
}
