package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// referenceDraws is the number of bootstrap samples of an interval.
const referenceDraws = 1000

// A reference is the capacity that blocks of trials show, with its 95% interval.
type reference struct {
	Rate, Low, High float64
	SD              float64 // of the logarithm of Rate, by the bootstrap
	Deployments     int
}

// newReference estimates the rate at which the mean success ratio over fresh deployments meets the
// threshold. It fits a decreasing step function (isotonic regression) to success over rate, and
// interpolates between two rates in the logarithm of the rate. The interval is a bootstrap over
// deployments. Each deployment had one trial. The result is false if the fit does not cross the
// threshold within the rates. The reference then has only Rate and Deployments.
func newReference(trials []realTrial) (reference, bool) {
	trials = slices.DeleteFunc(slices.Clone(trials), func(t realTrial) bool { return t.Invalid != "" })
	slices.SortFunc(trials, func(a, b realTrial) int { return cmp.Compare(a.Rate, b.Rate) })
	x, inside := crossing(trials, realThreshold)
	if !inside {
		return reference{Rate: math.Exp(x), Deployments: len(trials)}, false
	}
	random := rand.New(rand.NewPCG(1, referenceDraws))
	drawn := make([]float64, referenceDraws)
	times := make([]int, len(trials))
	again := make([]realTrial, 0, len(trials))
	for i := range drawn {
		clear(times)
		for range trials {
			times[random.IntN(len(trials))]++
		}
		again = again[:0]
		for k, n := range times { // keeps the trials sorted by rate
			for range n {
				again = append(again, trials[k])
			}
		}
		drawn[i], _ = crossing(again, realThreshold)
	}
	slices.Sort(drawn)
	const tail = referenceDraws / 40
	return reference{
		Rate: math.Exp(x), Low: math.Exp(drawn[tail]), High: math.Exp(drawn[referenceDraws-1-tail]), SD: stat.StdDev(drawn, nil), Deployments: len(trials),
	}, true
}

// A level is a group of trials at neighbouring rates. Isotonic regression gives the
// group one mean.
type level struct {
	sum         float64 // of success
	n           float64 // trials
	first, last float64 // logarithms of the lowest and highest rate
}

func (l level) mean() float64 { return l.sum / l.n }

// crossing returns the logarithm of the rate at which the isotonic fit meets the threshold. The
// trials are sorted by rate. If the fit does not cross the threshold, inside is false and x is the
// logarithm of the lowest or the highest rate.
func crossing(trials []realTrial, threshold float64) (x float64, inside bool) {
	var levels []level
	for i := 0; i < len(trials); {
		l := level{first: math.Log(trials[i].Rate)}
		l.last = l.first
		for r := trials[i].Rate; i < len(trials) && trials[i].Rate == r; i++ {
			l.sum, l.n = l.sum+trials[i].Success, l.n+1
		}
		for n := len(levels); n > 0 && levels[n-1].mean() < l.mean(); n = len(levels) {
			a := levels[n-1]
			l = level{a.sum + l.sum, a.n + l.n, a.first, l.last}
			levels = levels[:n-1]
		}
		levels = append(levels, l)
	}
	if len(levels) == 0 {
		return math.NaN(), false
	}
	for i, l := range levels {
		if l.mean() >= threshold {
			continue
		}
		if i == 0 {
			return l.first, false
		}
		before := levels[i-1]
		share := (before.mean() - threshold) / (before.mean() - l.mean())
		return before.last + share*(l.first-before.last), true
	}
	return levels[len(levels)-1].last, false
}
