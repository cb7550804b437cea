package queue

import (
	"math"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// Costs are those of a campaign on a server.
func Costs() sim.Costs {
	return sim.Costs{Warmup: 2 * time.Second, Trial: 3 * time.Second, Restart: 10 * time.Second}
}

// Config is what a search on a server is asked for.
func Config(precision float64) rate.Config {
	costs := Costs()
	return rate.Config{
		Min: Lowest, Max: Highest, Duration: 10 * time.Second, Repeat: 5, Thresholds: []float64{0.9},
		Precision: precision, Overhead: costs.Warmup + costs.Trial, Seed: 1,
	}
}

// mostTrials ends a search that does not end.
const mostTrials = 3000

// A Result is what became of a search on a server.
type Result struct {
	sim.Score
	Bias          float64 // ln(estimate/truth)
	Contradiction string  // of the trials, by the interval; empty: none
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

// Run is the k-th search of many on a set's family: its server, with luck of its
// own.
func (set Set) Run(family string, k int) *Server {
	s := set.Server(family, k%Size)
	return s.Seeded(s.Seed + uint64(k/Size+1)*0x9e3779b97f4a7c15)
}
