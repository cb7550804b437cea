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
	// After a burst, the mean of all is too low for the noise of now.
	recent := (rates[len(rates)-1] + rates[max(0, len(rates)-2)]) / 2
	poisson := math.Sqrt(max(sum/float64(len(rates)), recent))
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

// The shortest window that a trend is seen in, in seconds, and how many standard
// errors of the slope make a rise. A forecast is tried every second, so a rise must
// be more certain than a change of level.
const (
	shortest = 8
	rising   = 4
)

// trend fits a line to the longest recent window whose slope agrees with those of
// all shorter windows. sure is the slope, less its standard error; 0: there is
// no rise, or a step explains the window better than a line. A step is over: to
// extrapolate it would ask for the same instances twice.
func trend(rates []float64, deviation float64) (l line, sure float64, window int) {
	low, high := math.Inf(-1), math.Inf(1)
	off := 0.0
	for wider := shortest; wider <= len(rates); wider *= 2 {
		n := float64(wider)
		fitted := fit(rates[len(rates)-wider:])
		// The standard error of the slope over equidistant seconds.
		o := deviation * math.Sqrt(12/(n*n*n-n))
		if fitted.slope-certain*o > high || fitted.slope+certain*o < low {
			break
		}
		low, high = max(low, fitted.slope-certain*o), min(high, fitted.slope+certain*o)
		l, window, off = fitted, wider, o
	}
	if window == 0 || l.slope <= rising*off || !l.beatsStep(rates[len(rates)-window:]) {
		return l, 0, window
	}
	return l, l.slope - off, window
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
// rate rises. A rise is expected to last as long as it has been seen, and the rate
// at most to double.
func forecast(rates []float64, now, deviation, seconds float64) float64 {
	l, sure, window := trend(rates, deviation)
	if sure <= 0 {
		return now
	}
	return max(now, min(l.end+sure*min(seconds, float64(window)), 2*max(now, l.end)))
}
