package rate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vitrine"
)

const (
	alike    = 0.0006 // of two rates, as a difference of logarithms: rounding
	near     = 0.06   // of a rate from the capacity: a trial there verifies it
	halfLoad = 0.5    // of the capacity: underload
	overLoad = 1.3    // of the capacity: overload
	bracket  = 0.3    // between a rate that passed and one that failed, as a difference of logarithms: trials are worth their length
)

// An aim is what the search is at for one threshold.
type aim struct {
	i           int // of the threshold
	threshold   float64
	belief      belief
	median      float64 // logarithm of the rate
	width       float64 // of the interval, as a share of the capacity
	sd          float64 // of the logarithm, as the interval has it
	low, high   float64 // logarithms: the interval
	lowest, top bool    // the capacity is thought to lie at or beyond an end of what can be offered
}

func (v *view) aim(i int) aim {
	a := aim{i: i, threshold: v.cfg.Thresholds[i], belief: v.beliefs[i]}
	tail := (1 - v.cfg.confidence()) / 2
	low, high := a.belief.quantile(tail), a.belief.quantile(1-tail)
	a.median = a.belief.quantile(0.5)
	a.width = math.Exp(high-a.median) - math.Exp(low-a.median)
	if v.deployment() < v.cfg.Repeat { // too few to tell how they differ
		half := quantileNormal(1-tail) * a.belief.narrowly
		low, high = a.median-half, a.median+half
		a.width = min(a.width, 2*half)
	}
	a.low, a.high = low, high
	a.sd = (high - low) / (2 * quantileNormal(1-tail))
	a.lowest = a.median <= math.Log(v.cfg.Min)+alike
	a.top = a.median >= math.Log(v.ceiling.rate)-alike
	return a
}

// settled says whether an end of the range answers for the threshold, in trials
// of the full length there.
func (v *view) settled(a aim) bool {
	switch {
	case a.lowest:
		return v.offered(v.cfg.Min, true) >= v.cfg.Duration.Seconds()*(1-alike)
	case a.top && v.ceiling.rate < v.cfg.Max && v.ceiling.tries > 0 && !v.ceiling.final:
		return false
	case a.top:
		return v.offered(v.ceiling.rate, false) >= v.cfg.Duration.Seconds()*(1-alike)
	}
	return false
}

// offered is for how many seconds the rate was offered; fresh: without an
// overload before.
func (v *view) offered(rate float64, fresh bool) float64 {
	sum := 0.0
	for _, e := range v.trials {
		if math.Abs(e.x-math.Log(rate)) < alike && (!fresh || !e.after) {
			sum += e.window
		}
	}
	return sum
}

// search brings the least certain capacity to the precision that one deployment
// is good for.
func (v *view) search() (Step, bool) {
	wanted := v.cfg.precision()
	if v.cfg.Repeat > 1 && v.deployment() < v.cfg.Repeat {
		wanted *= 2
	}
	a, ok := v.worst(wanted)
	if !ok {
		return v.verify()
	}
	if v.differ(a) {
		return Step{}, false // narrow will deploy afresh
	}
	return v.toward(a, wanted), true
}

// worst is the threshold whose interval is widest, if it is too wide.
func (v *view) worst(wanted float64) (worst aim, ok bool) {
	for i := range v.beliefs {
		a := v.aim(i)
		if (a.width > wanted || a.lowest || a.top) && !v.settled(a) && (!ok || a.width > worst.width) {
			worst, ok = a, true
		}
	}
	return worst, ok
}

// differ says whether it is the deployments that differ, so that more trials
// of the same one would not help: were they all alike, the capacity would be
// known well enough, or what they say could not be made to fit.
func (v *view) differ(a aim) bool {
	const mostly, unfit = 0.6, 4
	return v.deployment() >= 2 && v.cfg.Repeat > 1 && !a.lowest && !a.top &&
		(2*quantileNormal(1-(1-v.cfg.confidence())/2)*a.belief.narrowly < mostly*v.cfg.precision() ||
			a.belief.narrowly > unfit*a.sd)
}

