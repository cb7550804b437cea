package rate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

// A mixture describes two kinds of deployment by two normal distributions with
// one standard deviation.
type mixture struct {
	lower, upper, sd float64
	inLower          float64 // expected number of samples of the lower kind
}

// mixtureOf splits the samples into two kinds of deployment, at least two of
// each, when the likelihood of two kinds is far above that of one. It returns
// false when there is one kind, or when the two lie within half of the precision.
func mixtureOf(values []float64, precision float64) (mixture, bool) {
	n := len(values)
	if n < 2*fewestOfState {
		return mixture{}, false
	}
	sorted := slices.Sorted(slices.Values(values))
	whole := squares(sorted)
	coarse := precision / 4 / math.Sqrt(12) // standard deviation due to the brackets alone
	least := float64(n) * coarse * coarse
	best, at := math.Inf(1), 0
	for k := fewestOfState; k <= n-fewestOfState; k++ {
		if within := squares(sorted[:k]) + squares(sorted[k:]); within < best {
			best, at = within, k
		}
	}
	best = max(best, least)
	m := mixture{stat.Mean(sorted[:at], nil), stat.Mean(sorted[at:], nil), math.Sqrt(best / float64(n)), float64(at)}
	if m.upper-m.lower <= precision/2 || whole <= likelihoodRatio(n)*best {
		return mixture{}, false
	}
	for range 50 {
		m = m.fitted(sorted, math.Sqrt(least/float64(n)))
	}
	return m, m.inLower >= 1 && m.inLower <= float64(n)-1
}

// fitted returns the mixture after one step of expectation maximization. Its
// standard deviation is at least the given one. Samples between the two kinds
// belong to both in part.
func (m mixture) fitted(values []float64, deviation float64) mixture {
	n := float64(len(values))
	var low, lowSum, highSum, within float64
	lower := make([]float64, len(values)) // probability of the lower kind
	for i, v := range values {
		a := m.inLower * math.Exp(-(v-m.lower)*(v-m.lower)/(2*m.sd*m.sd))
		b := (n - m.inLower) * math.Exp(-(v-m.upper)*(v-m.upper)/(2*m.sd*m.sd))
		lower[i] = 1
		if a+b > 0 {
			lower[i] = a / (a + b)
		} else if v > (m.lower+m.upper)/2 {
			lower[i] = 0
		}
		low += lower[i]
		lowSum += lower[i] * v
		highSum += (1 - lower[i]) * v
	}
	if low <= 0 || low >= n {
		return m
	}
	next := mixture{lower: lowSum / low, upper: highSum / (n - low), inLower: low}
	for i, v := range values {
		within += lower[i]*(v-next.lower)*(v-next.lower) + (1-lower[i])*(v-next.upper)*(v-next.upper)
	}
	next.sd = max(math.Sqrt(within/(n-2)), deviation)
	return next
}

// A retry is the result of one more trial of a deployment, at a rate between two
// states.
type retry int

const (
	notRetried retry = iota
	retryPassed
	retryFailed
)

// stay reports whether deployments of the lower state stay in it: tried again
// between the states, at least two failed, and more than twice as many as passed.
// A deployment that passes was only unlucky. Deployments of stateful functions
// cannot be tried again, and count as staying. undecided says that too few were tried
// again.
func (s samples) stay(m mixture) (stay, undecided bool) {
	failed, passed := 0, 0
	for i, v := range s.values {
		if v > (m.lower+m.upper)/2 {
			continue
		}
		switch s.retries[i] {
		case retryFailed:
			failed++
		case retryPassed:
			passed++
		}
	}
	return s.stateful || failed >= fewestOfState && failed > 2*passed, !s.stateful && failed+passed < fewestOfState
}

// confirm tries the current deployment between two states, when there may be two.
func (c *campaign) confirm(d *deployment, climbs []*deployment) bool {
	if c.cfg.Stateful {
		return true
	}
	m, two := mixtureOf(c.samples(climbs, 0).values, c.cfg.precision())
	if !two {
		return true
	}
	rate := c.round(math.Exp((m.lower + 2*m.upper) / 3))
	r, ok := c.trial(rate, c.window(rate), "between two states of deployments, to see whether this one stays in its own")
	switch {
	case !ok:
		return false
	case r.valid && r.passes(c.cfg.Thresholds[0]):
		d.retry = retryPassed
	case r.valid:
		d.retry = retryFailed
	}
	return true
}

// fewestOfState is how many deployments it takes to make a state.
const fewestOfState = 2

// squares returns the sum of the squared distances from the mean.
func squares(values []float64) float64 {
	mean, sum := stat.Mean(values, nil), 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return sum
}

// describe returns both capacities and the share of the lower one, with its exact
// interval (Clopper and Pearson, Biometrika 1934).
func (m mixture) describe(samples int) *vitrine.TwoStates {
	low, all := m.inLower, float64(samples)
	const tail = 0.025
	return &vitrine.TwoStates{
		Lower: math.Exp(m.lower), Upper: math.Exp(m.upper), Share: low / all,
		ShareLow:  distuv.Beta{Alpha: low, Beta: all - low + 1}.Quantile(tail),
		ShareHigh: distuv.Beta{Alpha: low + 1, Beta: all - low}.Quantile(1 - tail),
	}
}

// likelihoodRatio returns by what factor the best split must reduce the sum of
// squares of n samples. That factor is the likelihood ratio to the power 2/n. One
// in a thousand sets of n samples from one normal distribution exceeds it (40,000
// sets simulated for each n in the table; between them the stricter one holds).
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
