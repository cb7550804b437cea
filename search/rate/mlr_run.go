package rate

import (
	"fmt"
	"slices"
	"time"

	"vitrine"
)

// An mlrRun is the search of one repeat, replayed over the outcomes so far.
type mlrRun struct {
	*mlr
	left    []vitrine.Outcome // not yet replayed
	trials  map[int][]mlrTrial
	tried   []int // rates with trials, ascending
	blocked map[int]bool
	count   int   // of trials
	pending *Step // the step that has no outcome yet
	seekers []*mlrSeeker
	width   int    // smallest width at which the whole search works while it expands
	ended   string // why the search gave up; empty: every goal was reached
}

func newMLRRun(m *mlr, outcomes []vitrine.Outcome) *mlrRun {
	return &mlrRun{mlr: m, left: outcomes, trials: map[int][]mlrTrial{}, blocked: map[int]bool{}}
}

// walk replays the outcomes so far; before is the previous repeat, if any.
func (r *mlrRun) walk(before *mlrRun) {
	low, high, ok := -1, -1, true
	if before == nil {
		low, high, ok = r.open()
	}
	if !ok {
		return
	}
	if low >= 0 && high >= 0 {
		r.width = high - low
	}
	for goal, targets := range r.goals {
		s := &mlrSeeker{run: r, goal: goal, targets: targets, low: low, high: high}
		if before != nil {
			s.low, s.high, _ = before.bounds(goal)
			s.targets = targets[len(targets)-1:]
			if s.low < 0 && s.high < 0 {
				s.low = 0
			}
		}
		s.aim()
		r.seekers = append(r.seekers, s)
	}
	r.loop()
}

// loop measures the rates that the seekers nominate until no seeker nominates
// one. The lowest rate comes first, because it disturbs the function least.
func (r *mlrRun) loop() {
	for most := mlrMost * len(r.goals); ; {
		var best *nomination
		for _, s := range r.seekers {
			if n := s.nominate(); n != nil && (best == nil || n.before(best)) {
				best = n
			}
		}
		switch {
		case best == nil:
			return
		case r.count >= most:
			r.ended = fmt.Sprintf("gave up after %d trials, because their verdicts contradict each other", r.count)
			return
		}
		t := best.by.target()
		if _, ok := r.measure(best.rate, t.trial, best.why()); !ok {
			return
		}
		if best.width > 0 {
			r.width = best.width
		}
		best.by.adjust(best)
	}
}

// open returns the two rates that the search begins with; -1: none. It tries the
// highest rate for the shortest time, then up to two rates that the goodput
// points to.
func (r *mlrRun) open() (low, high int, ok bool) {
	first := r.goals[0][0]
	for _, targets := range r.goals {
		first.loss = min(first.loss, targets[0].loss)
	}
	switch p := r.cfg.Prior; {
	case p.High >= p.Low && p.Low > 0 && p.Low < r.cfg.Max && p.High > r.cfg.Min:
		return r.grid.index(p.Low), min(r.grid.index(p.High)+1, r.grid.top), true
	case r.cfg.Stateful:
		return 0, -1, true
	}
	top := r.grid.top
	loss, ok := r.measure(top, first.trial, "the highest rate, to see the goodput")
	if !ok {
		return 0, 0, false
	}
	second := r.goodputRate(top, loss, first)
	if second >= top {
		return top, top, true
	}
	second, far := r.keepApart(second, first.width, -1, top)
	if !far {
		return top, top, true
	}
	if loss, ok = r.measure(second, first.trial, "where the goodput of the highest rate points"); !ok {
		return 0, 0, false
	}
	var third int
	why := "where the goodput points now"
	if loss > first.loss+stepTolerance {
		third, far = r.keepApart(r.goodputRate(second, loss, first), first.width, -1, second)
	} else {
		third, far = r.keepApart(second+first.width, first.width, second, top)
		why = "the next higher, because that passed"
	}
	if !far {
		return second, second, true
	}
	if _, ok = r.measure(third, first.trial, why); !ok {
		return 0, 0, false
	}
	return min(second, third), max(second, third), true
}

