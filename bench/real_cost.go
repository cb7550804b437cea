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
// run; NaN: not known. The CPU time of a call follows a power of the rate that is the same in all
// runs.
func callCosts(runs []judged) []float64 {
	found := slices.DeleteFunc(slices.Clone(runs), func(j judged) bool { return !j.found() })
	middle := stat.Mean(values(found, func(j judged) float64 { return j.Capacity.Rate }), nil)
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
	least, most float64 // CPU time of a call, as a ratio to the median run
	power       float64 // capacity ~ (CPU time of a call)^power
	correlation float64 // of their logarithms
}

// effectOfCosts fits the runs whose costs are known; all runs found a capacity. The result is false if
// they are fewer than five.
func effectOfCosts(runs []judged) (e costEffect, ok bool) {
	const fewest = 5
	var costs, capacities []float64
	for i, c := range callCosts(runs) {
		if !math.IsNaN(c) {
			costs, capacities = append(costs, math.Log(c)), append(capacities, math.Log(runs[i].Capacity.Rate))
		}
	}
	if len(costs) < fewest {
		return e, false
	}
	_, e.power = stat.LinearRegression(costs, capacities, nil, false)
	e.correlation = stat.Correlation(costs, capacities, nil)
	e.least, e.most = math.Exp(slices.Min(costs)), math.Exp(slices.Max(costs))
	return e, true
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
