package rate

import (
	"fmt"
	"slices"

	"vitrine"
)

// ramp is NFV-VITAL's linear increase (section III, VNF Workload Generator).
type ramp struct {
	cfg   Config
	rates []float64
	wrong error
}

// NewRamp returns a search that offers Min, Min+Increase, ... up to Max, once per
// repeat, each on a fresh deployment. A repeat ends early when Stop returns true,
// and when a rate could not be measured in Attempts trials: the generator will
// not offer higher rates either.
func NewRamp(cfg Config) Search {
	r := &ramp{cfg: cfg, wrong: cfg.Check()}
	if r.wrong == nil && cfg.Increase == 0 && cfg.Max > cfg.Min {
		r.wrong = fmt.Errorf("increase 0: a ramp over [%g, %g] needs a positive one", cfg.Min, cfg.Max)
	}
	if r.wrong == nil {
		r.rates = cfg.rates()
	}
	return r
}

// Trials implements Planner: every rate in every repeat.
func (r *ramp) Trials() int { return len(r.rates) * r.cfg.Repeat }

func (r *ramp) Next(history []vitrine.Outcome) Step {
	if r.wrong != nil {
		return Step{Done: true, Why: r.wrong.Error()}
	}
	if len(history) == 0 {
		return r.begin(1, "the lowest rate, on a fresh deployment")
	}
	last := history[len(history)-1]
	if tried := attemptsAt(history, last.Repeat, last.Rate); !counts(last) && tried < r.cfg.attempts() {
		return r.step(last.Rate, last.Repeat, fmt.Sprintf("attempt %d of %d, because the last was invalid: %s",
			tried+1, r.cfg.attempts(), reason(last)))
	}
	next, ended := r.after(last)
	switch {
	case ended == "":
		return r.step(next, last.Repeat, fmt.Sprintf("%g more than the last rate", r.cfg.Increase))
	case last.Repeat < r.cfg.Repeat:
		return r.begin(last.Repeat+1, fmt.Sprintf("the lowest rate again, on a fresh deployment: repeat %d %s", last.Repeat, ended))
	default:
		return Step{Done: true, Repeat: last.Repeat, Why: fmt.Sprintf("all %d repeats are done: the last %s", r.cfg.Repeat, ended)}
	}
}

// after returns the rate that follows the last outcome, or how its repeat ended.
func (r *ramp) after(last vitrine.Outcome) (next float64, ended string) {
	if !counts(last) {
		return 0, fmt.Sprintf("ended at %g, which could not be measured in %d attempts: %s",
			last.Rate, r.cfg.attempts(), reason(last))
	}
	if r.cfg.Stop != nil && r.cfg.Stop(last) {
		return 0, fmt.Sprintf("met the stop condition at %g", last.Rate)
	}
	k, found := slices.BinarySearch(r.rates, last.Rate)
	if found {
		k++
	}
	if k >= len(r.rates) {
		return 0, fmt.Sprintf("reached %g, the highest rate", last.Rate)
	}
	return r.rates[k], ""
}

func (r *ramp) begin(repeat int, why string) Step {
	s := r.step(r.rates[0], repeat, why)
	s.Restart = true
	return s
}

func (r *ramp) step(rate float64, repeat int, why string) Step {
	return Step{Rate: rate, Duration: r.cfg.Duration, Repeat: repeat, Why: why}
}

// attemptsAt counts the invalid outcomes of one rate in one repeat.
func attemptsAt(history []vitrine.Outcome, repeat int, rate float64) int {
	n := 0
	for _, o := range history {
		if o.Repeat == repeat && o.Rate == rate && !counts(o) {
			n++
		}
	}
	return n
}
