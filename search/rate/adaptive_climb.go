package rate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// gentle is the fall of success from a rate that passes to one that fails below
// which success between them is taken as straight.
const gentle = 0.2

// climb closes in on the rates at which one deployment crosses each threshold.
// A function in which overloads linger is only climbed upwards.
func (c *campaign) climb(d *deployment) bool {
	for range mostOnOne {
		x, why := c.ask(d)
		if why == "" {
			x, why = c.verify(d)
		}
		if why == "" && !c.recalls(d) {
			return true
		}
		if why == "" {
			x, why = d.first.x, again
		}
		r, ok := c.measure(d, c.round(math.Exp(x)), why)
		if !ok {
			return false
		}
		if !r.valid || c.cfg.Stateful && r.success < c.lowest() {
			return true
		}
		if d.first.valid && why == again {
			d.gain, d.recalled = r.success-d.first.success, true
		}
		if !d.first.valid {
			d.first = r
		}
	}
	return true
}

const again = "the first rate again, to see whether the deployment got better with use"

// recalls says whether a climb ends with its first rate once more.
func (c *campaign) recalls(d *deployment) bool {
	return !c.cfg.Stateful && !c.warmed && !d.recalled && len(c.climbs) < leastDeployments && len(c.after) == 0
}

// A bracket is what one deployment shows of a threshold: the highest rate that
// passed below the lowest that failed. Its rates are logarithms.
type bracket struct {
	low, high  float64
	passed     bool // low is a trial
	failed     bool // high is a trial
	pass, fail reading
}

func (d *deployment) bracket(threshold float64) bracket {
	var b bracket
	b.low, b.high = math.Inf(-1), math.Inf(1)
	for _, r := range d.trials {
		if r.fails(threshold) && r.x < b.high {
			b.high, b.failed, b.fail = r.x, true, r
		}
	}
	for _, r := range d.trials {
		if r.passes(threshold) && r.x < b.high && r.x > b.low {
			b.low, b.passed, b.pass = r.x, true, r
		}
	}
	return b
}

// drop is how much success falls across the bracket; 1 when that is not known.
func (b bracket) drop() float64 {
	if !b.passed || !b.failed || !b.fail.exact {
		return 1
	}
	return b.pass.success - b.fail.success
}

// verify is the next rate to offer to a deployment whose thresholds are all
// crossed, and why; empty: nothing is left in doubt. Where success falls steeply,
// a rate that passes may be too high for calls that wait: their backlog shows in
// a long trial only.
func (c *campaign) verify(d *deployment) (x float64, why string) {
	for _, threshold := range c.cfg.Thresholds {
		b := d.bracket(threshold)
		if b.passed && b.failed && b.drop() > gentle && !b.pass.verified && !c.cfg.Stateful && !c.gentle(threshold) {
			d.thorough = true
			return b.low, "for longer, since success falls steeply above"
		}
	}
	return 0, ""
}

// rounding is how far, as a logarithm, a rate may be from what was asked for.
const rounding = 1e-3

// ask is the next rate for the deployment, as a logarithm, and why; empty: all
// thresholds are crossed.
func (c *campaign) ask(d *deployment) (x float64, why string) {
	step, fine := c.steps()
	bottom, top := math.Log(c.cfg.Min), math.Log(c.ceiling.rate)
	for i, threshold := range c.cfg.Thresholds {
		b := d.bracket(threshold)
		switch {
		case !d.near(c.center(i), step) && i == 0:
			return min(max(c.begin(d, step), bottom), top), "a fresh deployment, near the capacity"
		case !b.passed && b.failed && b.high > bottom+rounding:
			return max(b.high-step*d.stride(threshold, c.center(i), false), bottom), "lower on this deployment, for it failed"
		case !b.failed && b.passed && b.low < top-rounding:
			next := b.low + step*d.stride(threshold, c.center(i), true)
			if i > 0 {
				next = max(next, c.center(i)-step/2)
			}
			return min(next, top), "higher on this deployment, for it passed"
		case b.passed && b.failed && b.drop() > gentle && b.high-b.low > fine*(1+1e-6) && !c.gentle(threshold):
			return (b.low + b.high) / 2, "between the rates that passed and failed on this deployment"
		}
	}
	return 0, ""
}

// gentle says that success is known to fall gently, so that a trial far off the
// line is chance.
func (c *campaign) gentle(threshold float64) bool {
	const known = 3 // deployments
	return len(c.climbs) >= known && falls(c.climbs, threshold)
}

// near says whether a trial is within a step of x.
func (d *deployment) near(x, step float64) bool {
	return slices.ContainsFunc(d.trials, func(r reading) bool { return math.Abs(r.x-x) < 2.5*step })
}

