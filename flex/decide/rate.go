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

// changed is how many standard errors of their difference make the means of two windows prove
// that the rate has changed. Many windows are compared each second, so it must be rarer than
// what is certain once.
const changed = 5.5

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

// level estimates the rate now. Without a change it is the mean over all rates, so that noise is
// averaged out. If the mean of a short window proves a change, it is the mean over the longest
// recent window that agrees with all shorter ones (Lepski's method). A burst is seen within a
// second or two, which then count alone. bound is the upper end of the interval of the mean.
func level(rates []float64, deviation float64) (mean, bound float64) {
	w := windows{deviation: deviation}
	sum := 0.0
	for n := 0; n < len(rates); n++ {
		sum += rates[len(rates)-1-n]
		if n+1 != 1<<w.count {
			continue
		}
		w.means[w.count] = sum / float64(n+1)
		w.count++
		if w.differs(w.count-1, changed) {
			return w.at(w.longest())
		}
	}
	return w.at(w.count - 1)
}

// windows are the last seconds in windows that double: means[k] is the mean over 2^k seconds.
type windows struct {
	means     [8]float64 // more than history has
	count     int
	deviation float64 // of a second's rate
}

// differs reports whether the mean of a window differs from that of any shorter one by so many
// standard errors. A window is a part of each longer one, so the variance of the difference of
// their means is the difference of the variances.
func (w *windows) differs(k int, errors float64) bool {
	for i := range k {
		off := errors * w.deviation * math.Sqrt(1/size(i)-1/size(k))
		if math.Abs(w.means[k]-w.means[i]) > off {
			return true
		}
	}
	return false
}

// longest returns the longest window that agrees with all shorter ones.
func (w *windows) longest() int {
	k := 0
	for k+1 < w.count && !w.differs(k+1, certain) {
		k++
	}
	return k
}

// at returns the mean of a window, and the upper end of its interval.
func (w *windows) at(k int) (mean, bound float64) {
	if w.count == 0 {
		return 0, 0
	}
	return w.means[k], w.means[k] + certain*w.deviation/math.Sqrt(size(k))
}

// size returns the seconds of a window.
func size(k int) float64 { return float64(int(1) << k) }

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