// verify runs one trial of the full length near the first capacity, for short
// ones may not see a queue fill (ETSI GS NFV-TST 009, clause 12.3.3).
func (v *view) verify() (Step, bool) {
	a := v.aim(0)
	if v.settled(a) || v.verified(a) {
		return Step{}, false
	}
	return v.afresh(v.trial(math.Exp(v.shown(a)), v.cfg.Duration, "the capacity in a trial of the full length"), a), true
}

// verified says whether there was a trial of the full length near the capacity,
// on a deployment that was never overloaded before: some never recover.
func (v *view) verified(a aim) bool {
	for _, e := range v.trials {
		if math.Abs(e.x-a.median) < near && e.window >= v.cfg.Duration.Seconds()*(1-alike) && !e.strained {
			return true
		}
	}
	return false
}

// afresh has a trial that is to verify run on a fresh deployment if need be.
func (v *view) afresh(s Step, a aim) Step {
	if v.used && s.Duration == v.cfg.Duration && !v.verified(a) {
		s.Repeat, s.Restart = v.deployment()+1, true
	}
	return s
}

// seen says whether there is a fair trial in the range of rates at least so long.
func (v *view) seen(low, high float64, window time.Duration) bool {
	for _, e := range v.trials {
		if e.rate >= low && e.rate <= high && e.window >= window.Seconds()*(1-alike) {
			return true
		}
	}
	return false
}

// toward is the trial from which most is to be learned for the time it takes.
func (v *view) toward(a aim, wanted float64) Step {
	x, why := v.where(a)
	low, high := math.Log(v.cfg.Min), math.Log(v.ceiling.rate)
	rate := math.Exp(min(max(x, low), high))
	switch {
	case x <= low || a.lowest:
		step := v.trial(v.cfg.Min, v.atEnd(v.cfg.Min), fmt.Sprintf("the lowest rate, for the capacity may be below it (threshold %g)", a.threshold))
		if v.tired && !v.cfg.Stateful {
			step.Repeat, step.Restart = v.deployment()+1, true
		}
		return step
	case x >= high || a.top:
		if v.ceiling.tries > 0 && !v.ceiling.final && v.offered(v.ceiling.rate, false) > 0 {
			return v.trial(v.ceiling.invalid, shortest(v.cfg, v.ceiling.invalid), "again, for lower rates passed and it could not be measured")
		}
		return v.trial(v.ceiling.rate, v.atEnd(v.ceiling.rate), fmt.Sprintf("the highest rate, for the capacity may be above it (threshold %g)", a.threshold))
	}
	step := v.trial(rate, v.long(a, rate, wanted), fmt.Sprintf("%s (threshold %g)", why, a.threshold))
	if a.i == 0 && v.close(a) {
		step = v.afresh(step, a)
	}
	return step
}

// atEnd is how long an end of the range is offered: first briefly.
func (v *view) atEnd(rate float64) time.Duration {
	if v.offered(rate, false) == 0 && !v.seen(rate/(1+near), rate*(1+near), 0) {
		return shortest(v.cfg, rate)
	}
	return v.cfg.Duration
}

// where is the rate that tells most: where the capacity is as probably above as
// below. While nothing was overloaded it is higher, for a trial past the
// capacity says where the capacity is, and one below it does not.
func (v *view) where(a aim) (x float64, why string) {
	const bold = 0.7
	overloaded := false
	for _, e := range v.trials {
		overloaded = overloaded || e.low < math.Log(a.threshold)
	}
	switch {
	case !overloaded && !v.cfg.Stateful:
		return a.belief.quantile(bold), "higher, for all before passed"
	case !overloaded:
		return a.median, "higher, for all before passed"
	}
	if x := v.surprise(a); x > 0 {
		return x, "higher, for the last trials passed plainly where the capacity was thought to be"
	}
	if p := v.expand(a); p != 0.5 {
		return a.belief.quantile(p), "farther, for the last trials all fell on one side of it"
	}
	return v.shown(a) + a.lean(), fmt.Sprintf("where the capacity is thought to be, within %.1f%%", 50*a.width)
}

// expand is the quantile to try: farther off the middle for every trial in a row
// that fell on the same side, while none was close. What is believed was wrong then.
func (v *view) expand(a aim) float64 {
	const farther, farthest = 0.08, 0.25
	if v.close(a) {
		return 0.5
	}
	row := 0
	for i := len(v.trials) - 1; i >= 0; i-- {
		side := 1
		if v.trials[i].success < a.threshold {
			side = -1
		}
		if row*side < 0 {
			break
		}
		row += side
	}
	off := min(farther*max(0, math.Abs(float64(row))-1), farthest)
	return 0.5 + math.Copysign(off, float64(row))
}

