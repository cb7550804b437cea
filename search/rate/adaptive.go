package rate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

// Limits of the adaptive search. docs/decisions/0016-adaptive-search.md gives the reasons.
const (
	leastDeployments  = 5   // near the capacity, before the search may end
	mostDeployments   = 24  // near the capacity
	mostTrials        = 240 // in all
	deploymentsToTell = 3   // deployments needed to tell whether success falls gently, overload shows late, or success rises with use
	mostToTell        = 8   // deployments on which the first rate is offered once more
	mostOnOne         = 14  // trials on one deployment
	extensions        = 3   // of a trial that is not steady
	longestWindow     = 16  // times Config.Duration
)

// adaptive finds the capacity at every threshold from samples, one from each
// fresh deployment.
type adaptive struct {
	cfg      Config
	wrong    error
	readings []reading // of the last history; reading trials is most of the work
}

// NewAdaptive returns a search that measures one fresh deployment after the other
// close to the capacity, until the confidence interval of every capacity is as
// narrow as Config.Precision.
//
// It scouts until a rate that passes and a higher one that fails are close to
// each other. Then each fresh deployment gets a climb: trials around the estimate
// that close in on the rate at which this deployment fails. A trial that is not
// steady (its backlog may grow) is extended up to three times. Last come one
// trial at half the capacity and an overload. If the function carries less after
// the overload than before, the lower capacity counts, and is measured as well.
//
// It gives up, and says why, when deployments differ too much for the precision,
// when the capacity is outside the range, or when the generator cannot offer
// more.
func NewAdaptive(cfg Config) Search {
	return &adaptive{cfg: cfg, wrong: cfg.Check()}
}

// Trials implements Planner.
func (a *adaptive) Trials() int {
	const scouting, perDeployment, contrast = 7, 4, 4
	return scouting + contrast + perDeployment*max(leastDeployments, a.cfg.Repeat)
}

func (a *adaptive) Next(history []vitrine.Outcome) Step {
	if a.wrong != nil {
		return Step{Done: true, Why: a.wrong.Error()}
	}
	return a.walk(history).next
}

// Estimate implements Estimator. It returns the capacity as docs/measuring.md
// defines it. The interval is of the mean over deployments, so it says what
// another run would find. Until two deployments were measured near the capacity,
// the result is that of the package's Estimate.
func (a *adaptive) Estimate(history []vitrine.Outcome) []vitrine.Capacity {
	if a.wrong != nil {
		return make([]vitrine.Capacity, len(a.cfg.Thresholds))
	}
	return a.walk(history).capacities(history)
}

// walk replays the campaign over the history.
func (a *adaptive) walk(history []vitrine.Outcome) *campaign {
	n := 0
	for n < len(history) && n < len(a.readings) && a.readings[n].of(history[n]) {
		n++
	}
	a.readings = a.readings[:n]
	for _, o := range history[n:] {
		a.readings = append(a.readings, read(o, a.cfg.precision()))
	}
	c := &campaign{cfg: a.cfg, history: history, readings: a.readings}
	c.ceiling = findCeiling(a.cfg, nil)
	c.run()
	return c
}

// A campaign is the search as a program: run goes from trial to trial, takes the
// outcomes from the history, and stops at the first trial that the history does
// not hold. That trial becomes the next step. So the search has no state but the
// history, and a resumed search continues where it was.
type campaign struct {
	cfg      Config
	history  []vitrine.Outcome
	readings []reading // one per outcome
	at       int       // outcomes consumed
	next     Step

	ceiling     ceiling
	deployments []*deployment // all of them, in their order
	climbs      []*deployment // those that close in on the capacity
	after       []*deployment // those that do so after an overload
	warmed      bool          // deployments are warmed up before their climb, because they get better with use
	guess       float64       // where scouting puts the capacity, as a logarithm
	lead        float64       // how much lower ascents start than without surprises, as a logarithm
	drained     time.Duration // rest before the next trial, after one that failed
}

// run walks through the phases. Every phase returns false when the history
// ends or the search is over; next is set then.
func (c *campaign) run() {
	if !c.scout() {
		return
	}
	why, ok := c.sample(&c.climbs, false)
	if !ok {
		return
	}
	lingers, ok := c.contrast()
	if !ok {
		return
	}
	if lingers {
		if why, ok = c.sample(&c.after, true); !ok {
			return
		}
		why += "; an overload lowers the capacity, and the lower one counts"
	}
	c.end(why)
}

// sample measures fresh deployments until the interval is narrow enough, and
// returns why it ends.
func (c *campaign) sample(climbs *[]*deployment, overloaded bool) (why string, ok bool) {
	for {
		if why = c.enough(*climbs); why != "" {
			return why, true
		}
		d := c.deploy()
		if c.warmed && !c.warm() || overloaded && !c.overload() || !c.climb(d) {
			return "", false
		}
		if c.tooHigh(d) {
			step := c.ascentStep()
			c.guess, c.lead, *climbs = c.center(0), 2*c.lead+step, nil
			continue
		}
		*climbs = append(*climbs, d)
		if !c.confirm(d, *climbs) {
			return "", false
		}
		if cold, _ := c.cold(); cold && !c.warmed && !overloaded {
			c.guess, c.warmed, *climbs = c.center(0), true, nil
		}
	}
}

