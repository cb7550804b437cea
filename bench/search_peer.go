package main

import (
	_ "embed"
	"fmt"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// mlrsearchVersion is the version of MLRsearch on PyPI.
const mlrsearchVersion = "1.2.1"

//go:embed mlrsearch/bridge.py
var mlrsearchSource []byte

func mlrsearchPeer() pythonPeer {
	return pythonPeer{name: "MLRsearch", pkg: "MLRsearch==" + mlrsearchVersion, script: mlrsearchSource}
}

// A peer is MLRsearch in its own process. It asks for one trial at a time.
type peer struct{ *dialogue }

// A request is a message from the peer: a wanted trial, or its final bounds.
type request struct {
	Load     float64  `json:"load"`
	Duration float64  `json:"duration"`
	Done     bool     `json:"done"`
	Low      *float64 `json:"low"`
	High     *float64 `json:"high"`
}

// search runs one search on the function. Trials take simulated time, and the function rests for
// the overhead before each trial. If the configuration has no precision, only the range and the
// threshold are ours, and all other settings are the package's defaults.
func (p peer) search(f sim.Subject, sizing vitrine.Sizing, cfg rate.Config) (sim.Score, error) {
	asked := map[string]float64{"min": cfg.Min, "max": cfg.Max, "loss": 1 - cfg.Thresholds[0]}
	if cfg.Precision > 0 {
		asked["width"], asked["shortest"], asked["longest"] = cfg.Precision, 1, cfg.Duration.Seconds()
	}
	err := p.send(asked)
	on := f.Deploy(sizing, 1, 0)
	var load, wall time.Duration
	attempts := map[float64]int{}
	for trials := 0; err == nil; trials++ {
		var ask request
		if err = p.receive(&ask); err != nil {
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
		err = p.send(map[string]int64{"offered": o.Scheduled, "lost": o.Scheduled - o.Succeeded})
	}
	return sim.Score{}, fmt.Errorf("MLRsearch: %w", err)
}
