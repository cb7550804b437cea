package rate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vitrine"
)

// A record is the trials so far as the adaptive search understands them. It is
// made from the history alone, in the order of the trials.
type record struct {
	cfg     Config
	history []vitrine.Outcome
	trials  []evidence // of the valid outcomes
	best    float64    // success ratio without much load

	settle  time.Duration // rest that the function is known to need after an overload
	restart bool          // only a fresh deployment ends an overload
	used    bool          // the last deployment was overloaded at some time
	tired   bool          // the last deployment was overloaded, and has not shown since that it recovered
	last    *evidence     // of the last outcome, if it was valid
	again   *Step         // what has to be tried again before the search goes on

	doubts  doubts
	blamed  []int // trials that are in doubt
	ceiling ceiling
}

// doubts are the steps taken to find out whether an overload lingers.
type doubts int

const (
	trusting  doubts = iota
	rested           // the trial is tried again after a rest
	longer           // and after a longer one
	redeploys        // and on a fresh deployment
)

const (
	shortRest = 5 * time.Second
	longRest  = 20 * time.Second
)

// newRecord goes through the history.
func newRecord(cfg Config, history []vitrine.Outcome) *record {
	r := &record{cfg: cfg, history: history, best: bestOf(history)}
	const aftermath = 15.0 // seconds of load after an overload that may suffer from it
	since := aftermath
	for i, o := range history {
		if i > 0 && o.Repeat != history[i-1].Repeat {
			r.used, r.tired, since = false, false, aftermath
		}
		r.last = nil
		if !counts(o) {
			continue
		}
		r.trials = append(r.trials, read(o, r.best, r.tired || since < aftermath))
		since += o.Duration.Seconds()
		r.last = &r.trials[len(r.trials)-1]
		r.last.strained = r.used
		r.judge(len(r.trials) - 1)
		r.expose(r.last)
		switch e := r.last; {
		case e.success < strained*r.best:
			r.used, r.tired, since = true, true, 0
		case e.success >= intact*r.best:
			r.tired = false
		}
	}
	leadIn(r.trials, r.best)
	absorb(r.trials, r.best)
	r.ceiling = findCeiling(cfg, history)
	return r
}

// bestOf is the success ratio without much load, such as 0.95 of a function that
// always loses a twentieth. It takes two trials to believe that it is not 1:
// one could be of a function that begins to be overloaded.
func bestOf(history []vitrine.Outcome) float64 {
	const enough, near, apart, alike = 20, 0.985, 1.3, 0.02
	best := 0.0
	for _, o := range history {
		if counts(o) && o.Scheduled >= enough {
			best = max(best, o.SuccessRatio())
		}
	}
	if best >= near {
		return best
	}
	low, high := math.Inf(1), 0.0
	for _, o := range history {
		if counts(o) && o.Scheduled >= enough && o.SuccessRatio() >= best-alike {
			low, high = min(low, o.Rate), max(high, o.Rate)
		}
	}
	if best < strained || high < apart*low {
		return 1
	}
	return best
}

// judge decides whether trial i suffers from an overload before it. If it does
// worse than trials at its rate or higher ones did, it is tried again, first
// after a rest, then on a fresh deployment; what helps is kept to.
func (r *record) judge(i int) {
	e := &r.trials[i]
	worse := r.worse(e)
	if r.again != nil && e.rate == r.again.Rate {
		stage := r.doubts
		r.again = nil
		switch {
		case !worse:
			r.cured(stage)
		case stage == redeploys:
			r.acquit(e)
		default:
			r.doubt(i, stage)
		}
		return
	}
	r.again, r.doubts, r.blamed = nil, trusting, nil
	if worse && r.tired {
		r.doubt(i, trusting)
	} else if e.recovered > 0 {
		r.settle = max(r.settle, 2*time.Duration(e.recovered*float64(time.Second)).Round(time.Second))
	}
}

// worse says whether the trial's goodput is clearly below what the function
// carried when it was offered as much or more, which no function does of its
// own. Short trials may have flattered it.
func (r *record) worse(e *evidence) bool {
	if e.hidden > 0 || e.success >= intact*r.best {
		return false
	}
	return slices.ContainsFunc(r.trials, func(other evidence) bool { return r.contradicts(&other, e) })
}

