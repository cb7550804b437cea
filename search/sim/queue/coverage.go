package queue

import (
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"vitrine/search/sim"
)

// A Tally holds the results of one search on one family.
type Tally []Result

// A FamilyFigure sums up the results of one search on one family. Width, trials,
// deployments and load are medians.
type FamilyFigure struct {
	Family         string  `json:"family"`
	Runs           int     `json:"runs"`
	Held           int     `json:"held"` // intervals that hold the truth
	Contradictions int     `json:"contradictions"`
	Bias           float64 `json:"-"`     // mean of ln(estimate/truth)
	Width          float64 `json:"width"` // of the interval, as a share of the estimate
	Trials         float64 `json:"trials"`
	Deployments    float64 `json:"deployments"`
	Load           float64 `json:"load_s"`
	Wall           float64 `json:"wall_s"`
}

// Figure sums up the tally.
func (t Tally) Figure(family string) FamilyFigure {
	return FamilyFigure{
		Family: family, Runs: len(t), Held: t.Held(), Contradictions: t.Contradictions(),
		Bias: t.Mean(func(r Result) float64 { return r.Bias }), Width: t.Median(sim.Width), Trials: t.Median(sim.Trials),
		Deployments: t.Median(sim.Restarts), Load: t.Median(sim.Load), Wall: t.Median(sim.Wall),
	}
}

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
