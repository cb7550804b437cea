package rate

import (
	"fmt"
	"math"
	"time"

	"vitrine"
)

// adaptive looks for the capacity at every threshold with as little load as the
// wanted precision needs.
type adaptive struct {
	cfg   Config
	wrong error
}

// NewAdaptive offers next the rate that the capacity is thought to have, given
// all trials so far, in a trial as long as what is still to be learned deserves:
// short ones first, longer ones near the answer, and one of Config.Duration at
// it. Success past the capacity tells where the capacity is, so that one
// overloaded trial is worth many that pass.
//
// It ends when the interval of every capacity is as narrow as Config.Precision,
// over at least Config.Repeat fresh deployments, and one trial each at about half
// and at about 1.3 times the first capacity is there. It does without precision
// when that is not to be had: the capacity is outside the range, the generator
// cannot offer more, or as many trials as are sensible were run; it says so.
//
// It tells from the seconds of a trial when overload showed late, for a queue
// had to fill, and goes by the seconds after. When a rate does worse after an
// overload than it or a higher one did, it is tried again after a rest, and
// then on a fresh deployment; what helped is done after every later overload.
func NewAdaptive(cfg Config) Search {
	return &adaptive{cfg: cfg, wrong: cfg.Check()}
}

// Trials implements Planner.
func (a *adaptive) Trials() int {
	return 10 + 3*(len(a.cfg.Thresholds)-1) + 2*(a.cfg.Repeat-1)
}

// most is how many trials the search takes, whatever happens.
func (a *adaptive) most() int { return 30 + 6*(len(a.cfg.Thresholds)-1) + 4*(a.cfg.Repeat-1) }

func (a *adaptive) Next(history []vitrine.Outcome) Step {
	if a.wrong != nil {
		return Step{Done: true, Why: a.wrong.Error()}
	}
	v := newView(a.cfg, history)
	step, why := v.next()
	if why == "" {
		why = a.enough(v)
	}
	if why != "" {
		return Step{Done: true, Repeat: v.deployment(), Why: why + v.summary()}
	}
	return v.deployed(step)
}

// enough says why the search ends although it has not reached its aim.
func (a *adaptive) enough(v *view) string {
	const (
		few      = 14  // trials before it may be given up
		lately   = 6   // trials that should have narrowed an interval
		little   = 0.8 // of what it was
		hopeless = 1.5 // times the wanted precision
	)
	n := len(v.history)
	switch worst, ok := v.worst(v.cfg.precision()); {
	case n >= a.most():
		return fmt.Sprintf("%d trials are spent, as many as are sensible", n)
	case !ok || n < few+2*v.cfg.Repeat || worst.width < hopeless*v.cfg.precision():
		return ""
	default:
		before := newView(a.cfg, v.history[:n-lately]).aim(worst.i).width
		if worst.width < little*before {
			return ""
		}
		why := fmt.Sprintf("the last %d trials did not narrow the interval (threshold %g)", lately, worst.threshold)
		if v.shown(worst) > worst.median+alike {
			why += "; overload shows too late for the duration, longer trials would help"
		}
		return why
	}
}

// A view is what the search knows at one time.
type view struct {
	*record
	trials   []evidence // fair ones
	noise    noise
	believer believer
	beliefs  []belief // one per threshold
}

func newView(cfg Config, history []vitrine.Outcome) *view {
	v := &view{record: newRecord(cfg, history), noise: waves()}
	v.trials = v.fair()
	var shown []series
	for _, e := range v.trials {
		if e.steadily(v.best) && (e.success < intact*v.best || 1-cfg.Thresholds[0] < 1-intact) {
			shown = append(shown, e.steady())
		}
	}
	v.noise.learn(shown)
	for i := range v.trials {
		e := &v.trials[i]
		e.variance = v.noise.variance(e.seconds) + drawing(e.success, e.calls)
	}
	v.believer = newBeliever(cfg, v.trials, v.best)
	for _, t := range cfg.Thresholds {
		v.beliefs = append(v.beliefs, v.believer.believe(t))
	}
	return v
}