// stride is how many steps to go on, doubling with each trial of one kind that
// is already beyond the center.
func (d *deployment) stride(threshold, center float64, passing bool) float64 {
	n := 0
	for _, r := range d.trials {
		if r.passes(threshold) == passing && (r.x > center) == passing {
			n++
		}
	}
	return math.Pow(2, float64(max(0, n-1)))
}

// begin is where a climb starts: a step at most below the center, another place
// for each deployment, so that the grid of rates does not bias their mean.
func (c *campaign) begin(d *deployment, step float64) float64 {
	const golden = 0.6180339887498949
	_, share := math.Modf(golden * float64(d.number))
	below := share
	if c.cfg.Stateful {
		below++
	}
	return c.center(0) - below*step
}

// steps are how far apart the rates of a climb are, and how close to each other
// those that pass and fail must come where success falls steeply. Both follow
// the spread between deployments.
func (c *campaign) steps() (step, fine float64) {
	const widest = 0.2
	p := c.cfg.precision()
	sd := 0.0
	if len(c.climbs) >= 3 {
		sd = c.samples(c.climbs, 0).deviation()
	}
	return min(max(p, sd), max(p, widest)), max(p, sd) / 4
}

// center is where the capacity is thought to be, as a logarithm.
func (c *campaign) center(i int) float64 {
	climbs := c.climbs
	if len(c.after) > 0 {
		climbs = c.after
	}
	if len(climbs) == 0 {
		return c.guess
	}
	return median(c.samples(climbs, i).values)
}

// cold says whether deployments get better with use, as caches and compilers
// do: the first rates succeeded better the second time, in the mean over
// deployments and beyond chance.
func cold(climbs []*deployment) bool {
	const least, sure = 0.01, 0.9 // of the success ratio; one-sided confidence
	var gains []float64
	for _, d := range climbs {
		if d.recalled {
			gains = append(gains, d.gain)
		}
	}
	n := float64(len(gains))
	if n < 3 {
		return false
	}
	mean, sd := stat.MeanStdDev(gains, nil)
	return mean > max(least, distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(sure)*sd/math.Sqrt(n))
}

// warm gives a deployment load before its climb.
func (c *campaign) warm() bool {
	const windows = 8
	rate := c.round(math.Exp(c.center(0)))
	window := min(windows*c.window(rate), longestWindow*c.cfg.Duration)
	_, ok := c.trial(rate, window, "warming up, since deployments get better with use")
	return ok
}

// overload runs one trial at well above the capacity of a fresh deployment.
func (c *campaign) overload() bool {
	rate := overloading * c.capacity(c.climbs, 0).Rate
	_, ok := c.trial(c.round(rate), c.cfg.Duration, "an overload, to see what it leaves behind")
	return ok
}

// overloading is the rate of an overload over the capacity.
const overloading = 1.3

// contrast measures at half the capacity and past it, for the report sets both
// beside the capacity, and says whether an overload lingers: whether a rate
// that passes before fails after, on two deployments.
func (c *campaign) contrast() (lingers, ok bool) {
	s := c.samples(c.climbs, 0)
	if s.below {
		return false, true
	}
	step, _ := c.steps()
	capacity := c.capacity(c.climbs, 0)
	safe := c.round(min(capacity.Low, capacity.Rate*math.Exp(-step-s.deviation())))
	for range 2 {
		d := c.deploy()
		if !c.underloaded(capacity.Rate) {
			if _, ok = c.trial(c.round(capacity.Rate/2), c.cfg.Duration, "half the capacity, for contrast"); !ok {
				return false, false
			}
		}
		if s.above || overloading*capacity.Rate > c.ceiling.rate {
			return false, true
		}
		before, ok := c.measure(d, safe, "below the capacity, before an overload")
		if !ok || before.valid && !before.passes(c.cfg.Thresholds[0]) {
			return false, ok
		}
		if !c.overload() {
			return false, false
		}
		if c.cfg.Stateful { // only a fresh deployment ends an overload, as the user says
			return false, true
		}
		after, ok := c.measure(&deployment{}, safe, "below the capacity, after the overload")
		if !ok || !after.fails(c.cfg.Thresholds[0]) {
			return false, ok
		}
	}
	return true, true
}

// underloaded says whether a trial at about half the rate is there.
func (c *campaign) underloaded(rate float64) bool {
	return slices.ContainsFunc(c.readings[:c.at], func(r reading) bool {
		return r.valid && r.rate > 0.35*rate && r.rate < 0.65*rate
	})
}
