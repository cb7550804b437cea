package sim

import (
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/size"
)

// A Subject is a simulation that a search can be tried on: a Function, or a Trace
// of recorded trials.
type Subject interface {
	Resources(sizing vitrine.Sizing) vitrine.Resources
	// Capacity returns the true capacity for the threshold.
	Capacity(sizing vitrine.Sizing, threshold float64) float64
	// Deploy makes a fresh deployment for the repeat. at is the time since the
	// search began.
	Deploy(sizing vitrine.Sizing, repeat int, at time.Duration) Deployment
}

// A Deployment runs trials in the given order, and may remember them.
type Deployment interface {
	// Rest leaves the deployment without load.
	Rest(idle time.Duration)
	Run(Trial) vitrine.Outcome
}

// Costs is what a campaign spends outside the windows of its trials.
type Costs struct {
	Warmup  time.Duration // load before each window
	Trial   time.Duration // of starting and ending a trial; the function rests that long
	Restart time.Duration // of a fresh deployment
}

// A Measurement is what a search of rates learned about one sizing.
type Measurement struct {
	vitrine.Measured
	History []vitrine.Outcome
	Steps   []rate.Step   // why each trial was run, and last why the search ended
	Load    time.Duration // of the windows, invalid ones too
	Wall    time.Duration // the load, warm-ups and all Costs
}

// Drive runs a search of rates on one sizing to its end, as a campaign does, but at
// most the given number of trials. Between trials the function rests for what a trial
// costs, or for as long as the search asks. A stateful function that was overloaded is
// deployed afresh.
func Drive(s Subject, sizing vitrine.Sizing, search rate.Search, cfg rate.Config, costs Costs, most int) Measurement {
	m := Measurement{Measured: vitrine.Measured{Sizing: sizing, Resources: s.Resources(sizing)}}
	var on Deployment
	stale := true // the next trial needs a fresh deployment
	for len(m.History) < most {
		step := search.Next(m.History)
		m.Steps = append(m.Steps, step)
		if step.Done {
			break
		}
		if step.Restart || stale {
			m.Wall += costs.Restart
			on = s.Deploy(sizing, step.Repeat, m.Wall)
		}
		rest := max(costs.Trial, step.Settle)
		on.Rest(rest)
		o := on.Run(Trial{Sizing: sizing, Rate: step.Rate, Duration: step.Duration, Repeat: step.Repeat,
			Attempt: attempt(m.History, step)})
		m.Wall += rest + costs.Warmup + step.Duration
		m.Load += step.Duration
		o.Seq = len(m.History) + 1
		m.History = append(m.History, o)
		stale = cfg.Stateful && o.SuccessRatio() < cfg.Thresholds[0]
	}
	if own, ok := search.(rate.Estimator); ok {
		m.Capacities = own.Estimate(m.History)
	} else {
		m.Capacities = rate.Estimate(m.History, cfg)
	}
	if len(m.Capacities) > 0 {
		m.Utilization = rate.UseAtCapacity(m.History, m.Capacities[0])
		m.Loads = rate.Loads(m.History, m.Capacities[0].Threshold)
		m.Bottleneck, _ = size.Bottleneck(m.Utilization, vitrine.CPU)
	}
	return m
}

func attempt(history []vitrine.Outcome, step rate.Step) int {
	n := 1
	for _, o := range history {
		if o.Repeat == step.Repeat && o.Rate == step.Rate {
			n++
		}
	}
	return n
}

// mostTrials is far more than a search of one sizing takes.
const mostTrials = 1_000_000

// Measure is like Drive, with the configuration's overhead between trials.
func (f *Function) Measure(sizing vitrine.Sizing, search rate.Search, cfg rate.Config) (vitrine.Measured, []vitrine.Outcome) {
	costs := Costs{Warmup: time.Duration(f.Warmup) * time.Second, Trial: cfg.Overhead}
	m := Drive(f, sizing, search, cfg, costs, mostTrials)
	return m.Measured, m.History
}