// expose compares a trial on a fresh deployment with those after overloads. What
// it shows to have suffered from them is left out, and from then on overloads end
// with a fresh deployment. Where it passes plainly at about a rate at which they
// clearly did not, all of them are left out.
func (r *record) expose(e *evidence) {
	const about, clearly = 0.03, 0.07
	if e.strained || e.window < fewest {
		return
	}
	suspect := false
	for i := range r.trials {
		old := &r.trials[i]
		if !old.strained || old.unfair {
			continue
		}
		if r.contradicts(e, old) {
			old.unfair, r.restart = true, true
		}
		suspect = suspect || e.success >= intact*r.best && old.success < e.success-clearly && old.x < e.x+about
	}
	for i := range r.trials {
		if old := &r.trials[i]; suspect && old.strained && old.repeat != e.repeat {
			old.unfair = true
		}
	}
}

// contradicts says whether one trial shows a goodput that is far above another's.
func (r *record) contradicts(better, e *evidence) bool {
	const clearly, flattered, long = 0.85, 0.6, 3.0
	if better.unfair || better.rate < e.rate*(1-alike) {
		return false
	}
	share := clearly
	if better.window < long {
		share = flattered
	}
	return e.success < share*min(r.best, better.success*better.rate/e.rate)
}

// acquit counts the trials in doubt, for a fresh deployment does no better, and
// doubts those that did better before.
func (r *record) acquit(e *evidence) {
	const lucky = 0.5
	for i := range r.trials {
		if r.contradicts(&r.trials[i], e) {
			r.trials[i].doubt = lucky
		}
	}
	for _, i := range r.blamed {
		r.trials[i].unfair = false
	}
	r.blamed, r.doubts = nil, trusting
}

// doubt asks for trial i again, in a way that helps more than the last.
func (r *record) doubt(i int, stage doubts) {
	e := &r.trials[i]
	e.unfair = true
	better := len(r.blamed) == 0 || e.success > 1.05*r.trials[r.blamed[len(r.blamed)-1]].success
	r.blamed = append(r.blamed, i)
	step := &Step{Rate: e.rate, Duration: seconds(e.window), Repeat: e.repeat}
	switch {
	case stage == trusting && r.settle < longRest:
		r.doubts, step.Settle = rested, max(shortRest, 2*r.settle)
	case stage == rested && better && r.settle < longRest:
		r.doubts, step.Settle = longer, longRest
	default:
		r.doubts, step.Restart = redeploys, true
		step.Repeat++
	}
	how := fmt.Sprintf("after %s of rest", step.Settle)
	if step.Restart {
		how = "on a fresh deployment"
	}
	step.Why = fmt.Sprintf("again %s, for more load was carried before: does the overload linger?", how)
	r.again = step
}

// cured notes what ended the lingering of an overload.
func (r *record) cured(stage doubts) {
	switch stage {
	case rested:
		r.settle = max(shortRest, 2*r.settle)
	case longer:
		r.settle = longRest
	case redeploys:
		r.restart = true
	}
	r.blamed, r.doubts = nil, trusting
}

// rest is how long the function is left alone before the next trial, and
// whether it is deployed afresh.
func (r *record) rest() (settle time.Duration, restart bool) {
	if r.last == nil || !r.tired && (!r.cfg.Stateful || r.last.success >= r.cfg.Thresholds[0]) {
		return 0, false
	}
	if r.cfg.Stateful || r.restart {
		return 0, true
	}
	return max(r.settle, shortRest), false
}

// fair is the trials that count.
func (r *record) fair() []evidence {
	fair := make([]evidence, 0, len(r.trials))
	for _, e := range r.trials {
		if !e.unfair {
			fair = append(fair, e)
		}
	}
	return fair
}

// deployment is the number of the last one; 0: none yet.
func (r *record) deployment() int {
	if len(r.history) == 0 {
		return 0
	}
	return r.history[len(r.history)-1].Repeat
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
