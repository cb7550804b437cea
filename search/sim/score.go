package sim

import (
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"vitrine"
)

// A Score is the result of one search on one function, at the first threshold.
type Score struct {
	Trials   int
	Restarts int     // fresh deployments
	Load     float64 // seconds of load
	Wall     float64 // seconds in all
	Truth    float64
	Found    vitrine.Capacity
	Error    float64 // |ln(estimate/truth)|; infinite where nothing was found
	Width    float64 // of the interval, as a share of the estimate
	Covered  bool    // the interval holds the truth; one that is censored from above has no upper end
	Why      string  // why the search ended
}

// Judge compares a measurement with the truth.
func Judge(m Measurement, truth float64) Score {
	s := Score{Trials: len(m.History), Load: m.Load.Seconds(), Wall: m.Wall.Seconds(), Truth: truth}
	for _, step := range m.Steps {
		if step.Restart {
			s.Restarts++
		}
		if step.Done {
			s.Why = step.Why
		}
	}
	return s.found(m.Capacities)
}

// JudgeBounds returns the score of a search that runs elsewhere, from its trials
// and the interval that it found. Its estimate is the geometric mean of the
// bounds.
func JudgeBounds(low, high, truth float64, trials int, load, wall time.Duration) Score {
	s := Score{Trials: trials, Load: load.Seconds(), Wall: wall.Seconds(), Truth: truth}
	return s.found([]vitrine.Capacity{{Rate: math.Sqrt(low * high), Low: low, High: high}})
}

func (s Score) found(capacities []vitrine.Capacity) Score {
	s.Error = math.Inf(1)
	s.Width = math.Inf(1)
	if len(capacities) == 0 {
		return s
	}
	s.Found = capacities[0]
	if s.Found.Rate > 0 && s.Truth > 0 {
		s.Error = math.Abs(math.Log(s.Found.Rate / s.Truth))
		s.Width = (s.Found.High - s.Found.Low) / s.Found.Rate
	}
	open := s.Found.Censored == vitrine.CensoredAbove || s.Found.Censored == vitrine.CensoredGenerator
	s.Covered = s.Found.Low <= s.Truth && (open || s.Truth <= s.Found.High)
	return s
}

// Scores are the results of one search on many functions.
type Scores []Score

// Mean returns the mean of a figure over all functions.
func (s Scores) Mean(figure func(Score) float64) float64 {
	total := 0.0
	for _, score := range s {
		total += figure(score)
	}
	return total / float64(len(s))
}

// Quantile returns the quantile of a figure over all functions; q is 0..1.
func (s Scores) Quantile(q float64, figure func(Score) float64) float64 {
	values := make([]float64, len(s))
	for i, score := range s {
		values[i] = figure(score)
	}
	slices.Sort(values)
	return stat.Quantile(q, stat.Empirical, values, nil)
}

// Coverage returns the share of the functions whose interval holds the truth.
func (s Scores) Coverage() float64 {
	return s.Mean(func(score Score) float64 {
		if score.Covered {
			return 1
		}
		return 0
	})
}

// Trials is a figure of a Score: the number of trials.
func Trials(s Score) float64 { return float64(s.Trials) }

// Restarts is a figure of a Score: the number of fresh deployments.
func Restarts(s Score) float64 { return float64(s.Restarts) }

// Load is a figure of a Score, in seconds.
func Load(s Score) float64 { return s.Load }

// Wall is a figure of a Score, in seconds.
func Wall(s Score) float64 { return s.Wall }

// Error is a figure of a Score, |ln(estimate/truth)|.
func Error(s Score) float64 { return s.Error }

// Width is a figure of a Score, as a share of the estimate.
func Width(s Score) float64 { return s.Width }
