package size

import (
	"fmt"
	"math"

	"vitrine"
)

// cheapest looks for the fewest vCPUs, or the lowest price, that carry the
// workload for sure.
func (k *known) cheapest() (next, best int, why string) {
	reach := k.cfg.Reach
	best = -1
	for i, f := range k.figures {
		if f.measured.Low >= reach && (best < 0 || k.cheaper(f, k.figures[best])) {
			best = i
		}
	}
	need := math.Log(reach) + k.margin()
	most := 0.0
	for _, c := range k.costs {
		most = max(most, c)
	}
	bound := 2 * most // while no sizing carries it, every sizing saves something
	if best >= 0 {
		bound = k.costs[k.figures[best].sizing]
	}
	next = -1
	worth, chance, highest := 0.0, 0.0, 0.0
	for s := range k.sizings {
		if k.tried[s] || k.costs[s] >= bound-1e-9 || k.tooSmall(s) {
			continue
		}
		p := k.reaches(s, need)
		highest = max(highest, p)
		if w := p * (bound - k.costs[s]); p >= plausible && w > worth {
			next, worth, chance = s, w, p
		}
	}
	switch {
	case next >= 0:
		p := k.of(next)
		than := "the most promising way to carry it"
		if best >= 0 {
			than = fmt.Sprintf("it would save %s over %s", k.saves(bound-k.costs[next]), k.sizings[k.figures[best].sizing])
		}
		return next, best, fmt.Sprintf("predicted to carry %s [%.4g, %.4g]: a chance of %.0f%% to carry %s for sure; %s",
			k.rate(p.Rate), p.Low, p.High, 100*chance, k.rate(reach), than)
	case best >= 0:
		f := k.figures[best]
		return -1, best, fmt.Sprintf("%s carries %s [%.4g, %.4g], and no untried sizing that is cheaper can plausibly carry %s",
			k.sizings[f.sizing], k.rate(f.measured.Rate), f.measured.Low, f.measured.High, k.rate(reach))
	}
	if high := k.highest(); high >= 0 {
		f := k.figures[high]
		return -1, -1, fmt.Sprintf("no sizing within the limit can plausibly carry %s for sure (the likeliest has a chance of %.0f%%); the closest: %s carries %s",
			k.rate(reach), 100*highest, k.sizings[f.sizing], k.rate(f.measured.Rate))
	}
	return -1, -1, fmt.Sprintf("no sizing within the limit can plausibly carry %s", k.rate(reach))
}

// cheaper reports whether a is cheaper than b, or as cheap and carries more.
func (k *known) cheaper(a, b figure) bool {
	x, y := k.costs[a.sizing], k.costs[b.sizing]
	if !sameVCPUs(x, y) {
		return x < y
	}
	return a.measured.Rate > b.measured.Rate
}

// margin returns the median distance of a measured lower bound below its
// capacity, as a difference of logarithms. To carry a workload for sure, a sizing
// must carry that much more.
func (k *known) margin() float64 {
	var widths []float64
	for _, f := range k.figures {
		if f.censored == vitrine.CensoredNone && f.measured.Low > 0 {
			widths = append(widths, math.Log(f.measured.Rate/f.measured.Low))
		}
	}
	if len(widths) == 0 {
		return 0
	}
	return middle(widths)
}

// reaches returns the probability that the sizing carries at least need, a
// logarithm.
func (k *known) reaches(sizing int, need float64) (chance float64) {
	for _, log := range k.drawn(sizing) {
		if log >= need {
			chance += 1 / float64(len(k.draws))
		}
	}
	return chance
}

// tooSmall reports whether the sizing cannot carry the workload, because a
// measured sizing cannot that has as many instances of every component, and at
// least as much for each.
func (k *known) tooSmall(sizing int) bool {
	for _, f := range k.figures {
		above := f.censored == vitrine.CensoredNone && f.measured.High < k.cfg.Reach
		below := f.censored == vitrine.CensoredBelow && f.measured.High <= k.cfg.Reach
		if (above || below) && k.least(k.sizings[f.sizing], k.sizings[sizing]) {
			return true
		}
	}
	return false
}

// saves formats an amount of vCPUs or of the price, by the objective.
func (m *model) saves(amount float64) string {
	if m.cfg.Objective == LowestPrice {
		return fmt.Sprintf("%.4g of the price", amount)
	}
	return fmt.Sprintf("%.4g vCPUs", amount)
}
