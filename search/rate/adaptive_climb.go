package rate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// climb closes in on the rates at which one deployment crosses each threshold.
func (c *campaign) climb(d *deployment) bool {
	if c.cfg.Stateful {
		return c.ascend(d)
	}
	d.thorough = c.slow()
	for range mostOnOne {
		want, more := c.wants(d)
		if !more {
			return true
		}
		rate := c.round(math.Exp(want.x))
		long := d.thorough && !want.recall || !d.first.valid && c.timeForBacklog(rate) < c.timeForStalls()
		r, ok := c.measure(d, rate, long, want.why)
		if !ok {
			return false
		}
		if !r.valid {
			return true
		}
		d.learn(want, r)
	}
	return true
}

// A want is the trial that a climb needs next.
type want struct {
	x      float64 // logarithm of the rate
	why    string
	verify float64 // success of the trial that this one repeats for longer; 0: it repeats none
	recall bool    // it repeats the first trial of the climb
}

// wants returns the trial that the climb needs next; false: none.
func (c *campaign) wants(d *deployment) (want, bool) {
	if w, more := c.crosses(d); more {
		return w, true
	}
	if w, more := c.verifies(d); more {
		return w, true
	}
	w := want{x: d.first.x, why: "the first rate again, to see whether the deployment got better with use", recall: true}
	return w, c.recalls(d)
}

// learn records the result of a wanted trial.
func (d *deployment) learn(w want, r reading) {
	switch {
	case !d.first.valid:
		d.first = r
	case math.Abs(r.x-d.first.x) < rounding:
		d.recalled, d.gain = true, r.success-d.first.success
	}
	if w.verify > 0 && !d.verified {
		d.verified, d.sag = true, w.verify-r.success
	}
}

// recalls reports whether the climb ends with its first rate once more: until it is
// decided whether deployments get better with use.
func (c *campaign) recalls(d *deployment) bool {
	if c.warmed || d.recalled || !d.first.valid || len(c.climbs) >= mostToTell || len(c.after) > 0 {
		return false
	}
	_, decided := c.cold()
	return !decided
}

// A bracket is the highest rate that passed below the lowest rate that failed, on
// one deployment and for one threshold. Its rates are logarithms.
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

// straight reports whether success falls so little across the bracket that the
// fall counts as a straight line. A function that keeps its goodput in overload
// falls by at most the width of the bracket. The limit is above that, because
// trials differ by chance.
func (b bracket) straight() bool {
	const least, chance = 0.2, 1.5
	return b.passed && b.failed && b.fail.exact && b.pass.success-b.fail.success <= max(least, chance*(b.high-b.low))
}

// verifies returns a longer trial at a rate that passed, on a deployment whose
// thresholds are all crossed. Where success falls steeply, that rate may be too
// high for calls that wait: only a long trial shows their backlog. Where it falls
// gently, the first deployments tell whether long trials show the same.
func (c *campaign) verifies(d *deployment) (want, bool) {
	for _, threshold := range c.cfg.Thresholds {
		b := d.bracket(threshold)
		if b.passed && b.failed && !b.pass.verified && !c.gentle(threshold) {
			d.thorough = true
			return want{x: b.low, why: "for longer, since overload may show late", verify: b.pass.success}, true
		}
	}
	return want{}, false
}

// rounding is how far, as a logarithm, a rate may be from the requested one.
const rounding = 1e-3

// crosses returns a trial that helps to cross a threshold.
func (c *campaign) crosses(d *deployment) (want, bool) {
	step, fine := c.steps()
	bottom, top := math.Log(c.cfg.Min), math.Log(c.ceiling.rate)
	for i, threshold := range c.cfg.Thresholds {
		b := d.bracket(threshold)
		switch {
		case !d.near(c.center(i), step) && i == 0:
			return want{x: min(max(c.begin(d, step), bottom), top), why: "a fresh deployment, near the capacity"}, true
		case !b.passed && b.failed && b.high > bottom+rounding:
			return want{x: max(b.high-max(step, d.first.x-b.high), bottom), why: "lower on this deployment, because it failed"}, true
		case !b.failed && b.passed && b.low < top-rounding:
			next := b.low + max(step, b.low-d.first.x)
			if i > 0 {
				next = max(next, c.center(i)-step/2)
			}
			return want{x: min(next, top), why: "higher on this deployment, because it passed"}, true
		case b.passed && b.failed && !b.straight() && b.high-b.low > fine*(1+1e-6) && !c.gentle(threshold):
			return want{x: (b.low + b.high) / 2, why: "between the rates that passed and failed on this deployment"}, true
		}
	}
	return want{}, false
}

// gentle reports whether success is known to fall gently, so that a trial far off
// the line is chance.
func (c *campaign) gentle(threshold float64) bool {
	return len(c.climbs) >= deploymentsToTell && falls(c.climbs, threshold)
}

// near reports whether a trial is within two and a half steps of x.
func (d *deployment) near(x, step float64) bool {
	return slices.ContainsFunc(d.trials, func(r reading) bool { return math.Abs(r.x-x) < 2.5*step })
}

// begin returns where a climb starts: at most a step below the center.
func (c *campaign) begin(d *deployment, step float64) float64 { return c.center(0) - d.shift()*step }

// shift returns by which part of a step the deployment's rates are moved. It
// differs between deployments, so that the grid of rates does not bias their mean.
func (d *deployment) shift() float64 {
	const golden = 0.6180339887498949
	_, share := math.Modf(golden * float64(d.number))
	return share
}

