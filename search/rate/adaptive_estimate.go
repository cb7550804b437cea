package rate

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

// Estimate implements Estimator. The interval is that within which the capacity
// lies with the probability Config.Confidence, given the trials; with
// Config.Repeat above 1 it is of the capacity that deployments have around which
// they differ. It is not bound to the rates that passed and failed, for success
// near the capacity says more than that. Censoring is as Estimate has it, but
// for the ends of Config's range instead of the rates tried.
func (a *adaptive) Estimate(history []vitrine.Outcome) []vitrine.Capacity {
	if a.wrong != nil {
		return make([]vitrine.Capacity, len(a.cfg.Thresholds))
	}
	return newView(a.cfg, history).capacities()
}

func (v *view) capacities() []vitrine.Capacity {
	all := make([]vitrine.Capacity, len(v.cfg.Thresholds))
	for i, threshold := range v.cfg.Thresholds {
		all[i] = v.capacity(v.aim(i))
		all[i].Threshold = threshold
		if i > 0 { // a lower threshold never has a lower capacity
			above := all[i-1]
			all[i].Rate = max(all[i].Rate, above.Rate)
			all[i].High = max(all[i].High, all[i].Rate)
			all[i].Low = min(max(all[i].Low, above.Low), all[i].Rate)
		}
	}
	return all
}

// capacity is where the belief puts it, if trials bound it from both sides or
// lie so near that they tell.
func (v *view) capacity(a aim) vitrine.Capacity {
	lowest, highest := math.Inf(1), 0.0
	passed, failed := false, false
	for _, e := range v.trials {
		lowest, highest = min(lowest, e.rate), max(highest, e.rate)
		passed = passed || e.success >= a.threshold
		failed = failed || e.success < a.threshold
	}
	const bridge = 0.2 // as a logarithm: how far the belief may lie from all that was tried
	tail := (1 - v.cfg.confidence()) / 2
	c := vitrine.Capacity{
		Rate: math.Exp(a.median), Censored: vitrine.CensoredNone,
		Low: math.Exp(a.belief.quantile(tail)), High: math.Exp(a.belief.quantile(1 - tail)),
	}
	switch {
	case len(v.trials) == 0:
		return vitrine.Capacity{Censored: vitrine.CensoredGenerator}
	case !passed && (a.lowest || a.median < math.Log(lowest)-bridge):
		return vitrine.Capacity{Rate: lowest, Low: 0, High: lowest, Censored: vitrine.CensoredBelow}
	case !failed && (a.top || a.median > math.Log(highest)+bridge):
		c = vitrine.Capacity{Rate: highest, Low: min(c.Low, highest), High: highest, Censored: vitrine.CensoredAbove}
		if v.ceiling.tries > 0 {
			c.Censored = vitrine.CensoredGenerator
		}
	}
	c.High = min(max(c.High, c.Rate), v.cfg.Max)
	c.Rate = min(c.Rate, c.High)
	c.Low = min(c.Low, c.Rate)
	return c
}

func quantileNormal(p float64) float64 { return distuv.UnitNormal.Quantile(p) }
