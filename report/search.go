package report

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/spec"
)

// mostEstimates is the largest number of estimates of the capacity in one search. In longer
// searches only every second trial gets an estimate, or every third, and so on.
const mostEstimates = 60

// A tried is one trial of a size, as its search saw it.
type tried struct {
	vitrine.Outcome
	number int               // 1, 2, ... in the order in which they were chosen
	load   float64           // seconds of load so far, including this trial
	fresh  bool              // of a fresh deployment
	again  bool              // the first of another measurement of the size, which started from nothing
	judged *rate.Judgement   // by the search adaptive; nil: another search, or the trial is invalid
	after  *vitrine.Capacity // at the report's first threshold, by this trial and earlier ones; nil: not computed
	why    string            // empty: not known
}

// replaySearches replays the searches of all subjects.
func (s *set) replaySearches() {
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, x := range s.subjects() {
		group.Go(func() error {
			x.trace = x.search()
			return nil
		})
	}
	_ = group.Wait() // no function returns an error
}

// search replays the search over the subject's trials. A size that was measured
// more than once was searched from the beginning each time.
func (s *subject) search() []tried {
	var all []tried
	load := 0.0
	for i, history := range s.splitMeasurements() {
		search, cfg := s.searcher(i)
		after := s.capacityAfter(search, cfg)
		every := (len(history) + mostEstimates - 1) / mostEstimates
		var seen []vitrine.Outcome // by the search
		for k, o := range history {
			load += o.Duration.Seconds()
			t := tried{
				Outcome: o, number: len(all) + 1, load: load, again: i > 0 && k == 0,
				fresh: k == 0 || o.Repeat != history[k-1].Repeat, why: why(search, seen, o),
			}
			if !o.Disturbed {
				seen = append(seen, o)
			}
			if s.adaptive(i) && !t.invalid() {
				t.judged = new(rate.Judge(o, cfg.Precision))
			}
			if last := len(history) - 1; k == last || (last-k)%every == 0 {
				c := after(seen)
				t.after = &c
			}
			all = append(all, t)
		}
	}
	return all
}

// splitMeasurements splits the subject's trials by measurement. The last measurement may
// not have ended.
func (s *subject) splitMeasurements() [][]vitrine.Outcome {
	left := s.outcomes
	var parts [][]vitrine.Outcome
	for _, z := range s.entries {
		if n := min(z.Trials, len(left)); n > 0 && n < len(left) {
			parts, left = append(parts, left[:n]), left[n:]
		}
	}
	if len(left) > 0 {
		parts = append(parts, left)
	}
	return parts
}

// searcher returns the search of the subject's i-th measurement; nil: the run did
// not record it.
func (s *subject) searcher(i int) (rate.Search, rate.Config) {
	none := rate.Config{Thresholds: []float64{s.run.set.thresholds[0]}, Seed: s.run.Manifest.Seed}
	if i >= len(s.entries) || s.entries[i].Search == nil {
		return nil, none
	}
	recorded := s.entries[i].Search
	cfg := configOf(recorded)
	cfg.Thresholds, cfg.Seed = s.run.thresholds(), s.run.Manifest.Seed
	// The ramp has no stop condition here, because the recorded condition is an expression. The
	// trials' rates show where the ramp stopped.
	search, err := rate.New(recorded.Name, cfg)
	if err != nil {
		return nil, none // a search of a later version
	}
	return search, cfg
}

// adaptive reports whether the search of the i-th measurement also judged the trials by their
// backlog.
func (s *subject) adaptive(i int) bool {
	return i < len(s.entries) && s.entries[i].Search != nil && s.entries[i].Search.Name == spec.Adaptive
}