// surprise is where to look when trials of this deployment, the last two or more,
// passed plainly where the capacity is thought to be: farther up with each of
// them, whatever trials on other deployments say. 0: they did not.
func (v *view) surprise(a aim) float64 {
	const step, below = 0.04, 0.03
	row, x := 0, 0.0
	for i := len(v.trials) - 1; i >= 0; i-- {
		e := &v.trials[i]
		if e.repeat != v.deployment() || e.window < min(fewest, v.cfg.Duration.Seconds()/2) || e.success < intact*v.best || e.x < a.median-below {
			break
		}
		row, x = row+1, max(x, e.x)
	}
	if row < 2 {
		return 0
	}
	return x + step*float64(row-1)
}

// lean is how far off the median a trial tells more, for the interval reaches
// farther on that side.
func (a aim) lean() float64 {
	const share, most = 0.5, 0.03
	return max(-most, min(most, share*((a.low+a.high)/2-a.median)))
}

// shown is the lowest rate from the median on at which an overload shows in the
// first half of the longest trial, given the queue that the trials showed.
func (v *view) shown(a aim) float64 {
	const share, step, farthest, apart = 0.5, 0.01, 0.7, 0.25
	hidden := v.hidden()
	if hidden == 0 {
		return a.median
	}
	for way := 0.0; way < farthest; way += step {
		x := a.median + way
		excess := v.best - a.threshold*math.Exp(-a.belief.slope*way)
		if way < farthest-step && (excess <= 0 || hidden/(math.Exp(x)*excess) > share*v.cfg.Duration.Seconds()) {
			continue
		}
		if way > near && v.around(x) > v.around(x+apart) {
			return x + apart // for two rates tell how success falls towards the capacity
		}
		return x
	}
	return a.median
}

// around is how many trials there are around the rate.
func (v *view) around(x float64) int {
	n := 0
	for _, e := range v.trials {
		if math.Abs(e.x-x) < near {
			n++
		}
	}
	return n
}

// hidden is how many calls the function takes in before an overload shows: the
// median of the trials that were overloaded for long enough, for noise may make
// a single one look so.
func (v *view) hidden() float64 {
	var hidden []float64
	for _, e := range v.trials {
		if e.shows && e.window >= fewest {
			hidden = append(hidden, e.hidden)
		}
	}
	if len(hidden) == 0 {
		return 0
	}
	slices.Sort(hidden)
	return hidden[len(hidden)/2]
}

// long is how long the trial is best: no longer than it takes to reach what is
// wanted, and while the rate is likely to be off, not so long that it tells its
// success much better than it lies near the capacity.
func (v *view) long(a aim, rate, wanted float64) time.Duration {
	const (
		margin = 1.1
		finer  = 3.0 // than what is known so far, at no overhead
		most   = 8.0
		soon   = 2.0 // seconds
	)
	b := a.belief
	goal := wanted / (2 * quantileNormal(1-(1-v.cfg.confidence())/2))
	need := 1/(goal*goal) - 1/(a.sd*a.sd)
	core := (b.quantile(0.75) - b.quantile(0.25)) / (2 * quantileNormal(0.75))
	off := b.bend * core
	shortest, longest := shortest(v.cfg, rate), v.cfg.Duration
	ratio := min(most, finer+v.overhead().Seconds())
	for t := shortest; t < longest; t += time.Second {
		s := t.Seconds()
		noise := (v.noise.variance(s) + drawing(a.threshold, rate*s)) / (b.slope * b.slope)
		if 1/(noise+off*off+b.wander*b.wander) >= need*margin || noise <= core*core/(ratio*ratio) {
			longest = t
		}
	}
	if !v.close(a) {
		longest = min(longest, fewest*time.Second)
		if v.hidden() < rate { // a queue of less than a second
			return window(v.cfg, longest.Seconds()+min(v.fill(a, rate), soon))
		}
	} else if longest > v.cfg.Duration/2 || !v.verified(a) { // which takes one of this length
		return v.cfg.Duration
	}
	return window(v.cfg, longest.Seconds()+v.fill(a, rate))
}

