package decide

import (
	"math"
	"slices"
)

// history is the number of rates kept, one a second. It is a power of two, because the windows
// of level double.
const history = 64

// certain is the number of standard errors beyond which a difference is not noise.
const certain = 3

// changed is the number of standard errors between the means of two windows that proves a
// change of the rate. It is larger than certain, because level compares many windows each
// second.
const changed = 5.5

// noise estimates the standard deviation of the rate of one second around its mean, from the
// median absolute difference of successive seconds, which is robust against bursts. The
// estimate is at least the standard deviation of a Poisson process.
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
	// In a burst, the mean of all rates is too low for the present noise.
	recent := (rates[len(rates)-1] + rates[max(0, len(rates)-2)]) / 2
	poisson := math.Sqrt(max(sum/float64(len(rates)), recent))
	if len(steps) < 8 {
		return max(poisson, 1)
	}
	slices.Sort(steps)
	// The median of |a-b| of two normal values is 0.6745 * sqrt(2) standard deviations.
	return max(poisson, steps[len(steps)/2]/0.9539, 1)
}

// level estimates the present rate. Without a change it returns the mean over all rates, which
// averages out noise. If a short window proves a change, it returns the mean over the longest
// recent window that agrees with all shorter windows (Lepski's method). So it detects a burst
// within a second or two, and then uses only these seconds. bound is the upper end of the
// confidence interval of the mean.
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

// windows has the mean rates over the last 1, 2, 4, ... seconds: means[k] is over 2^k seconds.
type windows struct {
	means     [8]float64 // more than log2(history) + 1
	count     int
	deviation float64 // standard deviation of the rate of one second
}

// differs reports whether the mean of window k differs from the mean of any shorter window by
// more than the given number of standard errors. Each window contains all shorter ones, so the
// variance of the difference of two means is the difference of their variances.
func (w *windows) differs(k int, errors float64) bool {
	for i := range k {
		off := errors * w.deviation * math.Sqrt(1/size(i)-1/size(k))
		if math.Abs(w.means[k]-w.means[i]) > off {
			return true
		}
	}
	return false
}

// longest returns the longest window that agrees with all shorter windows.
func (w *windows) longest() int {
	k := 0
	for k+1 < w.count && !w.differs(k+1, certain) {
		k++
	}
	return k
}

// at returns the mean of window k, and the upper end of its confidence interval.
func (w *windows) at(k int) (mean, bound float64) {
	if w.count == 0 {
		return 0, 0
	}
	return w.means[k], w.means[k] + certain*w.deviation/math.Sqrt(size(k))
}

// size returns the length of window k, in seconds.
func size(k int) float64 { return float64(int(1) << k) }

// A line is a straight line fitted to the last rates.
type line struct {
	end   float64 // value at the last second, in transactions/s
	slope float64 // per second
}

// Parameters of trend. rising is larger than certain, because trend tests for a rise every
// second.
const (
	shortest = 8 // shortest window of a trend, in seconds
	rising   = 4 // standard errors of the slope that prove a rise
)

// trend fits a line to the longest recent window whose slope agrees with the slopes of all
// shorter windows. sure is the slope less its standard error. It is 0 if there is no rise, or
// if a step fits the window better than a line: a step is over, and extrapolating it would ask
// for the same instances twice. window is in seconds.
func trend(rates []float64, deviation float64) (l line, sure float64, window int) {
	low, high := math.Inf(-1), math.Inf(1)
	off := 0.0
	for wider := shortest; wider <= len(rates); wider *= 2 {
		n := float64(wider)
		fitted := fit(rates[len(rates)-wider:])
		// Standard error of the slope of a regression over n equidistant seconds.
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

// fit returns the least-squares line through the rates.
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

// beatsStep reports whether the line has a smaller sum of squared residuals than the best step
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

// forecast extrapolates a rise of the rate by the given number of seconds. It extrapolates for
// at most as long as the rise has lasted, and to at most twice the present rate. Without a rise
// it returns now, the present rate.
func forecast(rates []float64, now, deviation, seconds float64) float64 {
	l, sure, window := trend(rates, deviation)
	if sure <= 0 {
		return now
	}
	return max(now, min(l.end+sure*min(seconds, float64(window)), 2*max(now, l.end)))
}