// enough returns why no more deployments are needed; empty: go on.
func (c *campaign) enough(climbs []*deployment) string {
	const early, hopeless = 16, 3 // deployments before giving up; times mostDeployments
	n := len(climbs)
	if n < leastDeployments || n < c.cfg.Repeat {
		return ""
	}
	width, sd, undecided := 0.0, 0.0, false
	ended := ""
	for i := range c.cfg.Thresholds {
		switch s := c.samples(climbs, i); {
		case s.above:
			ended = fmt.Sprintf("the highest rate passes on most of %d deployments", n)
		case s.below:
			ended = fmt.Sprintf("the lowest rate fails on most of %d deployments", n)
		default:
			e := s.estimate(c.cfg.confidence())
			undecided = undecided || e.undecided
			if w := pessimism(n) * (e.high - e.low) / e.rate; w > width {
				width, sd = w, e.sd/e.rate
			}
		}
	}
	precision := c.cfg.precision()
	needed := float64(n) * width * width / (precision * precision)
	switch {
	case undecided && n < mostDeployments && c.at < mostTrials:
		return ""
	case ended != "" && width <= precision:
		return ended
	case width <= precision:
		return fmt.Sprintf("as precise as wanted (%g) over %d deployments", precision, n)
	case n >= max(mostDeployments, c.cfg.Repeat), c.at >= mostTrials,
		n >= early && needed > hopeless*mostDeployments:
		return fmt.Sprintf("deployments differ too much (%.1f%%) for a precision of %g: %d of them give %.2g, about %.0f would be needed",
			100*sd, precision, n, width, math.Ceil(needed))
	}
	return ""
}

// pessimism returns how much wider the interval would be if deployments differed
// as much as the upper 75% confidence bound of their standard deviation. The
// search ends by that width. Otherwise it would end whenever the first few
// deployments happen to agree.
func pessimism(deployments int) float64 {
	const tail = 0.25
	freedom := float64(deployments - 1)
	return math.Sqrt(freedom / distuv.ChiSquared{K: freedom}.Quantile(tail))
}

// end finishes the search.
func (c *campaign) end(why string) {
	if len(c.climbs) > 0 && c.late(c.climbs, c.cfg.Thresholds[0]) {
		why += "; overload shows too late for the duration, longer trials would help"
	}
	c.next = Step{Done: true, Repeat: c.number(), Why: fmt.Sprintf("%s, %d trials", why, c.at)}
}

// number returns the number of the current deployment, from 1; 0: none yet.
func (c *campaign) number() int {
	if len(c.deployments) == 0 {
		return 0
	}
	return c.deployments[len(c.deployments)-1].number
}

// capacities returns the result for each threshold.
func (c *campaign) capacities(history []vitrine.Outcome) []vitrine.Capacity {
	climbs := c.climbs
	if c.lowered() {
		climbs = c.after
	}
	if len(climbs) < 2 {
		return c.preliminary(history)
	}
	all := make([]vitrine.Capacity, len(c.cfg.Thresholds))
	for i, threshold := range c.cfg.Thresholds {
		all[i] = c.capacity(climbs, i)
		all[i].Threshold = threshold
		if c.lowered() {
			all[i].Fresh = c.capacity(c.climbs, i).Rate
		}
		if i > 0 { // a lower threshold never has a lower capacity
			above := all[i-1]
			all[i].Rate = max(all[i].Rate, above.Rate)
			all[i].High = max(all[i].High, all[i].Rate)
			all[i].Low = min(max(all[i].Low, above.Low), all[i].Rate)
		}
	}
	return all
}

// lowered reports whether the deployments after an overload decide.
func (c *campaign) lowered() bool { return len(c.after) >= 2 }

// preliminary returns the estimate before two deployments were measured.
func (c *campaign) preliminary(history []vitrine.Outcome) []vitrine.Capacity {
	all := Estimate(history, c.cfg)
	for i := range all {
		all[i].High = min(all[i].High, c.cfg.Max)
		all[i].Rate = min(all[i].Rate, all[i].High)
		all[i].Low = min(all[i].Low, all[i].Rate)
	}
	return all
}

