package rate

import (
	"maps"
	"slices"

	"gonum.org/v1/gonum/stat"

	"vitrine"
)

// A Demand is what one component's instances together take of the CPU, as a
// line over the rate that was accepted: work shows as a slope, idle work as an
// intercept, and waiting (sleeps, timers) as a poor fit.
type Demand struct {
	Component string
	PerCall   float64 // CPU-seconds per call that succeeded
	Idle      float64 // CPUs at no load
	R2        float64 // share of the variance that the line explains, 0..1
	// The trials that the fit rests on: accepted rate, and CPUs used.
	Rates, CPUs []float64
}

// leastTrials is how many trials a Demand rests on at least.
const leastTrials = 4

// saturated is the share of its quota from which on an instance's CPU says
// nothing of its load: it is held back, and works on a queue.
const saturated = 0.9

// Demands fits each component's CPU to the accepted rate over the valid trials
// of one sizing whose success ratio is at least ratio: beyond its capacity a
// function also works for calls that it turns away. Trials in which an instance
// of the component was at its quota have no part in the component's fit.
// Components are in the order of their names; one that was not read, or in too
// few trials, is left out.
func Demands(history []vitrine.Outcome, ratio float64) []Demand {
	rates, cpus := map[string][]float64{}, map[string][]float64{}
	for _, o := range history {
		if !o.Valid || o.SuccessRatio() < ratio || o.Duration <= 0 {
			continue
		}
		for component, cpu := range componentCPU(o) {
			rates[component] = append(rates[component], float64(o.Succeeded)/o.Duration.Seconds())
			cpus[component] = append(cpus[component], cpu)
		}
	}
	var all []Demand
	for _, component := range slices.Sorted(maps.Keys(rates)) {
		x, y := rates[component], cpus[component]
		if len(x) < leastTrials || stat.Variance(x, nil) == 0 {
			continue
		}
		idle, slope := stat.LinearRegression(x, y, nil, false)
		d := Demand{Component: component, PerCall: slope, Idle: idle, Rates: x, CPUs: y}
		if stat.Variance(y, nil) > 0 {
			d.R2 = stat.RSquared(x, y, nil, idle, slope)
		}
		all = append(all, d)
	}
	return all
}

// componentCPU adds the CPU of each component's instances; a component with an
// instance that was not read, or was at its quota, is left out.
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