// next is the next trial, but for when to rest and deploy; or why there is none.
func (v *view) next() (step Step, why string) {
	switch {
	case len(v.trials) == 0 && v.ceiling.tries > 0 && (v.ceiling.final || v.history[len(v.history)-1].Rate <= v.cfg.Min):
		return v.unmeasured()
	case len(v.history) == 0:
		return v.first(), ""
	case v.again != nil:
		return *v.again, ""
	}
	if step, ok := v.search(); ok {
		return step, ""
	}
	if v.deployment() < v.cfg.Repeat {
		return v.another(), ""
	}
	if step, ok := v.narrow(); ok {
		return step, ""
	}
	if step, ok := v.contrast(); ok {
		return step, ""
	}
	return Step{}, v.reached()
}

// reached says what the search came to.
func (v *view) reached() string {
	if worst, wide := v.worst(v.cfg.precision()); wide && v.cfg.Repeat > 1 && v.differ(worst) {
		return fmt.Sprintf("%d deployments differ too much for a precision of %g", v.deployment(), v.cfg.precision())
	}
	return fmt.Sprintf("as precise as wanted (%g) after %d trials", v.cfg.precision(), len(v.history))
}

// unmeasured is the lowest rate, when no other could be measured, or the end.
func (v *view) unmeasured() (Step, string) {
	last := v.history[len(v.history)-1]
	if last.Rate > v.cfg.Min {
		return v.trial(v.cfg.Min, shortest(v.cfg, v.cfg.Min), "the lowest rate, for no higher one could be measured"), ""
	}
	tried := 0
	for _, o := range v.history {
		if o.Rate == last.Rate {
			tried++
		}
	}
	if tried < v.cfg.attempts() {
		return v.trial(v.cfg.Min, shortest(v.cfg, v.cfg.Min), fmt.Sprintf("attempt %d of %d, for the last was invalid: %s",
			tried+1, v.cfg.attempts(), reason(last))), ""
	}
	return Step{}, "no trial was valid: " + reason(last)
}

// first is the first trial: not at the top, for what an overload leaves behind
// is not known yet.
func (v *view) first() Step {
	const overload, careful = 0.6, 0.5
	p := overload
	if v.cfg.Stateful {
		p = careful
	}
	x := v.beliefs[0].quantile(p)
	why := "inside the range, for nothing is known"
	if v.cfg.Prior.Low > 0 {
		why = "where the neighbours' capacities are"
	}
	rate := min(max(math.Exp(x), v.cfg.Min), v.cfg.Max)
	return v.trial(rate, shortest(v.cfg, rate), why)
}

// trial is a step in the current deployment.
func (v *view) trial(rate float64, window time.Duration, why string) Step {
	return Step{Rate: v.round(rate), Duration: window, Repeat: max(1, v.deployment()), Why: why}
}

// round takes a rate to three or four digits, within the range.
func (v *view) round(rate float64) float64 {
	digits := math.Pow(10, math.Floor(math.Log10(rate))-3)
	return min(max(tidy(math.Round(rate/digits)*digits), v.cfg.Min), v.cfg.Max)
}

// deployed completes a step with the rest or the deployment before it.
func (v *view) deployed(s Step) Step {
	if len(v.history) == 0 {
		s.Repeat, s.Restart = 1, true
		return s
	}
	if s.Restart || s.Settle > 0 {
		return s
	}
	settle, restart := v.rest()
	if restart {
		s.Repeat, s.Restart = v.deployment()+1, true
		s.Why += "; afresh after the overload"
		return s
	}
	s.Settle = settle
	return s
}

// shortest is the shortest trial that is worth it at a rate.
func shortest(cfg Config, rate float64) time.Duration {
	const (
		part  = 60 // of the longest
		calls = 30
		share = 3
	)
	s := max(1, cfg.Duration.Seconds()/part, calls/rate, min(fewest, cfg.Duration.Seconds()/share))
	return window(cfg, s)
}

// window is so many seconds, whole ones, and no more than the longest.
func window(cfg Config, s float64) time.Duration {
	return min(seconds(math.Ceil(s-1e-9)), cfg.Duration)
}
