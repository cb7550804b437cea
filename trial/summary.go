package trial

import (
	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/search/size"
	"vitrine/spec"
)

// learn says what the trials of one sizing show, and enters it in the summary.
func (c *campaign) learn(choice spec.Choice, sizing vitrine.Sizing, history []vitrine.Outcome) vitrine.Measured {
	m := vitrine.Measured{
		Sizing:     sizing,
		Resources:  c.Deployment.Resources(sizing),
		Capacities: rate.Estimate(history, c.rateConfig()),
	}
	m.Utilization = rate.UseAtCapacity(history, m.Capacities[0])
	m.Bottleneck, _ = size.Bottleneck(m.Utilization, c.Deployment.Mode.ScaleOn)
	c.measured = append(c.measured, m)
	c.summary.Sizings = append(c.summary.Sizings, result.Sizing{
		Name: sizing.String(), VCPUs: m.Resources.VCPUs, MemoryBytes: m.Resources.Memory,
		Substrate: choice.Substrate, Options: choice.Options,
		Capacities: m.Capacities, Bottleneck: m.Bottleneck, Utilization: m.Utilization[c.Deployment.Mode.ScaleOn],
		Trials: len(history), LoadSeconds: rate.LoadSeconds(history),
	})
	for _, o := range history {
		if !o.Valid {
			c.summary.InvalidTrials++
		}
	}
	return m
}

// conclude names the best of what was measured.
func (c *campaign) conclude() {
	limit := c.Deployment.Mode.Limit
	best, why := size.Best(c.measured, size.Objective{
		Limit: vitrine.Resources{VCPUs: limit.VCPUs, Memory: int64(limit.Memory)},
		Reach: c.Deployment.Mode.Reach, Unit: c.Workload.Unit,
	})
	if best < 0 {
		c.summary.StoppedBecause += "; no size is optimal: " + why
		return
	}
	row := c.summary.Sizings[best]
	c.summary.Optimal = &result.Optimal{Sizing: row.Name, Why: why, Substrate: row.Substrate, Options: row.Options}
}