// steps returns the distance between the rates of a climb (step). It also returns
// how close the rates that pass and fail must come where success falls steeply
// (fine). Both follow the standard deviation between deployments.
func (c *campaign) steps() (step, fine float64) {
	const widest = 0.3
	p := c.cfg.precision()
	sd := 0.0
	if len(c.climbs) >= 3 {
		sd = c.samples(c.climbs, 0).deviation()
	}
	return min(max(p, sd), widest), max(p, sd) / 4
}

// center returns where the capacity is believed to be, as a logarithm.
func (c *campaign) center(i int) float64 {
	switch {
	case len(c.after) > 0:
		return median(c.samples(c.after, i).values)
	case len(c.climbs) > 0:
		return median(c.samples(c.climbs, i).values)
	}
	return c.guess
}

// cold reports whether deployments get better with use, as caches and compilers
// do: the first rates succeeded better the second time. decided says that more
// deployments need not tell: they do, or not by enough to matter.
func (c *campaign) cold() (cold, decided bool) {
	const (
		later     = 0.98 // one-sided confidence after the first three deployments, because the search looks after each
		tolerable = 0.4  // gain in success, as a share of the precision
	)
	var gains []float64
	for _, d := range c.climbs {
		if d.recalled {
			gains = append(gains, d.gain)
		}
	}
	n, sure := len(gains), likely
	if n < deploymentsToTell {
		return false, false
	}
	if n > deploymentsToTell {
		sure = later
	}
	mean, chance := meanWithin(gains, likely)
	cold = c.matters(gains, sure)
	return cold, cold || mean+chance < tolerable*c.cfg.precision()
}

// slow reports whether overload shows late although success falls gently: longer
// trials at the rates that passed succeeded worse. Then all trials are long.
func (c *campaign) slow() bool {
	var sags []float64
	for _, d := range c.climbs {
		if d.verified {
			sags = append(sags, d.sag)
		}
	}
	return c.gentle(c.cfg.Thresholds[0]) && c.matters(sags, likely)
}

// matters reports whether differences of success between trials, one from each
// deployment, exceed zero by more than chance (with the one-sided confidence) and,
// in the mean, a tenth of the precision. Success falls about as fast as rates rise,
// so the precision of rates serves as scale.
func (c *campaign) matters(differences []float64, sure float64) bool {
	const share = 0.1 // of the precision
	if len(differences) < deploymentsToTell {
		return false
	}
	mean, chance := meanWithin(differences, sure)
	return mean > max(share*c.cfg.precision(), chance)
}

// likely is the one-sided confidence of what the first deployments show.
const likely = 0.9

// meanWithin returns the mean and the distance to its one-sided bound.
func meanWithin(values []float64, sure float64) (mean, chance float64) {
	n := float64(len(values))
	mean, sd := stat.MeanStdDev(values, nil)
	return mean, distuv.StudentsT{Sigma: 1, Nu: n - 1}.Quantile(sure) * sd / math.Sqrt(n)
}

// warm gives a deployment load before its climb.
func (c *campaign) warm() bool {
	const windows = 8
	rate := c.round(math.Exp(c.center(0)))
	_, ok := c.trial(rate, c.atMost(windows*c.window(rate)), "warming up, since deployments get better with use")
	return ok
}

// overload runs one trial well above the capacity of a fresh deployment.
func (c *campaign) overload() bool {
	rate := overloading * c.capacity(c.climbs, 0).Rate
	_, ok := c.trial(c.round(rate), c.cfg.Duration, "an overload, to see what it leaves behind")
	return ok
}

// overloading is the rate of an overload divided by the capacity.
const overloading = 1.3

// contrast measures at half the capacity and past it, because the report shows
// both beside the capacity. It reports whether an overload lingers: whether a
// rate below the capacity fails after it. One deployment is enough to show that
// it does not: the last one climbed. Two fresh deployments must confirm that it
// does: the rate passes before an overload and fails after it.
func (c *campaign) contrast() (lingers, ok bool) {
	s := c.samples(c.climbs, 0)
	if s.below {
		return false, true
	}
	if c.cfg.Stateful {
		c.deploy()
	}
	capacity := c.capacity(c.climbs, 0)
	if !c.underloaded(capacity.Rate) {
		if _, ok := c.trial(c.round(capacity.Rate/2), c.cfg.Duration, "half the capacity, for contrast"); !ok {
			return false, false
		}
	}
	if s.above || overloading*capacity.Rate > c.ceiling.rate {
		return false, true
	}
	if c.cfg.Stateful { // the user says that only a fresh deployment ends an overload
		return false, c.overload()
	}
	step, _ := c.steps()
	safe := c.round(min(capacity.Low, capacity.Rate*math.Exp(-step-s.deviation())))
	lingers, ok = c.overloadLingers(safe)
	for n := 0; ok && lingers && n < 2; n++ {
		d := c.deploy()
		before, measured := c.measure(d, safe, false, "below the capacity, before an overload")
		if !measured || !before.passes(c.cfg.Thresholds[0]) {
			return false, measured
		}
		lingers, ok = c.overloadLingers(safe)
	}
	return lingers, ok
}

// overloadLingers overloads the current deployment and reports whether the safe
// rate fails after it.
func (c *campaign) overloadLingers(safe float64) (lingers, ok bool) {
	if !c.overload() {
		return false, false
	}
	after, ok := c.measure(&deployment{}, safe, false, "below the capacity, after the overload")
	return after.valid && after.fails(c.cfg.Thresholds[0]), ok
}

// underloaded reports whether there is a trial at about half the rate.
func (c *campaign) underloaded(rate float64) bool {
	return slices.ContainsFunc(c.readings[:c.at], func(r reading) bool {
		return r.valid && r.rate > 0.35*rate && r.rate < 0.65*rate
	})
}
