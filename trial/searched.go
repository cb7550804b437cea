package trial

import (
	"vitrine/result"
	"vitrine/search/rate"
)

// searched is what the search of a sizing's rates was told, for the report.
func searched(name string, cfg rate.Config) *result.Search {
	return &result.Search{
		Name: name, Min: cfg.Min, Max: cfg.Max, Increase: cfg.Increase, Duration: cfg.Duration.Seconds(), Repeat: cfg.Repeat,
		Precision: cfg.Precision, Confidence: cfg.Confidence, Overhead: cfg.Overhead.Seconds(), Stateful: cfg.Stateful,
		PriorLow: cfg.Prior.Low, PriorHigh: cfg.Prior.High,
	}
}
