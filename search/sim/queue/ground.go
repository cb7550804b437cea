package queue

import (
	"math"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// Costs returns the costs of a campaign on a server.
func Costs() sim.Costs {
	return sim.Costs{Warmup: 2 * time.Second, Trial: 3 * time.Second, Restart: 10 * time.Second}
}

// Config returns the configuration of a search on a server.
func Config(precision float64) rate.Config {
	costs := Costs()
	return rate.Config{
		Min: Lowest, Max: Highest, Duration: 10 * time.Second, Repeat: 5, Thresholds: []float64{0.9},
		Precision: precision, Overhead: costs.Warmup + costs.Trial, Seed: 1,
	}
}

// mostTrials stops a search that does not end.
const mostTrials = 3000

// A Result is the result of a search on a server.
type Result struct {
	sim.Score
	Bias          float64 // ln(estimate/truth)
	Contradiction string  // how the interval contradicts the trials; empty: it does not
	History       []vitrine.Outcome
}

// Search runs a search on the server and judges it at the first threshold.
func (s *Server) Search(search rate.Search, cfg rate.Config) Result {
	m := sim.Drive(s, Sizing(), search, cfg, Costs(), mostTrials)
	truth := s.CapacityOver(cfg.Thresholds[0], m.Wall)
	r := Result{Score: sim.Judge(m, truth), History: m.History}
	r.Bias = math.Log(r.Found.Rate / truth)
	steady := func(o vitrine.Outcome) bool { return !rate.Grows(o, cfg.Precision) }
	if err := sim.Contradicts(r.Found, m.History, steady); err != nil {
		r.Contradiction = err.Error()
	}
	return r
}

// Run returns the server for the k-th search on a family of the set, with its own
// seed.
func (set Set) Run(family string, k int) *Server {
	s := set.Server(family, k%Size)
	return s.Seeded(s.Seed + uint64(k/Size+1)*0x9e3779b97f4a7c15)
}