// overhead is what a trial costs beside its window: the median of those that say so.
func (v *view) overhead() time.Duration {
	var all []time.Duration
	for _, o := range v.history {
		if o.Overhead > 0 {
			all = append(all, o.Overhead)
		}
	}
	if len(all) == 0 {
		return v.cfg.Overhead
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// close says whether a trial that was long enough to show an overload lay near
// the capacity, so that what is believed of it is more than a guess.
func (v *view) close(a aim) bool {
	passed, failed := math.Inf(-1), math.Inf(1)
	for _, e := range v.trials {
		if e.window < fewest {
			continue
		}
		switch {
		case e.crosses(a.threshold):
			return true
		case e.success >= a.threshold:
			passed = max(passed, e.x)
		default:
			failed = min(failed, e.x)
		}
	}
	return failed-passed < bracket
}

// fill is how many seconds the queue that was seen takes to fill at the rate.
func (v *view) fill(a aim, rate float64) float64 {
	hidden := v.hidden()
	excess := v.best - a.threshold*math.Exp(-a.belief.slope*(math.Log(rate)-a.median))
	if hidden == 0 || excess <= 0 {
		return 0
	}
	return hidden / (rate * excess)
}

// another is a trial at the first capacity on a fresh deployment.
func (v *view) another() Step {
	a := v.aim(0)
	rate := math.Exp(min(max(v.shown(a), math.Log(v.cfg.Min)), math.Log(v.ceiling.rate)))
	goal := v.cfg.precision() * math.Sqrt(float64(v.cfg.Repeat)) / (2 * quantileNormal(1-(1-v.cfg.confidence())/2))
	s := shortest(v.cfg, rate).Seconds()
	for ; s < v.cfg.Duration.Seconds(); s++ {
		if v.noise.variance(s)+drawing(a.threshold, rate*s) <= goal*goal*a.belief.slope*a.belief.slope {
			break
		}
	}
	step := v.trial(rate, window(v.cfg, s+v.fill(a, rate)), fmt.Sprintf("does the capacity hold on another deployment? (threshold %g)", a.threshold))
	step.Repeat, step.Restart = v.deployment()+1, true
	return step
}

// narrow deploys afresh while it is the deployments that make an interval wide.
func (v *view) narrow() (Step, bool) {
	a, ok := v.worst(v.cfg.precision())
	if !ok || v.deployment() >= 3*v.cfg.Repeat+1 {
		return Step{}, false
	}
	if v.differ(a) {
		return v.another(), true
	}
	return v.toward(a, v.cfg.precision()), true
}

// contrast runs the trials that the report sets beside the one at capacity, as
// in NFV-VITAL's figure 2, unless some are there already.
func (v *view) contrast() (Step, bool) {
	const brief = 2 // seconds
	a := v.aim(0)
	if a.lowest || a.top {
		return Step{}, false
	}
	capacity := math.Exp(a.median)
	window := window(v.cfg, brief)
	if under := max(v.cfg.Min, halfLoad*capacity); under < 0.8*capacity && !v.seen(0.25*capacity, 0.85*capacity, 0) {
		return v.trial(under, window, "underload, to set beside the capacity"), true
	}
	if over := min(v.ceiling.rate, overLoad*capacity); over > 1.1*capacity && !v.seen(1.1*capacity, 1.8*capacity, 0) {
		return v.trial(over, window, "overload, to set beside the capacity"), true
	}
	return Step{}, false
}

// summary says what was found.
func (v *view) summary() string {
	text := ""
	for i, c := range v.capacities() {
		text += "; "
		switch c.Censored {
		case vitrine.CensoredBelow:
			text += fmt.Sprintf("even %g did not pass", c.Rate)
		case vitrine.CensoredNone:
			text += fmt.Sprintf("%.4g in [%.4g, %.4g], %.1f%% wide", c.Rate, c.Low, c.High, 100*v.aim(i).width)
		case vitrine.CensoredAbove:
			text += fmt.Sprintf("even %g passed", c.Rate)
		default:
			text += fmt.Sprintf("%g passed, and no trial above it was valid", c.Rate)
		}
		text += fmt.Sprintf(" (threshold %g)", c.Threshold)
	}
	return text
}
