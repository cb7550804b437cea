package rate

import (
	"math"

	"vitrine"
)

// A ceiling bounds the rates from above, beside the range.
type ceiling struct {
	rate    float64 // highest rate to offer
	invalid float64 // lowest rate above the valid ones that could not be measured; 0: none
	tries   int     // trials above the valid rates
	final   bool    // enough of them to believe the ceiling
}

// findCeiling looks for rates that cannot be measured. A trial may be invalid by
// bad luck. So only trials above all valid rates count. The ceiling is final
// after several of them, or when two say how much of the rate the generator could
// offer.
func findCeiling(cfg Config, history []vitrine.Outcome) ceiling {
	const short = 0.985 // share of the schedule below which the generator is at fault
	const below = 0.97  // share of the generator's limit that is offered
	valid := 0.0
	for _, o := range history {
		if counts(o) {
			valid = max(valid, o.Rate)
		}
	}
	c := ceiling{rate: cfg.Max}
	offers, reports := math.Inf(1), 0
	for _, o := range history {
		if counts(o) || o.Rate <= valid {
			continue
		}
		c.tries++
		if c.invalid == 0 || o.Rate < c.invalid {
			c.invalid = o.Rate
		}
		if share := float64(o.Offered) / float64(o.Scheduled); o.Scheduled > 0 && o.Offered > 0 && share < short {
			offers, reports = min(offers, below*share*o.Rate), reports+1
		}
	}
	if c.tries == 0 {
		return c
	}
	c.final = c.tries >= cfg.attempts() || reports >= 2
	switch {
	case reports > 0 && offers > 1.03*valid:
		c.rate = offers
	case c.final && valid > 0:
		c.rate = valid
	case valid > 0:
		c.rate = math.Sqrt(valid * c.invalid)
	default:
		c.rate = math.Sqrt(cfg.Min * c.invalid)
	}
	c.rate = min(max(c.rate, cfg.Min), cfg.Max)
	return c
}
