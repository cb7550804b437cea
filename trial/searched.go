package trial

import (
	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/search/size"
)

// A seeking is the search for one sizing's rates.
type seeking struct {
	search rate.Search
	cfg    rate.Config
	again  bool // the sizing was measured before; only this measurement counts
}

// newSeeking makes the search for the sizing's rates. It begins at the capacity that the search
// for sizings expects.
func (c *Campaign) newSeeking(chosen size.Step) (seeking, error) {
	cfg := c.rateConfig()
	const doubled = 2 // growth by one flavor or instance rarely more than doubles the capacity
	switch p := chosen.Predicted; {
	case p != nil:
		cfg.Prior = rate.Prior{Low: p.Low, High: p.High}
	case chosen.Grown > 0:
		cfg.Prior = rate.Prior{Low: chosen.Grown, High: doubled * chosen.Grown}
	}
	search, err := c.rateSearch(cfg)
	return seeking{search, cfg, chosen.Again}, err
}

// estimate returns the capacities according to the trials. If the search has its own estimate,
// estimate returns that.
func (s seeking) estimate(history []vitrine.Outcome) []vitrine.Capacity {
	if own, ok := s.search.(rate.Estimator); ok {
		return own.Estimate(history)
	}
	return rate.Estimate(history, s.cfg)
}

// searchConfig returns the configuration of a sizing's rate search, for the report.
func searchConfig(name string, cfg rate.Config) *result.Search {
	return &result.Search{
		Name: name, Min: cfg.Min, Max: cfg.Max, Increase: cfg.Increase, Duration: cfg.Duration.Seconds(), Repeat: cfg.Repeat,
		Precision: cfg.Precision, Confidence: cfg.Confidence, Overhead: cfg.Overhead.Seconds(), Stateful: cfg.Stateful,
		PriorLow: cfg.Prior.Low, PriorHigh: cfg.Prior.High,
	}
}
