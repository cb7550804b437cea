package rate

import (
	"maps"
	"slices"

	"vitrine"
)

// carried is the success ratio from which on the CPU that a trial used is that
// of the calls that succeeded: below it, calls that are turned away cost too.
const carried = 0.97

// Loads is what the valid trials of one sizing cost each component: those with
// a success ratio of at least carried, or where none is, of at least ratio.
// Trials are in their order, a trial's components in that of their names; a
// component of which an instance was not read is left out of the trial.
func Loads(history []vitrine.Outcome, ratio float64) []vitrine.Load {
	passed := func(least float64) (trials []vitrine.Outcome) {
		for _, o := range history {
			if counts(o) && o.SuccessRatio() >= least && o.Duration > 0 {
				trials = append(trials, o)
			}
		}
		return trials
	}
	trials := passed(max(carried, ratio))
	if len(trials) == 0 {
		trials = passed(ratio)
	}
	busiest := busiest(trials)
	var loads []vitrine.Load
	for _, o := range trials {
		at := map[string]*vitrine.Load{}
		unread := map[string]bool{}
		for _, instance := range slices.Sorted(maps.Keys(o.Use)) {
			u := o.Use[instance]
			if u.Component == vitrine.Generator {
				continue
			}
			if u.CPU == nil {
				unread[u.Component] = true
				continue
			}
			l := at[u.Component]
			if l == nil {
				l = &vitrine.Load{Component: u.Component, VCPUs: u.VCPUs, Rate: float64(o.Succeeded) / o.Duration.Seconds()}
				at[u.Component] = l
			}
			l.Instances++
			l.CPU += *u.CPU
			if instance == busiest[u.Component] {
				l.Busiest = *u.CPU
			}
		}
		for _, component := range slices.Sorted(maps.Keys(at)) {
			if !unread[component] {
				loads = append(loads, *at[component])
			}
		}
	}
	return loads
}

// busiest names, by component, the instance that used most over all trials: the
// highest reading of each trial alone would be that of the luckiest noise.
func busiest(trials []vitrine.Outcome) map[string]string {
	total, component := map[string]float64{}, map[string]string{}
	for _, o := range trials {
		for instance, u := range o.Use {
			component[instance] = u.Component
			if u.CPU != nil {
				total[instance] += *u.CPU
			}
		}
	}
	most := map[string]string{}
	for _, instance := range slices.Sorted(maps.Keys(component)) {
		if first, seen := most[component[instance]]; !seen || total[instance] > total[first] {
			most[component[instance]] = instance
		}
	}
	return most
}
