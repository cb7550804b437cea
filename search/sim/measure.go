package sim

import (
	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/size"
)

// Measure runs a search of rates on one sizing to its end, as a campaign does,
// and gives what it learned and all trials.
func (f *Function) Measure(sizing vitrine.Sizing, search rate.Search, cfg rate.Config) (vitrine.Measured, []vitrine.Outcome) {
	var history []vitrine.Outcome
	for {
		step := search.Next(history)
		if step.Done {
			break
		}
		attempt := 1
		for _, o := range history {
			if o.Repeat == step.Repeat && o.Rate == step.Rate {
				attempt++
			}
		}
		o := f.Run(Trial{Sizing: sizing, Rate: step.Rate, Duration: step.Duration, Repeat: step.Repeat, Attempt: attempt})
		o.Seq = len(history) + 1
		history = append(history, o)
	}
	m := vitrine.Measured{Sizing: sizing, Resources: f.Resources(sizing), Capacities: rate.Estimate(history, cfg)}
	if len(m.Capacities) > 0 {
		m.Utilization = rate.UseAtCapacity(history, m.Capacities[0])
		m.Bottleneck, _ = size.Bottleneck(m.Utilization, vitrine.CPU)
	}
	return m, history
}
