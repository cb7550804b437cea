package rate

import "math"

// A series is the seconds of a trial as deviations from their mean: of the
// success ratio, as a share of it. white is what the drawing of so few calls
// adds to the variance of each.
type series struct{ deviation, white []float64 }

// A wave is one way in which seconds may deviate: by sigma, of which the next
// second keeps the share phi. Bad seconds thus come in clusters, and a trial of
// n seconds is worth far less than n trials of one.
type wave struct{ sigma, phi, weight float64 }

// A noise is how probable each wave is, given the trials.
type noise []wave

// waves is what is believed of the noise before any trial: of a few percent,
// rather clustered than not. Where trials are too few or too short to tell, it
// stands, so that intervals are not too narrow.
func waves() noise {
	sigmas := [...]wave{{sigma: 0.003, weight: 0.5}, {sigma: 0.01, weight: 2}, {sigma: 0.02, weight: 3}, {sigma: 0.04, weight: 1.5}, {sigma: 0.08, weight: 0.5}, {sigma: 0.16, weight: 0.2}}
	phis := [...]wave{{phi: 0, weight: 1}, {phi: 0.4, weight: 1}, {phi: 0.7, weight: 3}, {phi: 0.85, weight: 3}, {phi: 0.95, weight: 0.7}}
	all := make(noise, 0, len(sigmas)*len(phis))
	for _, s := range sigmas {
		for _, p := range phis {
			all = append(all, wave{sigma: s.sigma, phi: p.phi, weight: s.weight * p.weight})
		}
	}
	all.normalise()
	return all
}

func (n noise) normalise() {
	total := 0.0
	for _, w := range n {
		total += w.weight
	}
	for i := range n {
		n[i].weight /= total
	}
}

// learn weighs the waves by how well they explain the seconds of the trials.
func (n noise) learn(trials []series) {
	fits := make([]float64, len(n))
	best := math.Inf(-1)
	for i, w := range n {
		for _, s := range trials {
			fits[i] += w.fit(s)
		}
		best = max(best, fits[i])
	}
	for i := range n {
		n[i].weight *= math.Exp(fits[i] - best)
	}
	n.normalise()
}

// fit is the log likelihood of the seconds under the wave, whatever their mean
// (restricted maximum likelihood): a Kalman filter for a first-order
// autoregression seen through white noise runs over the seconds and over a
// constant alike, and the constant's share is taken out (Harvey, Forecasting,
// Structural Time Series Models and the Kalman Filter, 1989, section 3.4).
func (w wave) fit(s series) float64 {
	const floor = 1e-8 // of a variance: seconds that are all alike
	stationary := w.sigma*w.sigma + floor
	level, constant, spread := 0.0, 0.0, stationary
	var logs, ee, eg, gg float64
	for t, z := range s.deviation {
		total := spread + s.white[t]
		e, g := z-level, 1-constant
		logs += math.Log(total)
		ee += e * e / total
		eg += e * g / total
		gg += g * g / total
		gain := spread / total
		level = w.phi * (level + gain*e)
		constant = w.phi * (constant + gain*g)
		spread = w.phi*w.phi*spread*(1-gain) + (1-w.phi*w.phi)*stationary
	}
	if gg == 0 {
		return 0
	}
	return -0.5 * (logs + math.Log(gg) + ee - eg*eg/gg)
}

// variance is that of the mean of so many seconds, but for the drawing of calls.
func (n noise) variance(seconds float64) float64 {
	total := 0.0
	for _, w := range n {
		total += w.weight * w.variance(seconds)
	}
	return total
}

func (w wave) variance(seconds float64) float64 {
	n := max(1, seconds)
	keep := (1+w.phi)/(1-w.phi) - 2*w.phi*(1-math.Pow(w.phi, n))/(n*(1-w.phi)*(1-w.phi))
	return w.sigma * w.sigma * keep / n
}
