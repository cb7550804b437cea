package main

import (
	_ "embed"
	"fmt"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// mlrsearchVersion is the peer's on PyPI.
const mlrsearchVersion = "1.2.1"

//go:embed mlrsearch/bridge.py
var mlrsearchSource []byte

func mlrsearchPeer() pythonPeer {
	return pythonPeer{name: "MLRsearch", pkg: "MLRsearch==" + mlrsearchVersion, script: mlrsearchSource}
}

// A peer is MLRsearch in a process of its own, which asks for one trial after
// the other.
type peer struct{ *dialogue }

// A request is what the peer says: a trial that it wants, or its bounds.
type request struct {
	Load     float64  `json:"load"`
	Duration float64  `json:"duration"`
	Done     bool     `json:"done"`
	Low      *float64 `json:"low"`
	High     *float64 `json:"high"`
}

// search runs one search on the function, with its trials in simulated time:
// the function rests for the overhead before each.
// A configuration without a precision leaves all but the range and the threshold
// to the package's defaults.
func (p peer) search(f sim.Subject, sizing vitrine.Sizing, cfg rate.Config) (sim.Score, error) {
	asked := map[string]float64{"min": cfg.Min, "max": cfg.Max, "loss": 1 - cfg.Thresholds[0]}
	if cfg.Precision > 0 {
		asked["width"], asked["shortest"], asked["longest"] = cfg.Precision, 1, cfg.Duration.Seconds()
	}
	err := p.say(asked)
	on := f.Deploy(sizing, 1, 0)
	var load, wall time.Duration
	attempts := map[float64]int{}
	for trials := 0; err == nil; trials++ {
		var ask request
		if err = p.hear(&ask); err != nil {
			break
		}
		if ask.Done {
			low, high := cfg.Min, cfg.Max
			if ask.Low != nil {
				low = *ask.Low
			}
			if ask.High != nil {
				high = *ask.High
			}
			return sim.JudgeBounds(low, high, f.Capacity(sizing, cfg.Thresholds[0]), trials, load, wall), nil
		}
		duration := time.Duration(ask.Duration * float64(time.Second))
		on.Rest(cfg.Overhead)
		attempts[ask.Load]++
		o := on.Run(sim.Trial{Sizing: sizing, Rate: ask.Load, Duration: duration, Repeat: 1, Attempt: attempts[ask.Load]})
		load += duration
		wall += duration + cfg.Overhead
		err = p.say(map[string]int64{"offered": o.Scheduled, "lost": o.Scheduled - o.Succeeded})
	}
	return sim.Score{}, fmt.Errorf("MLRsearch: %w", err)
}
