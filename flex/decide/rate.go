package decide

import (
	"math"
	"slices"
)

// history is how many seconds of rates are remembered. A power of two: windows
// double.
const history = 64

// certain is how many standard errors make a difference that is not noise.
const certain = 3

// noise returns the standard deviation of a second's rate around its mean. It is at
// least that of a Poisson process. Above that it is the median difference of
// successive seconds, which a burst does not disturb.
func noise(rates []float64) float64 {
	if len(rates) == 0 {
		return 0
	}
	var space [history]float64
	steps := space[:0]
	sum := rates[0]
	for i := 1; i < len(rates); i++ {
		sum += rates[i]
		steps = append(steps, math.Abs(rates[i]-rates[i-1]))
	}
	poisson := math.Sqrt(sum / float64(len(rates)))
	if len(steps) < 8 {
		return max(poisson, 1)
	}
	slices.Sort(steps)
	// The median of |a-b| of two normal values is 0.6745 * sqrt(2) standard deviations.
	return max(poisson, steps[len(steps)/2]/0.9539, 1)
}

// level estimates the rate now: the mean over the longest recent window that
// agrees with all shorter ones (Lepski's method). A burst disagrees with the past at
// once, so that its first second counts alone; without a change the window is long
// and the noise small. bound is the upper end of the interval of the mean.
func level(rates []float64, deviation float64) (mean, bound float64) {
	low, high := math.Inf(-1), math.Inf(1)
	sum, n := 0.0, 0
	for window := 1; window <= len(rates); window *= 2 {
		for ; n < window; n++ {
			sum += rates[len(rates)-1-n]
		}
		m, off := sum/float64(n), certain*deviation/math.Sqrt(float64(n))
		if m-off > high || m+off < low {
			break
		}
		low, high = max(low, m-off), min(high, m+off)
		mean, bound = m, m+off
	}
	return mean, bound
}

// A line is a straight line fitted to the last rates.
type line struct {
	end   float64 // its value at the last second
	slope float64 // per second
}

// shortest is the length of the shortest window that a trend is seen in.
const shortest = 8

// trend fits a line to the longest recent window whose slope agrees with those of
// all shorter windows, and reports whether the rate rises: the slope is not noise,
// and a line explains the window better than a step. A step is over: to extrapolate
// it would ask for the same instances twice.
func trend(rates []float64, deviation float64) (l line, rises bool) {
	low, high := math.Inf(-1), math.Inf(1)
	chosen, off := 0, 0.0
	for window := shortest; window <= len(rates); window *= 2 {
		n := float64(window)
		fitted := fit(rates[len(rates)-window:])
		// The standard error of the slope over equidistant seconds.
		o := certain * deviation * math.Sqrt(12/(n*n*n-n))
		if fitted.slope-o > high || fitted.slope+o < low {
			break
		}
		low, high = max(low, fitted.slope-o), min(high, fitted.slope+o)
		l, chosen, off = fitted, window, o
	}
	if chosen == 0 || l.slope <= off {
		return l, false
	}
	return l, l.beatsStep(rates[len(rates)-chosen:])
}

// fit returns the line of least squares through the rates.
func fit(rates []float64) line {
	n := float64(len(rates))
	middle := (n - 1) / 2
	var sum, cross float64
	for i, r := range rates {
		sum += r
		cross += (float64(i) - middle) * r
	}
	slope := cross / (n * (n*n - 1) / 12)
	return line{sum/n + slope*middle, slope}
}

// beatsStep reports whether the line leaves smaller squares than the best step
// between two constant rates.
func (l line) beatsStep(rates []float64) bool {
	n := len(rates)
	var sum, squares, left float64
	for i, r := range rates {
		d := r - (l.end - l.slope*float64(n-1-i))
		left += d * d
		sum += r
		squares += r * r
	}
	before := 0.0
	for i := 1; i < n; i++ {
		before += rates[i-1]
		after := sum - before
		if squares-before*before/float64(i)-after*after/float64(n-i) <= left {
			return false
		}
	}
	return true
}

// forecast returns the rate expected after so many seconds: now, or more if the
// rate rises. It is at most twice the rate now, because a trend of seconds says
// little of a longer time.
func forecast(rates []float64, now, deviation, seconds float64) float64 {
	l, rises := trend(rates, deviation)
	if !rises {
		return now
	}
	return max(now, min(l.end+l.slope*seconds, 2*max(now, l.end)))
}