// configOf returns the recorded configuration of the search, without the fields that
// the whole run shares.
func configOf(s *result.Search) rate.Config {
	return rate.Config{
		Min: s.Min, Max: s.Max, Increase: s.Increase, Duration: duration(s.Duration), Repeat: s.Repeat,
		Precision: s.Precision, Confidence: s.Confidence, Overhead: duration(s.Overhead), Stateful: s.Stateful,
		Prior: rate.Prior{Low: s.PriorLow, High: s.PriorHigh},
	}
}

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// capacityAfter returns a function that estimates the capacity at the report's
// first threshold. It uses the search's own estimate if there is one for that
// threshold.
func (s *subject) capacityAfter(search rate.Search, cfg rate.Config) func([]vitrine.Outcome) vitrine.Capacity {
	threshold := s.run.set.thresholds[0]
	own, has := search.(rate.Estimator)
	i := slices.Index(cfg.Thresholds, threshold)
	if has && i >= 0 && cfg.Check() == nil {
		return func(history []vitrine.Outcome) vitrine.Capacity { return own.Estimate(history)[i] }
	}
	plain := rate.Config{Thresholds: []float64{threshold}, Seed: cfg.Seed}
	return func(history []vitrine.Outcome) vitrine.Capacity { return rate.Estimate(history, plain)[0] }
}

// why returns the search's reason for the trial. It is empty if the search would now choose
// another trial, because its configuration was different then.
func why(search rate.Search, before []vitrine.Outcome, o vitrine.Outcome) string {
	if search == nil {
		return ""
	}
	step := search.Next(before)
	if step.Done || step.Rate != o.Rate || step.Repeat != o.Repeat {
		return ""
	}
	return step.Why
}

// A verdict is what a trial says about the capacity.
type verdict int

const (
	passed   verdict = iota
	unsteady         // success meets the threshold, but the backlog may grow
	failed
	invalid
)

func verdicts() []verdict { return []verdict{passed, unsteady, failed, invalid} }

func (v verdict) String() string { return [...]string{"passed", "not steady", "failed", "invalid"}[v] }

// invalid reports whether the trial has no verdict. A trial without due calls has
// none.
func (t tried) invalid() bool { return !t.Valid || t.Scheduled == 0 }

// verdict judges the trial by the threshold and as the search did. The search adaptive also judges
// the backlog.
func (t tried) verdict(threshold float64) verdict {
	success := t.SuccessRatio()
	if t.judged != nil {
		success = t.judged.Success
	}
	switch {
	case t.invalid():
		return invalid
	case success < threshold:
		return failed
	case t.judged != nil && !t.judged.Steady:
		return unsteady
	}
	return passed
}

// judgedText formats the success ratio that the search adaptive judged, and the
// part of the window that it judged.
func (t tried) judgedText(thresholds []float64) string {
	if t.judged == nil {
		return missing
	}
	text := RatioText(t.judged.Success, thresholds)
	if t.judged.Cut > 0 {
		text += fmt.Sprintf(" (last %.0f s)", (1-t.judged.Cut)*t.Duration.Seconds())
	}
	return text
}

// A searchView is one size's search: its figure and a table of the same data.
type searchView struct {
	Figure  *figure
	Name    string
	Open    bool
	Summary string
	Rows    []searchRow
	Note    string // why the capacities are mere estimates
	Reasons bool   // at least one trial has a reason
	Judged  bool   // the search judges the backlog
}

type searchRow struct {
	Number, Repeat int
	Seq, Attempt   int
	Rate           float64
	Seconds, Load  float64
	Ratio, Verdict string
	Judged         string
	After          string // capacity and interval
	Why            string
}

func (s *set) searchView(f *figure) searchView {
	x := f.subject
	v := searchView{Figure: f, Name: x.name, Open: x.optimal() || len(s.subjects()) == 1, Note: x.unsearched(s.thresholds[0])}
	last := x.trace[len(x.trace)-1]
	v.Summary = fmt.Sprintf("%d trials, %s s of load", last.number, number(last.load))
	for _, t := range x.trace {
		r := searchRow{
			Number: t.number, Repeat: t.Repeat, Seq: t.Seq, Attempt: t.Attempt, Rate: t.Rate, Seconds: t.Duration.Seconds(), Load: t.load,
			Ratio: s.ratio(t.Outcome), Verdict: t.verdict(s.thresholds[0]).String(), Judged: t.judgedText(s.thresholds), Why: t.why,
		}
		if t.after != nil {
			r.After = Known(*t.after)
		}
		v.Reasons, v.Judged = v.Reasons || t.why != "", v.Judged || t.judged != nil
		v.Rows = append(v.Rows, r)
	}
	return v
}

// Known formats what is known of a capacity, with its interval, in a few words.
func Known(c vitrine.Capacity) string {
	if c.Unmeasured() {
		return missing
	}
	return fmt.Sprintf("%s (%s)", capacityText(c), intervalText(c))
}
