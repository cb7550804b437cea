package size

import (
	"cmp"
	"fmt"
	"slices"

	"vitrine"
)

// An Objective says what makes a sizing the best.
type Objective struct {
	Limit     vitrine.Resources // only sizings within it; zero fields: no limit
	Reach     float64           // the workload to reach; 0: the highest capacity is best
	Threshold int               // index into Measured.Capacities
	Unit      string            // of rates, for Why: "calls/s"
	// Price is what a sizing costs; nil: its vCPUs are its cost.
	Price func(vitrine.Sizing) float64
}

// Optimal returns the best of the measured sizings and why, or no sizing and why
// there is none.
//
// With a workload to reach, it is the sizing with the fewest vCPUs whose
// capacity's lower bound reaches the workload. Without, it is the one with the
// highest capacity. Sizings whose capacities lie in each other's intervals are
// tied with it. Of those, the one with the fewest vCPUs wins: more resources
// without a capacity that shows them are wasted. With a price, the lowest price
// comes before the fewest vCPUs. Among equal vCPUs, the higher capacity wins,
// then less memory.
func Optimal(measured []vitrine.Measured, objective Objective) (vitrine.Sizing, string) {
	i, why := Best(measured, objective)
	if i < 0 {
		return nil, why
	}
	return measured[i].Sizing, why
}

// Best is like Optimal but returns the index into measured, -1 for none. The
// index tells apart measurements of one sizing under several options.
func Best(measured []vitrine.Measured, objective Objective) (index int, why string) {
	candidates := objective.candidates(measured)
	if len(candidates) == 0 {
		return -1, "no sizing within the limit was seen to carry even the lowest rate"
	}
	best := slices.MaxFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.Rate, b.Rate) })
	if objective.Reach > 0 {
		return objective.reaching(candidates, best)
	}
	chosen := objective.fewest(candidates, func(c candidate) bool { return c.tied(best) })
	if chosen.index == best.index {
		return best.index, fmt.Sprintf("the highest capacity of %d sizings: %s", len(candidates), objective.carries(best))
	}
	return chosen.index, fmt.Sprintf("%s; %s, does not differ significantly: the fewer vCPUs win",
		objective.carries(chosen), objective.carries(best))
}

func (o Objective) reaching(candidates []candidate, best candidate) (index int, why string) {
	reaches := func(c candidate) bool { return c.Low >= o.Reach }
	if !slices.ContainsFunc(candidates, reaches) {
		return -1, fmt.Sprintf("no sizing is sure to reach %s; the closest: %s", o.rate(o.Reach), o.carries(best))
	}
	chosen := o.fewest(candidates, reaches)
	if o.Price != nil {
		return chosen.index, fmt.Sprintf("the lowest price that reaches %s, %.4g: %s", o.rate(o.Reach), o.Price(chosen.Sizing), o.carries(chosen))
	}
	return chosen.index, fmt.Sprintf("the fewest vCPUs that reach %s: %s", o.rate(o.Reach), o.carries(chosen))
}

// A candidate is a sizing with the capacity that counts.
type candidate struct {
	index int
	vitrine.Measured
	vitrine.Capacity
}

// candidates returns the sizings within the limit that carry at least some rate.
func (o Objective) candidates(measured []vitrine.Measured) []candidate {
	var found []candidate
	for i, m := range measured {
		if o.Threshold < 0 || o.Threshold >= len(m.Capacities) || !m.Resources.Within(o.Limit) {
			continue
		}
		if c := m.Capacities[o.Threshold]; c.Rate > 0 && c.Censored != vitrine.CensoredBelow {
			found = append(found, candidate{i, m, c})
		}
	}
	return found
}

// tied reports whether each capacity lies in the other's interval.
func (c candidate) tied(other candidate) bool {
	return c.Rate >= other.Low && c.Rate <= other.High && other.Rate >= c.Low && other.Rate <= c.High
}

// fewest returns the candidate with the lowest price or the fewest vCPUs of those
// for which will returns true.
func (o Objective) fewest(candidates []candidate, will func(candidate) bool) candidate {
	fit := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return !will(c) })
	return slices.MinFunc(fit, func(a, b candidate) int {
		if o.Price != nil {
			if by := cmp.Compare(o.Price(a.Sizing), o.Price(b.Sizing)); by != 0 {
				return by
			}
		}
		if !sameVCPUs(a.Resources.VCPUs, b.Resources.VCPUs) {
			return cmp.Compare(a.Resources.VCPUs, b.Resources.VCPUs)
		}
		return cmp.Or(cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Resources.Memory, b.Resources.Memory))
	})
}

// carries describes the candidate's capacity.
func (o Objective) carries(c candidate) string {
	least := ""
	if c.Censored != vitrine.CensoredNone {
		least = "at least "
	}
	return fmt.Sprintf("%s carries %s%s [%.4g, %.4g] with %.4g vCPUs", c.Sizing, least, o.rate(c.Rate), c.Low, c.High, c.Resources.VCPUs)
}

func (o Objective) rate(r float64) string {
	if o.Unit == "" {
		return fmt.Sprintf("%.4g", r)
	}
	return fmt.Sprintf("%.4g %s", r, o.Unit)
}
