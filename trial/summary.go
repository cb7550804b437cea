package trial

import (
	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/search/size"
	"vitrine/spec"
)

// A finding is the result for one sizing under one choice of the options.
type finding struct {
	choice     spec.Choice
	unlimited  bool   // its instances booted without their quota
	unfinished string // why the search for its capacity did not end; empty: it ended
	size.Profiled
}

// evaluate evaluates the trials of one sizing and adds the result to the summary. For disturbed
// trials, only their number and their time count. stopped is the error that stopped the search for
// rates, or nil.
func (c *Campaign) evaluate(s *site, rates seeking, all []vitrine.Outcome, stopped error) vitrine.Measured {
	choice, sizing, history := s.choice, s.sizing, vitrine.Undisturbed(all)
	m := vitrine.Measured{
		Again:      rates.again,
		Sizing:     sizing,
		Resources:  c.Deployment.Resources(sizing),
		Capacities: rates.estimate(history),
		Confidence: c.Workload.Confidence,
	}
	m.Utilization = rate.UseAtCapacity(history, m.Capacities[0])
	m.Bottleneck, _ = size.Bottleneck(m.Utilization, c.Deployment.Mode.ScaleOn)
	m.Loads = rate.Loads(history, m.Capacities[0].Threshold)
	unfinished := ""
	if stopped != nil {
		unfinished = oneLine(stopped).Error()
	}
	c.found = append(c.found, finding{choice, s.unlimited, unfinished, size.Profiled{Measured: m, Boot: s.boot(), History: history}})
	c.summary.Sizings = append(c.summary.Sizings, result.Sizing{
		Name: sizing.String(), VCPUs: m.Resources.VCPUs, MemoryBytes: m.Resources.Memory,
		Substrate: choice.Substrate, Options: choice.Options, Again: m.Again, Unfinished: unfinished,
		Capacities: m.Capacities, Bottleneck: m.Bottleneck, Utilization: m.Utilization[c.Deployment.Mode.ScaleOn],
		Trials: len(all), Ended: count(all, func(o vitrine.Outcome) bool { return o.InstanceEnded }), LoadSeconds: rate.LoadSeconds(all),
		Search: searchConfig(c.Workload.Search, rates.cfg),
	})
	c.summary.InvalidTrials += count(all, func(o vitrine.Outcome) bool { return !o.Valid })
	return m
}

func count(all []vitrine.Outcome, is func(vitrine.Outcome) bool) (n int) {
	for _, o := range all {
		if is(o) {
			n++
		}
	}
	return n
}

// conclude names the best of the measured sizings.
func (c *Campaign) conclude() {
	finalists, why := c.finalists()
	var measured []vitrine.Measured
	for _, i := range finalists {
		measured = append(measured, c.found[i].Measured)
	}
	best := 0
	if len(finalists) != 1 || why == "" {
		var ours string
		best, ours = size.Best(measured, c.objective())
		if best >= 0 || why == "" {
			why = ours
		}
	}
	if best < 0 {
		c.summary.StoppedBecause += "; no size is optimal: " + why
		return
	}
	row := c.summary.Sizings[finalists[best]]
	c.summary.Optimal = &result.Optimal{Sizing: row.Name, Why: why, Substrate: row.Substrate, Options: row.Options}
}

func (c *Campaign) objective() size.Objective {
	mode := c.Deployment.Mode
	o := size.Objective{
		Limit: vitrine.Resources{VCPUs: mode.Limit.VCPUs, Memory: int64(mode.Limit.Memory)},
		Reach: mode.Reach, Unit: c.Workload.Unit,
	}
	if mode.Objective == spec.LowestPrice {
		o.Price = c.space.Price
	}
	return o
}

// finalists returns the indices of the findings that may be the best. A finding whose search did not
// end is never one, because its few trials may show any capacity. If the search chooses a sizing,
// the finalists are its choices, at most one for each choice of the options, and why is its reason
// for the last one. Otherwise all other findings are finalists.
func (c *Campaign) finalists() (finalists []int, why string) {
	chooser, chooses := c.search.(size.Chooser)
	for _, choice := range c.choices {
		var history []vitrine.Measured
		var from []int
		for i, f := range c.found {
			if f.choice == choice && f.unfinished == "" {
				history, from = append(history, f.Measured), append(from, i)
			}
		}
		if !chooses {
			finalists = append(finalists, from...)
			continue
		}
		if len(history) == 0 {
			continue
		}
		chosen, because := chooser.Choose(history)
		if chosen >= 0 {
			finalists = append(finalists, from[chosen])
		}
		if chosen >= 0 || len(finalists) == 0 {
			why = because
		}
	}
	if n := len(c.found); len(finalists) == 0 && why == "" && n > 0 && c.found[n-1].unfinished != "" {
		why = "the search for the capacity of " + c.found[n-1].Sizing.String() + " did not end"
	}
	return finalists, why
}