// capacity returns what the deployments show for threshold i.
func (c *campaign) capacity(climbs []*deployment, i int) vitrine.Capacity {
	s := c.samples(climbs, i)
	switch {
	case s.below:
		return vitrine.Capacity{Rate: c.cfg.Min, High: c.cfg.Min, Censored: vitrine.CensoredBelow, Deployments: len(climbs)}
	case s.above:
		return c.atLeast(climbs, s, c.cfg.Thresholds[i])
	}
	e := s.estimate(c.cfg.confidence())
	if c.late(climbs, c.cfg.Thresholds[i]) {
		e.high = max(e.high, c.overloaded(c.cfg.Thresholds[i]))
	}
	passed, failed := c.most(c.cfg.Thresholds[i], e.states)
	e.low, e.high = min(e.low, failed), max(e.high, passed)
	found := vitrine.Capacity{Censored: vitrine.CensoredNone, Deployments: len(climbs), SD: e.sd, States: e.states}
	found.High = min(e.high, c.cfg.Max)
	found.Rate = min(max(e.rate, c.cfg.Min), found.High)
	found.Low = min(max(e.low, 0), found.Rate)
	found.Single = min(max(e.single, 0), found.Rate)
	return found
}

// atLeast returns the capacity where most deployments pass at the highest rate. Those
// that fail lower the mean success: the capacity is at least what the samples say if
// the others crossed the threshold at the highest rate.
func (c *campaign) atLeast(climbs []*deployment, s samples, threshold float64) vitrine.Capacity {
	top, failed := c.ceiling.rate, false
	for _, d := range climbs {
		top = min(top, max(d.highestPass(threshold), c.cfg.Min))
		failed = failed || d.bracket(threshold).failed
	}
	found := vitrine.Capacity{Rate: top, Low: top, High: top, Censored: vitrine.CensoredAbove, Deployments: len(climbs)}
	if failed {
		found.Low = min(top, max(s.estimate(c.cfg.confidence()).low, c.cfg.Min))
		found.Rate = found.Low
	}
	if c.ceiling.tries > 0 {
		found.Censored = vitrine.CensoredGenerator
	}
	return found
}

// late reports whether most deployments showed no overload in their longest
// trials, only a backlog that may grow.
func (c *campaign) late(climbs []*deployment, threshold float64) bool {
	unresolved := 0
	for _, d := range climbs {
		if b := d.bracket(threshold); b.failed && b.fail.unresolved {
			unresolved++
		}
	}
	return 2*unresolved > len(climbs)
}

// overloaded returns the lowest rate that missed the threshold in any trial.
func (c *campaign) overloaded(threshold float64) float64 {
	rate := c.cfg.Max
	for _, r := range c.readings[:c.at] {
		if r.valid && r.success < threshold {
			rate = min(rate, r.rate)
		}
	}
	return rate
}

// most returns the highest rate that passed on most deployments, and the lowest
// rate that failed on most. A deployment that passes a rate counts as passing all
// lower ones, unless a longer trial failed there. The interval of a capacity
// holds both rates, whatever the model says. With two states, only deployments of
// the lower state count. After an overload, only the deployments measured after
// it count.
func (c *campaign) most(threshold float64, states *vitrine.TwoStates) (passed, failed float64) {
	var passes, fails []float64
	for _, number := range c.numbers() {
		pass, fail := c.shown(number, threshold)
		if states != nil && max(pass, fail) > math.Sqrt(states.Lower*states.Upper) {
			continue
		}
		passes, fails = append(passes, -pass), append(fails, fail)
	}
	if len(passes) == 0 {
		return 0, math.Inf(1)
	}
	slices.Sort(passes)
	slices.Sort(fails)
	return -passes[len(passes)/2], fails[len(fails)/2]
}

// numbers returns the numbers of the deployments that decide.
func (c *campaign) numbers() (numbers []int) {
	deployments := c.deployments
	if c.lowered() {
		deployments = c.after
	}
	for _, d := range deployments {
		numbers = append(numbers, d.number)
	}
	return numbers
}

// shown returns the highest rate that passed on the deployment and the lowest
// that failed, over all of its trials.
func (c *campaign) shown(number int, threshold float64) (pass, fail float64) {
	fail = math.Inf(1)
	readings := c.readings[:c.at]
	for i, r := range readings {
		if r.repeat != number || !r.valid {
			continue
		}
		overruled := slices.ContainsFunc(readings[i+1:], func(later reading) bool {
			return later.repeat == number && later.valid && later.duration > r.duration && later.whole < threshold && later.rate <= r.rate
		})
		switch {
		case r.whole < threshold:
			fail = min(fail, r.rate)
		case r.wholeSteady && !overruled:
			pass = max(pass, r.rate)
		}
	}
	return pass, fail
}

// A deployment is what one fresh deployment showed.
type deployment struct {
	number int
	trials []reading // the one that counts at each rate

	thorough bool    // trials are long enough to show slow backlogs
	first    reading // of the climb
	recalled bool    // the first rate was offered again at the end
	gain     float64 // rise of success at the first rate from the start to the end of the climb
	verified bool    // a rate that passed was offered again for longer
	sag      float64 // fall of success in that longer trial
	retry    retry   // result of the trial between two states
}

func (d *deployment) highestPass(threshold float64) (rate float64) {
	for _, r := range d.trials {
		if r.passes(threshold) {
			rate = max(rate, r.rate)
		}
	}
	return rate
}

// lowest is the smallest of the thresholds.
func (c *campaign) lowest() float64 { return slices.Min(c.cfg.Thresholds) }
