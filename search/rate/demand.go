package rate

import (
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"vitrine"
)

// A Demand is the CPU that one component's instances use together, as a line over
// the accepted rate. Work shows as its slope, idle work as its intercept, and
// waiting (sleeps, timers) as a poor fit.
type Demand struct {
	Component string
	PerCall   float64 // CPU-seconds per call that succeeded
	Idle      float64 // CPUs at no load
	R2        float64 // share of the variance that the line explains, 0..1
	// R2Medians is the R2 of a line through the medians over the trials of each
	// offered rate. It leaves out how the host varies between trials. NaN: fewer
	// than leastTrials rates.
	R2Medians float64
	// The trials that the fit rests on: accepted rate, and CPUs used.
	Rates, CPUs []float64
}

// leastTrials is the fewest trials that a Demand rests on.
const leastTrials = 4

// saturated is the share of its quota at which an instance's CPU no longer shows
// its load: the quota holds it back, and it works on a queue.
const saturated = 0.9

// Demands fits each component's CPU to the accepted rate over the valid trials of
// one sizing whose success ratio is at least ratio. Beyond its capacity, a
// function also works for calls that it refuses. The fit of a component leaves
// out trials in which one of its instances was at its quota. Components are
// sorted by name; a component that was not read, or in too few trials, is left
// out.
func Demands(history []vitrine.Outcome, ratio float64) []Demand {
	rates, cpus, offered := map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	for _, o := range history {
		if !o.Valid || o.SuccessRatio() < ratio || o.Duration <= 0 {
			continue
		}
		for component, cpu := range componentCPU(o) {
			rates[component] = append(rates[component], float64(o.Succeeded)/o.Duration.Seconds())
			cpus[component] = append(cpus[component], cpu)
			offered[component] = append(offered[component], o.Rate)
		}
	}
	var all []Demand
	for _, component := range slices.Sorted(maps.Keys(rates)) {
		x, y := rates[component], cpus[component]
		if len(x) < leastTrials || stat.Variance(x, nil) == 0 {
			continue
		}
		d := Demand{Component: component, Rates: x, CPUs: y}
		d.Idle, d.PerCall, d.R2 = leastSquares(x, y)
		d.R2Medians = math.NaN()
		if mx, my := medians(offered[component], x, y); len(mx) >= leastTrials {
			_, _, d.R2Medians = leastSquares(mx, my)
		}
		all = append(all, d)
	}
	return all
}

// leastSquares returns the least-squares line, and the share of y's variance that
// it explains.
func leastSquares(x, y []float64) (intercept, slope, r2 float64) {
	intercept, slope = stat.LinearRegression(x, y, nil, false)
	if stat.Variance(y, nil) > 0 {
		r2 = stat.RSquared(x, y, nil, intercept, slope)
	}
	return intercept, slope, r2
}

// medians returns the medians of x and y over the points of each group.
func medians(group, x, y []float64) (mx, my []float64) {
	for _, g := range slices.Compact(slices.Sorted(slices.Values(group))) {
		var gx, gy []float64
		for i := range group {
			if group[i] == g {
				gx, gy = append(gx, x[i]), append(gy, y[i])
			}
		}
		mx, my = append(mx, median(gx)), append(my, median(gy))
	}
	return mx, my
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// componentCPU adds the CPU of each component's instances. It leaves out a
// component with an instance that was not read or was at its quota.
func componentCPU(o vitrine.Outcome) map[string]float64 {
	sum, without := map[string]float64{}, map[string]bool{}
	for _, instance := range slices.Sorted(maps.Keys(o.Use)) {
		u := o.Use[instance]
		if u.Component == vitrine.Generator {
			continue
		}
		if u.CPU == nil || u.VCPUs > 0 && *u.CPU >= saturated*u.VCPUs {
			without[u.Component] = true
			continue
		}
		sum[u.Component] += *u.CPU
	}
	maps.DeleteFunc(sum, func(component string, _ float64) bool { return without[component] })
	return sum
}
