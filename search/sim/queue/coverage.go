package queue

import (
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"vitrine/search/sim"
)

// A Tally holds the results of one search on one family.
type Tally []Result

// Held returns how many intervals hold the truth.
func (t Tally) Held() int {
	n := 0
	for _, r := range t {
		if r.Covered {
			n++
		}
	}
	return n
}

// Contradictions returns how many intervals contradict their trials.
func (t Tally) Contradictions() int {
	n := 0
	for _, r := range t {
		if r.Contradiction != "" {
			n++
		}
	}
	return n
}

// Median returns the median of a figure over all results.
func (t Tally) Median(figure func(sim.Score) float64) float64 {
	values := make([]float64, len(t))
	for i, r := range t {
		values[i] = figure(r.Score)
	}
	slices.Sort(values)
	return stat.Quantile(0.5, stat.Empirical, values, nil)
}

// Mean returns the mean of a figure over all results.
func (t Tally) Mean(figure func(Result) float64) float64 {
	sum := 0.0
	for _, r := range t {
		sum += figure(r)
	}
	return sum / float64(len(t))
}

// TooFew returns the probability that at most held intervals hold the truth, if
// each holds it with the confidence: an exact binomial test.
func TooFew(held, runs int, confidence float64) float64 {
	if held >= runs {
		return 1
	}
	// P(X <= held) of a binomial variable, by the regularized incomplete beta function.
	return distuv.Beta{Alpha: float64(runs - held), Beta: float64(held + 1)}.CDF(1 - confidence)
}
