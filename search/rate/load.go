package rate

import (
	"maps"
	"slices"

	"vitrine"
)

// carried is the lowest success ratio at which a trial's CPU counts as that of
// the successful calls: below it, refused calls cost too.
const carried = 0.97

// Loads returns what the valid trials of one sizing cost each component. It takes
// the trials with a success ratio of at least carried or, if there are none, of
// at least ratio. Trials keep their order, and the components of a trial are
// sorted by name. A component with an instance that was not read is left out of
// the trial.
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

// busiest returns, for each component, the instance that used most over all
// trials. The highest reading of each single trial would be biased by noise.
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
