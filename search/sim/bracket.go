package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"vitrine"
)

// A Bracket is what the trials of a search show without any model.
type Bracket struct {
	Pass float64 // highest rate that passed on most deployments; 0: none
	Fail float64 // lowest rate that failed on most deployments; infinite: none
}

// NewBracket returns the bracket of the valid trials. A trial passes when its
// success ratio meets the threshold and it is steady. It fails when the ratio
// does not meet the threshold. A deployment that passed at a rate counts as
// passing below it, and one that failed at a rate as failing above it. A trial
// that passed does not count when a longer one failed later on the same
// deployment, at its rate or below: a trial that is not steady enough is
// extended.
func NewBracket(history []vitrine.Outcome, threshold float64, steady func(vitrine.Outcome) bool) Bracket {
	return bracket(verdicts(history, threshold, steady))
}

// A verdict is the bracket of one deployment.
type verdict = Bracket

func verdicts(history []vitrine.Outcome, threshold float64, steady func(vitrine.Outcome) bool) []verdict {
	at := map[int]int{} // repeat -> index
	var all []verdict
	for i, o := range history {
		if !o.Valid || o.Scheduled == 0 {
			continue
		}
		k, seen := at[o.Repeat]
		if !seen {
			k = len(all)
			at[o.Repeat] = k
			all = append(all, verdict{0, math.Inf(1)})
		}
		v := &all[k]
		switch {
		case o.SuccessRatio() < threshold:
			v.Fail = min(v.Fail, o.Rate)
		case steady(o) && !overruled(o, history[i+1:], threshold):
			v.Pass = max(v.Pass, o.Rate)
		}
	}
	return all
}

// overruled reports whether a longer trial failed later at the rate or below it.
func overruled(o vitrine.Outcome, later []vitrine.Outcome, threshold float64) bool {
	return slices.ContainsFunc(later, func(l vitrine.Outcome) bool {
		return l.Repeat == o.Repeat && l.Valid && l.Duration > o.Duration && l.Rate <= o.Rate && l.SuccessRatio() < threshold
	})
}

// bracket returns where more than half of the deployments pass and fail.
func bracket(all []verdict) Bracket {
	if len(all) == 0 {
		return Bracket{0, math.Inf(1)}
	}
	most := len(all) / 2 // index up to which more than half agree
	slices.SortFunc(all, func(a, b verdict) int { return cmp.Compare(b.Pass, a.Pass) })
	pass := all[most].Pass
	slices.SortFunc(all, func(a, b verdict) int { return cmp.Compare(a.Fail, b.Fail) })
	return Bracket{pass, all[most].Fail}
}

// Contradicts returns an error when the capacity's interval contradicts the
// trials that it was estimated from: its upper end is below the highest rate that
// passed on most deployments, or its lower end is above the lowest rate that
// failed on most. With two states, it judges the lower one, by the deployments
// that failed below the middle of the two and did not pass above it.
func Contradicts(c vitrine.Capacity, history []vitrine.Outcome, steady func(vitrine.Outcome) bool) error {
	all := verdicts(history, c.Threshold, steady)
	if c.States != nil {
		middle := math.Sqrt(c.States.Lower * c.States.Upper)
		all = slices.DeleteFunc(all, func(v verdict) bool { return v.Fail > middle || v.Pass > middle })
	}
	b := bracket(all)
	switch low, high := c.Bounds(); {
	case high < b.Pass:
		return fmt.Errorf("the interval [%.4g, %.4g] ends below %.4g, which passed on most deployments", low, high, b.Pass)
	case low > b.Fail:
		return fmt.Errorf("the interval [%.4g, %.4g] begins above %.4g, which failed on most deployments", low, high, b.Fail)
	}
	return nil
}
