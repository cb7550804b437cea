package trial

import (
	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/search/size"
)

// A seeking is the search of one sizing's rates.
type seeking struct {
	search rate.Search
	cfg    rate.Config
	again  bool // the sizing was measured before, and this time counts
}

// seek makes the search of the sizing's rates. What the search of sizings
// believes of it is where it begins.
func (c *Campaign) seek(chosen size.Step) (seeking, error) {
	cfg := c.rateConfig()
	const doubled = 2 // growth by one flavor or instance seldom more than doubles the capacity
	switch p := chosen.Predicted; {
	case p != nil:
		cfg.Prior = rate.Prior{Low: p.Low, High: p.High}
	case chosen.Grown > 0:
		cfg.Prior = rate.Prior{Low: chosen.Grown, High: doubled * chosen.Grown}
	}
	search, err := c.rateSearch(cfg)
	return seeking{search, cfg, chosen.Again}, err
}

// estimate is what the trials show: by the search's own estimate where it has one.
func (s seeking) estimate(history []vitrine.Outcome) []vitrine.Capacity {
	if own, ok := s.search.(rate.Estimator); ok {
		return own.Estimate(history)
	}
	return rate.Estimate(history, s.cfg)
}

// searched is what the search of a sizing's rates was told, for the report.
func searched(name string, cfg rate.Config) *result.Search {
	return &result.Search{
		Name: name, Min: cfg.Min, Max: cfg.Max, Increase: cfg.Increase, Duration: cfg.Duration.Seconds(), Repeat: cfg.Repeat,
		Precision: cfg.Precision, Confidence: cfg.Confidence, Overhead: cfg.Overhead.Seconds(), Stateful: cfg.Stateful,
		PriorLow: cfg.Prior.Low, PriorHigh: cfg.Prior.High,
	}
}
