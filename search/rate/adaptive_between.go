package rate

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

// samples are the logarithms of the rates at which deployments cross one
// threshold.
type samples struct {
	values    []float64
	retries   []retry // one per value
	stateful  bool    // deployments cannot be tried again
	threshold float64
	above     bool // most deployments pass at the highest rate
	below     bool // most deployments fail at the lowest rate

	// How success falls at the crossing, for most deployments.
	steep      bool
	top, floor float64 // success before and after a steep fall
	width      float64 // mean distance between the rates that passed and failed, where success falls steeply
	precision  float64
}

func (s samples) deviation() float64 {
	if len(s.values) < 2 {
		return 0
	}
	return stat.StdDev(s.values, nil)
}

// samples takes one sample from each climb. Where success falls gently, the
// sample is where straight lines through the trials, with the slope common to all
// deployments, cross the threshold in the mean. That is right for the mean
// success, even when single trials lie far off. Where success falls steeply, the
// sample is the middle of the bracket.
func (c *campaign) samples(climbs []*deployment, i int) samples {
	threshold := c.cfg.Thresholds[i]
	s := samples{threshold: threshold, precision: c.cfg.precision(), stateful: c.cfg.Stateful, steep: !falls(climbs, threshold)}
	slope := slopeOf(climbs, threshold)
	above, below, brackets := 0, 0, 0
	for _, d := range climbs {
		b := d.bracket(threshold)
		if !b.passed && !b.failed {
			continue
		}
		s.retries = append(s.retries, d.retry)
		switch {
		case b.passed && b.failed && !s.steep:
			s.values = append(s.values, d.crossing(b, threshold, slope, s.precision))
		case b.passed && b.failed:
			brackets++
			s.values = append(s.values, (b.low+b.high)/2)
			s.top, s.floor, s.width = s.top+b.pass.success, s.floor+d.worst(b), s.width+b.high-b.low
		case b.passed:
			above++
			s.values = append(s.values, b.low+s.precision/4)
		default:
			below++
			s.values = append(s.values, b.high-s.precision/4)
		}
	}
	n := len(s.values)
	s.above, s.below = 2*above > n, 2*below > n
	if brackets > 0 {
		s.top, s.floor, s.width = s.top/float64(brackets), s.floor/float64(brackets), s.width/float64(brackets)
	}
	return s
}

// worst returns the lowest success at and above the bracket: a growing queue
// shows little of its overload in a trial just above the capacity.
func (d *deployment) worst(b bracket) float64 {
	worst := b.fail.success
	for _, r := range d.trials {
		if r.x >= b.high {
			worst = min(worst, r.success)
		}
	}
	return worst
}

// falls reports whether success falls gently on at least half of the deployments.
func falls(climbs []*deployment, threshold float64) bool {
	gently, all := 0, 0
	for _, d := range climbs {
		if b := d.bracket(threshold); b.passed && b.failed {
			all++
			if b.straight() {
				gently++
			}
		}
	}
	return all > 0 && 2*gently >= all
}

// slopeOf returns how much success falls over the logarithm of the rate, by least
// squares over the bracket ends of each deployment.
func slopeOf(climbs []*deployment, threshold float64) float64 {
	const least = 0.3 // such as where success falls with the square root of the load
	across, squares := 0.0, 0.0
	for _, d := range climbs {
		if b := d.bracket(threshold); b.passed && b.failed {
			across += (b.pass.success - b.fail.success) * (b.high - b.low)
			squares += (b.high - b.low) * (b.high - b.low)
		}
	}
	if squares == 0 {
		return 1
	}
	return max(across/squares, least)
}

// crossing returns the mean, weighted by duration, of the points at which lines of the
// slope through the trials near the bracket cross the threshold.
func (d *deployment) crossing(b bracket, threshold, slope, precision float64) float64 {
	about := max(precision, b.high-b.low) / 2
	sum, weight := 0.0, 0.0
	for _, r := range d.trials {
		if r.x >= b.low-about-rounding && r.x <= b.high+about+rounding {
			sum += r.duration * (r.x + (r.success-threshold)/slope)
			weight += r.duration
		}
	}
	return min(max(sum/weight, b.low-4*about), b.high+4*about)
}

// An estimate describes the capacity over deployments, in the unit of rates.
type estimate struct {
	rate, low, high float64
	sd, single      float64
	states          *vitrine.TwoStates
	undecided       bool // there may be two states, but too few deployments were tried again to tell
}

// sequential widens intervals, because the search looks at their width after
// each deployment and ends when it happens to be small. See
// docs/decisions/0016-adaptive-search.md.
const sequential = 1.25

// unseen is the error that all samples may share, as a share of the precision. A
// trial is only long enough for the precision, and rare stalls may be in none.
const unseen = 0.2

// estimate returns the rate at which the mean success over deployments meets the
// threshold. Where success falls gently, that rate is the mean of the samples.
// Where it falls steeply, from top to floor, enough deployments must still pass.
// If the whole spread is between deployments, the rate is k standard deviations
// below the mean. If the whole spread is the chance of single trials, the rate is
// the mean. The estimate is half-way, and the interval holds both ends: it joins
// Student's t with the chi-squared bound of the standard deviation by MOVER (Zou
// and Donner, Construction of confidence limits about effect measures, Statistics
// in Medicine 2008).
func (s samples) estimate(confidence float64) estimate {
	n, mean, sd := float64(len(s.values)), s.values[0], 0.0
	if n > 1 {
		mean, sd = stat.MeanStdDev(s.values, nil)
	}
	var e estimate
	if m, two := mixtureOf(s.values, s.precision); two {
		var stay bool
		if stay, e.undecided = s.stay(m); stay {
			n, mean, sd = m.inLower, m.lower, m.sd
			e.states = m.describe(len(s.values))
		}
	}
	grid := s.width / math.Sqrt(12) // standard deviation due to the width of the brackets alone
	spread := math.Sqrt(max(0, sd*sd-grid*grid))
	k := s.deviations()
	tail := (1 - confidence) / 2
	t := distuv.StudentsT{Sigma: 1, Nu: max(n-1, 1)}
	half := t.Quantile(1-tail) * max(sd, grid) / math.Sqrt(n)
	below, above := half, half
	if k > 0 {
		freedom := max(n-1, 1)
		most := spread * math.Sqrt(freedom/distuv.ChiSquared{K: freedom}.Quantile(tail))
		below = math.Hypot(half, k*(most-spread/2))
		above = math.Hypot(half, k*spread/2)
	}
	// All samples share what trials cannot show, such as a slowly growing
	// backlog.
	below, above = math.Hypot(below, unseen*s.precision), math.Hypot(above, unseen*s.precision)
	x := mean - k*spread/2
	e.rate, e.low, e.high = math.Exp(x), math.Exp(x-sequential*below), math.Exp(x+sequential*above)
	e.sd = e.rate * spread
	e.single = math.Exp(mean - t.Quantile(single)*sd*math.Sqrt(1+1/n))
	return e
}

// single is the probability with which one new deployment carries the lower
// prediction bound.
const single = 0.9

// deviations returns k: the mean success meets the threshold k standard
// deviations below the rate that the mean deployment carries.
func (s samples) deviations() float64 {
	if !s.steep || s.top <= s.threshold || s.floor >= s.threshold {
		return 0
	}
	return max(0, distuv.UnitNormal.Quantile((s.threshold-s.floor)/(s.top-s.floor)))
}
