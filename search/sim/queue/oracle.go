package queue

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"vitrine/search/sim"
)

// An Oracle knows a family but not the server. It knows that success over rate is
// one of the curves of the family's Tuning servers or the server's own, but not
// which one, and not the capacity that stretches the curve. It knows how much
// trials scatter, and the state of each deployment. A cold cache, drift or an
// earlier trial never disturbs it.
//
// It has the deployments and the seconds of load of the search that it is
// compared with, and does not need to look for the capacity: it places one long
// trial per deployment around the truth. Its interval is that of the profile
// likelihood of the capacity over the curves, on the data set that shows each
// trial's mean success ("Asimov data set": Cowan, Cranmer, Gross, Vitells,
// arXiv:1007.1727, section 3.2), which gives the median width.
type Oracle struct {
	threshold float64
	members   []shape
}

// shapePoints are the logarithms of rate/truth at which shapes are known.
var shapePoints = []float64{-0.3, -0.2, -0.15, -0.1, -0.07, -0.05, -0.04, -0.03, -0.02, -0.015, -0.01, -0.005, 0,
	0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3}

// A point is the success ratio at a rate.
type point struct {
	mean    float64
	between float64 // variance between deployments
	within  float64 // variance of one second's mean within a deployment, from long windows
}

// A shape is the success ratio around the capacity, at shapePoints.
type shape []point

// NewOracle returns the oracle of the family at the threshold.
func NewOracle(family string, threshold float64) *Oracle {
	o := &Oracle{threshold: threshold}
	for i := range Size {
		o.members = append(o.members, Tuning.Server(family, i).shape(threshold))
	}
	return o
}

// shape runs the server at rates around its capacity.
func (s *Server) shape(threshold float64) shape {
	truth := s.Capacity(Sizing(), threshold)
	still := s.still()
	points := make(shape, len(shapePoints))
	lowest := 1.0
	for i, x := range shapePoints {
		points[i] = still.point(truth*math.Exp(x), uint64(i))
		lowest = min(lowest, points[i].mean) // more load is never better
		points[i].mean = lowest
	}
	return points
}

// point runs deployments with equally likely speeds at the rate.
func (s *Server) point(rate float64, seed uint64) point {
	const (
		deployments = 16
		batches     = 3
		batch       = 20 // seconds: longer than most of what lingers
		before      = 10 // seconds
	)
	var means []float64
	var p point
	for i := range deployments {
		z := distuv.UnitNormal.Quantile((float64(i) + 0.5) / deployments)
		d := s.deployAt(math.Exp(s.Luck*z), (seed+1<<16)*deployments+uint64(i))
		d.Run(sim.Trial{Rate: rate, Duration: seconds(before)})
		var ratios [batches]float64
		for k := range ratios {
			ratios[k] = d.Run(sim.Trial{Rate: rate, Duration: seconds(batch)}).SuccessRatio()
		}
		mean, variance := stat.MeanVariance(ratios[:], nil)
		means = append(means, mean)
		p.within += batch * variance / deployments
	}
	p.within = max(p.within, 0.1/rate) // about the variance from sampling calls alone
	var variance float64
	p.mean, variance = stat.MeanVariance(means, nil)
	if s.Luck > 0 {
		p.between = max(0, variance-p.within/(batches*batch))
	}
	return p
}

// at returns the shape between its points, and a constant beyond them.
func (s shape) at(x float64) point {
	last := len(shapePoints) - 1
	switch {
	case x <= shapePoints[0]:
		return s[0]
	case x >= shapePoints[last]:
		return s[last]
	}
	i := 1
	for shapePoints[i] < x {
		i++
	}
	a, b := s[i-1], s[i]
	t := (x - shapePoints[i-1]) / (shapePoints[i] - shapePoints[i-1])
	mix := func(a, b float64) float64 { return a + t*(b-a) }
	return point{mix(a.mean, b.mean), mix(a.between, b.between), mix(a.within, b.within)}
}

// A Mark is an oracle on one server.
type Mark struct {
	oracle *Oracle
	server *Server
	own    shape
}

// On prepares the oracle for a server.
func (o *Oracle) On(s *Server) *Mark { return &Mark{o, s, s.shape(o.threshold)} }

// places is the most rates at which the oracle has trials.
const places = 7

// Width returns the width of the oracle's 95% interval, as a share of the
// capacity. With two states, it uses only the deployments in the lower one.
func (m *Mark) Width(deployments int, load float64) float64 {
	n := float64(max(deployments, 1))
	window := load / n
	if m.server.Lower > 0 {
		n = max(1, n*m.server.Lower)
	}
	width := math.Inf(1)
	for _, spread := range []float64{0.01, 0.03, 0.08} {
		width = min(width, m.width(n, window, spread))
	}
	return width
}

// width returns the width with trials placed evenly within the spread of the
// truth.
func (m *Mark) width(deployments, window, spread float64) float64 {
	rates := min(places, int(deployments))
	xs := make([]float64, rates)
	seen := make([]point, rates)
	for j := range xs {
		if rates > 1 {
			xs[j] = spread * (2*float64(j)/float64(rates-1) - 1)
		}
		seen[j] = m.own.at(xs[j])
	}
	weight := deployments / float64(rates)
	// excess returns how far the log-likelihood of a shift is below the best:
	// twice the difference of log-likelihoods.
	excess := func(shift float64) float64 {
		least := math.Inf(1)
		for k := -1; k < len(m.oracle.members); k++ {
			member := m.own
			if k >= 0 {
				member = m.oracle.members[k]
			}
			sum := 0.0
			for j, x := range xs {
				p := member.at(x - shift)
				off := seen[j].mean - p.mean
				sum += weight * off * off / (p.between + p.within/window)
			}
			least = min(least, sum)
		}
		return least
	}
	const step, most = 0.001, 0.4
	limit := distuv.ChiSquared{K: 1}.Quantile(0.95)
	end := func(direction float64) float64 {
		outermost := 0.0
		for shift := step; shift < most; shift += step {
			if excess(direction*shift) <= limit {
				outermost = shift
			} else if shift > outermost+0.05 {
				break
			}
		}
		return outermost + step/2
	}
	return math.Exp(end(1)) - math.Exp(-end(-1))
}
