package main

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// Trials at these shares of the capacity show the CPU time of a call. Nearer to the capacity,
// an instance uses its whole quota, so the CPU time of a call is the quota over the rate, whatever
// the host does.
const costFrom, costTo = 0.5, 0.75

// callCosts returns the CPU time of a call in each run at the same rate, as a ratio to the median
// run on the same host; NaN: not known. Hosts are not compared, because their capacities differ too
// much: a rate that shows the cost of a call on one host may be close to the capacity of another.
func callCosts(runs []judged) []float64 {
	costs := make([]float64, len(runs))
	for _, host := range hostsOf(runs) {
		own := costsOnHost(onHost(runs, host))
		for i, j := range runs {
			if j.host() == host {
				costs[i], own = own[0], own[1:]
			}
		}
	}
	return costs
}

// costsOnHost is callCosts for runs on one host. The CPU time of a call follows a power of the rate
// that is the same in all these runs.
func costsOnHost(runs []judged) []float64 {
	middle := stat.Mean(values(withCapacity(runs), func(j judged) float64 { return j.Capacity.Rate }), nil)
	rates, cpus := make([][]float64, len(runs)), make([][]float64, len(runs)) // logarithms
	var xx, xy float64
	for i, j := range runs {
		for _, t := range j.Trials {
			if t.showsCost(middle) {
				rates[i], cpus[i] = append(rates[i], math.Log(t.Rate/middle)), append(cpus[i], math.Log(t.CPU))
			}
		}
		mean := stat.Mean(rates[i], nil)
		for k, x := range rates[i] {
			xx, xy = xx+(x-mean)*(x-mean), xy+(x-mean)*cpus[i][k]
		}
	}
	power := 0.0
	if xx > 0 {
		power = xy / xx
	}
	costs := make([]float64, len(runs))
	for i := range runs {
		costs[i] = math.Exp(stat.Mean(cpus[i], nil) - power*stat.Mean(rates[i], nil))
	}
	usual := math.NaN() // of a single run, which has nothing to be compared with
	if known := slices.DeleteFunc(slices.Clone(costs), math.IsNaN); len(known) > 1 {
		usual = median(known)
	}
	return values(costs, func(c float64) float64 { return c / usual })
}

// A costEffect says how the capacities of runs follow the CPU time of a call.
type costEffect struct {
	least, most float64 // CPU time of a call, as a ratio to the median run on the same host
	power       float64 // capacity ~ (CPU time of a call)^power
	correlation float64 // of their logarithms
}

// effectOfCosts fits the runs whose costs are known, with a constant for each host; all runs found a
// capacity. The result is false with fewer than four such runs, not counting one of each host.
func effectOfCosts(runs []judged) (e costEffect, ok bool) {
	const fewest = 4
	var ratios, costs, capacities []float64 // logarithms
	beyond := 0
	for _, host := range hostsOf(runs) {
		own := onHost(runs, host)
		var x, y []float64
		for i, c := range costsOnHost(own) {
			if !math.IsNaN(c) {
				x, y = append(x, math.Log(c)), append(y, math.Log(own[i].Capacity.Rate))
			}
		}
		ratios, costs, capacities = append(ratios, x...), append(costs, centred(x)...), append(capacities, centred(y)...)
		beyond += max(0, len(x)-1)
	}
	if beyond < fewest {
		return e, false
	}
	_, e.power = stat.LinearRegression(costs, capacities, nil, false)
	e.correlation = stat.Correlation(costs, capacities, nil)
	e.least, e.most = math.Exp(slices.Min(ratios)), math.Exp(slices.Max(ratios))
	return e, true
}

// centred returns the numbers less their mean.
func centred(all []float64) []float64 {
	mean := stat.Mean(all, nil)
	return values(all, func(x float64) float64 { return x - mean })
}

// A sensitivity says how a function's CPU time follows the host's speed.
type sensitivity struct {
	mean, slowest, fastest float64 // speed of the host, as a share of its best
	power                  float64 // CPU time of a call ~ (1/speed)^power, at a constant rate
}

// sensitivity fits the trials of the runs that show the cost of a call, with a constant for each host. The
// result is false if too few of them have both CPU time and speed.
func (all realRecords) sensitivity() (s sensitivity, ok bool) {
	const fewest = 10
	hosts := distinct(all, realRecord.host)
	var x, y, speeds []float64
	for _, r := range all {
		constants := make([]float64, len(hosts))
		constants[slices.Index(hosts, r.host())] = 1
		for _, t := range r.Trials {
			if t.Speed > 0 && t.showsCost(r.Capacity.Rate) {
				x = append(append(x, constants...), math.Log(t.Rate), -math.Log(t.Speed))
				y, speeds = append(y, math.Log(t.CPU)), append(speeds, t.Speed)
			}
		}
	}
	if len(y) < fewest {
		return s, false
	}
	var fit mat.VecDense
	if err := fit.SolveVec(mat.NewDense(len(y), len(hosts)+2, x), mat.NewVecDense(len(y), y)); err != nil {
		return s, false // all rates or all speeds are equal
	}
	return sensitivity{stat.Mean(speeds, nil), slices.Min(speeds), slices.Max(speeds), fit.AtVec(len(hosts) + 1)}, true
}