// goodputRate returns the rate at which the measured goodput would just be enough, if
// it stayed the same.
func (r *mlrRun) goodputRate(at int, loss float64, t mlrTarget) int {
	return r.grid.index(r.grid.rate(at) * (1 - loss) / (1 - t.loss))
}

// measure takes the rate's outcome from the history, or asks for it. A rate whose
// attempts were all invalid is blocked.
func (r *mlrRun) measure(i int, length time.Duration, why string) (loss float64, ok bool) {
	rate := r.grid.rate(i)
	for attempt := 1; attempt <= r.cfg.attempts(); attempt++ {
		for len(r.left) > 0 && r.left[0].Rate != rate {
			r.left = r.left[1:] // an outcome of another search
		}
		if len(r.left) == 0 {
			if attempt > 1 {
				why = fmt.Sprintf("attempt %d of %d, because the last was invalid", attempt, r.cfg.attempts())
			}
			r.pending = &Step{Rate: rate, Duration: length, Why: why}
			return 0, false
		}
		o := r.left[0]
		r.left = r.left[1:]
		r.count++
		if counts(o) {
			loss = 1 - o.SuccessRatio()
			r.note(i, mlrTrial{length, loss})
			return loss, true
		}
	}
	r.blocked[i] = true
	r.note(i, mlrTrial{length, 1})
	return 1, true
}

func (r *mlrRun) note(i int, t mlrTrial) {
	if _, known := r.trials[i]; !known {
		at, _ := slices.BinarySearch(r.tried, i)
		r.tried = slices.Insert(r.tried, at, i)
	}
	r.trials[i] = append(r.trials[i], t)
}

// result returns what the finished repeat found.
func (r *mlrRun) result() string {
	if r.ended != "" {
		return r.ended
	}
	text := ""
	for goal, threshold := range r.cfg.Thresholds {
		if goal > 0 {
			text += "; "
		}
		lo, hi, _ := r.bounds(goal)
		if lo < 0 {
			text += "no rate passed"
		} else {
			text += fmt.Sprintf("%g passed", r.grid.rate(lo))
		}
		switch {
		case hi < 0:
			text += ", no rate failed"
		case r.blocked[hi]:
			text += fmt.Sprintf(", %g could not be measured", r.grid.rate(hi))
		default:
			text += fmt.Sprintf(", %g failed", r.grid.rate(hi))
		}
		text += fmt.Sprintf(" (threshold %g)", threshold)
	}
	return text
}

// keepApart moves a rate away from the bounds and from the ends of the grid, by at
// least the width. It may return an end of the grid that is not a bound. false:
// no rate between the bounds is far enough from both.
func (r *mlrRun) keepApart(i, width, lo, hi int) (int, bool) {
	from, to := max(lo, 0), r.grid.top
	if hi >= 0 {
		to = hi
	}
	i = min(max(i, from), to)
	switch {
	case to <= from || lo >= 0 && hi >= 0 && (to-from <= width || i == lo || i == hi):
		return 0, false
	case to-from <= width && lo < 0:
		return from, true
	case to-from <= width:
		return to, true
	}
	softFrom, softTo := from+width, to-width
	if softFrom > softTo {
		softFrom = r.split(from, to, width)
		softTo = softFrom
	}
	switch {
	case i < softFrom && lo < 0:
		return from, true
	case i < softFrom:
		return softFrom, true
	case i > softTo && hi < 0:
		return to, true
	case i > softTo:
		return softTo, true
	}
	return i, true
}

// split returns the rate that divides two others so that halving both parts ends
// with the width, or just below. The upper part is the width times a power of
// two, the one nearest to half. For rates less than two widths apart it is the
// middle.
func (r *mlrRun) split(lo, hi, width int) int {
	whole := hi - lo
	if whole <= 2*width {
		return lo + whole/2
	}
	part := width
	for whole-2*part > 2*part {
		part *= 2
	}
	// Choose between part and its double: the more even split has the larger
	// product.
	if 2*part*(whole-2*part) >= part*(whole-part) {
		part *= 2
	}
	return hi - part
}
