package size

import (
	"cmp"
	"math"
	"slices"

	"vitrine"
)

// mostPredicted is how many sizes of a setting a profile predicts. Beyond that,
// it leaves out a size when another one with no more vCPUs surely carries as
// much.
const mostPredicted = 5000

// A Profiled is one measured sizing with further results of its trials.
type Profiled struct {
	vitrine.Measured
	Boot    float64 // seconds; 0: not known
	History []vitrine.Outcome
}

// Setting returns the results for one substrate with one set of options: the
// measured sizings, and predictions for the others where the model can tell. The
// last measurement of a sizing counts. If the space is not bounded, or the trials
// do not show what components cost, it holds only measured sizings.
func Setting(space Space, measured []Profiled, seed uint64) vitrine.Setting {
	s := vitrine.Setting{Components: []vitrine.ComponentProfile{}, Sizes: []vitrine.SizeProfile{}}
	at := map[string]int{}
	var history []vitrine.Measured
	for _, m := range measured {
		history = append(history, m.Measured)
		if len(m.Capacities) == 0 {
			continue
		}
		z := space.measured(m)
		if i, seen := at[z.Sizing]; seen {
			s.Sizes[i] = z
			continue
		}
		at[z.Sizing] = len(s.Sizes)
		s.Sizes = append(s.Sizes, z)
	}
	if f, err := NewFit(space, history, 0, seed); err == nil && f != nil {
		s.Components = f.Components()
		s.Sizes = append(s.Sizes, f.untried(at)...)
	}
	slices.SortStableFunc(s.Sizes, func(a, b vitrine.SizeProfile) int {
		return cmp.Or(cmp.Compare(a.VCPUs, b.VCPUs), cmp.Compare(a.Memory, b.Memory))
	})
	return s
}

// size returns a new entry for a sizing.
func (s Space) size(sizing vitrine.Sizing, source string) vitrine.SizeProfile {
	r := s.Resources(sizing)
	return vitrine.SizeProfile{Sizing: sizing.String(), VCPUs: math.Round(r.VCPUs*1e9) / 1e9, Memory: r.Memory, Price: s.Price(sizing), Source: source}
}

func (s Space) measured(m Profiled) vitrine.SizeProfile {
	z := s.size(m.Sizing, vitrine.SourceMeasured)
	c := m.Capacities[0]
	z.Rate, z.Low, z.High, z.Censored = c.Rate, c.Low, c.High, c.Censored
	z.Bottleneck, z.Capacities, z.Boot = m.Bottleneck, m.Capacities, m.Boot
	z.Latency = latency(m.History, c)
	return z
}

// untried predicts the sizings that were not measured.
func (f *Fit) untried(measured map[string]int) []vitrine.SizeProfile {
	var all []vitrine.SizeProfile
	for _, sizing := range f.Sizings() {
		if _, done := measured[sizing.String()]; done {
			continue
		}
		p, ok := f.Predict(sizing)
		if !ok || !finite(p.Rate, p.Low, p.High) {
			continue
		}
		z := f.space.size(sizing, vitrine.SourcePredicted)
		z.Rate, z.Low, z.High, z.Censored, z.Bottleneck = p.Rate, p.Low, p.High, vitrine.CensoredNone, p.Bottleneck
		all = append(all, z)
	}
	if len(all) <= mostPredicted {
		return all
	}
	top := 0.0
	return slices.DeleteFunc(all, func(z vitrine.SizeProfile) bool { // ascending by vCPUs
		more := z.Low > top
		top = max(top, z.Low)
		return !more
	})
}

// latency returns the nearest trial that passed for each of several rising shares
// of the capacity, each trial once.
func latency(history []vitrine.Outcome, c vitrine.Capacity) []vitrine.LatencyPoint {
	if !(c.Rate > 0) {
		return nil
	}
	var points []vitrine.LatencyPoint
	for _, share := range []float64{0.25, 0.5, 0.75, 0.9, 1} {
		var nearest *vitrine.Outcome
		for i, o := range history {
			passed := o.Valid && o.Rate <= c.Rate*(1+1e-9) && o.SuccessRatio() >= c.Threshold && o.Scheduled > 0
			if passed && (nearest == nil || math.Abs(o.Rate-share*c.Rate) < math.Abs(nearest.Rate-share*c.Rate)) {
				nearest = &history[i]
			}
		}
		if nearest == nil {
			return nil
		}
		if n := len(points); n > 0 && points[n-1].Rate == nearest.Rate {
			continue
		}
		l := nearest.Latency
		points = append(points, vitrine.LatencyPoint{Fraction: nearest.Rate / c.Rate, Rate: nearest.Rate, P50: l.P50, P95: l.P95, P99: l.P99})
	}
	return points
}
