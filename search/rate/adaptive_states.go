package rate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

// twoStates splits the samples into two kinds of deployment, at least two of
// each, when the likelihood of two normal distributions of one deviation is far
// above that of a single one. Nil: they are of one kind, or of two that lie
// within half of the precision.
func twoStates(values []float64, precision float64) (lower, upper []float64) {
	n := len(values)
	if n < 2*fewestOfState {
		return nil, nil
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	whole := squares(sorted)
	coarse := precision / 4 / math.Sqrt(12) // deviation that brackets alone make
	least := float64(n) * coarse * coarse
	best, at := math.Inf(1), 0
	for k := fewestOfState; k <= n-fewestOfState; k++ {
		if within := squares(sorted[:k]) + squares(sorted[k:]); within < best {
			best, at = max(within, least), k
		}
	}
	lower, upper = sorted[:at], sorted[at:]
	apart := stat.Mean(upper, nil) - stat.Mean(lower, nil)
	if apart <= precision/2 || whole <= likelihoodRatio(n)*best {
		return nil, nil
	}
	return lower, upper
}

// fewestOfState is how many deployments make a state.
const fewestOfState = 2

// squares is the sum of the squared distances from the mean.
func squares(values []float64) float64 {
	mean, sum := stat.Mean(values, nil), 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return sum
}

// describe gives both capacities and the share of the lower one, with its exact
// interval (Clopper and Pearson, Biometrika 1934).
func describe(lower, upper []float64) *vitrine.TwoStates {
	low, all := float64(len(lower)), float64(len(lower)+len(upper))
	const tail = 0.025
	return &vitrine.TwoStates{
		Lower: math.Exp(stat.Mean(lower, nil)), Upper: math.Exp(stat.Mean(upper, nil)),
		Share:     low / all,
		ShareLow:  distuv.Beta{Alpha: low, Beta: all - low + 1}.Quantile(tail),
		ShareHigh: distuv.Beta{Alpha: low + 1, Beta: all - low}.Quantile(1 - tail),
	}
}

// likelihoodRatio is how many times smaller the best split must make the sum of
// squares of n samples, which is the likelihood ratio to the power 2/n. Of
// samples from one normal distribution one in a thousand exceeds it (40,000
// simulated for each n; between them the stricter one holds).
func likelihoodRatio(n int) float64 {
	table := []struct {
		n     int
		ratio float64
	}{{32, 5.66}, {24, 6.66}, {20, 7.78}, {16, 9.37}, {12, 14.7}, {10, 18.8}, {8, 31.5}, {7, 49.4}, {6, 120}, {5, 308}}
	for _, row := range table {
		if n >= row.n {
			return row.ratio
		}
	}
	return 1290
}
