package rate

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

// A reading is what the search takes from one outcome.
type reading struct {
	valid   bool
	reason  string // why it is not valid
	repeat  int
	rate, x float64 // x is the logarithm of rate
	success float64 // ratio in the steady part of the window
	exact   bool    // the window has a steady part; else success is that of the whole window
	cut     float64 // share of the window before the steady part
	steady  bool    // the backlog does not grow, to the precision

	whole       float64 // success ratio of the whole window
	wholeSteady bool    // the backlog does not grow over the whole window

	scheduled, succeeded int64 // of the outcome, to tell it from others
	duration             float64

	verified   bool // the rate was offered for long
	unresolved bool // not steady after all extensions: the rate bounds the capacity from above
}

// of reports whether the reading is of this outcome.
func (r reading) of(o vitrine.Outcome) bool {
	return r.valid == counts(o) && r.repeat == o.Repeat && r.rate == o.Rate &&
		r.scheduled == o.Scheduled && r.succeeded == o.Succeeded && r.duration == o.Duration.Seconds()
}

func read(o vitrine.Outcome, precision float64) reading {
	r := reading{valid: counts(o), repeat: o.Repeat, rate: o.Rate, x: math.Log(o.Rate),
		success:   o.SuccessRatio(),
		scheduled: o.Scheduled, succeeded: o.Succeeded, duration: o.Duration.Seconds()}
	if !r.valid {
		r.reason = reason(o)
		return r
	}
	r.whole, r.wholeSteady = r.success, !Grows(o, precision)
	for _, cut := range []float64{0, 1. / 3, 2. / 3} {
		part := tail(o, cut)
		if part.Scheduled > 0 && still(part.InFlight, sure*precision*o.Rate) {
			r.success, r.exact, r.cut = balanced(part), true, cut
			r.steady = r.wholeSteady
			if cut > 0 {
				r.steady = !Grows(part, precision)
			}
			return r
		}
	}
	return r
}

// A Judgement is how the adaptive search reads a valid trial.
type Judgement struct {
	Success float64 // success ratio of the judged part of the window, without the calls by which the backlog grew
	Cut     float64 // share of the window before that part
	Steady  bool    // the backlog does not grow, to the precision; if not, the trial cannot pass
}

// Judge returns how the adaptive search reads a valid outcome.
func Judge(o vitrine.Outcome, precision float64) Judgement {
	r := read(o, cmp.Or(precision, defaultPrecision))
	return Judgement{r.success, r.cut, r.steady}
}

// Growth returns how fast the calls in flight grew over the window, and the
// distance to the one-sided 95% bounds, as shares of the rate; false: there are
// too few counts of calls in flight.
func Growth(o vitrine.Outcome) (share, half float64, known bool) {
	slope, half, known := growth(o.InFlight)
	return slope / o.Rate, half / o.Rate, known && o.Rate > 0
}

// balanced returns the success ratio in steady state: it subtracts the growth of
// the backlog from the calls that succeeded, because the function could take that
// many only because its backlog grew. The result is unbiased, because the backlog
// of a steady trial does not grow in the mean.
func balanced(o vitrine.Outcome) float64 {
	const ends = 5 // counts of calls in flight at either end
	n := len(o.InFlight)
	if n < 4*ends {
		return o.SuccessRatio()
	}
	grown := 0.0
	for i := range ends {
		grown += float64(o.InFlight[n-1-i]-o.InFlight[i]) / ends
	}
	return min(max((float64(o.Succeeded)-grown)/float64(o.Scheduled), 0), 1)
}

// tail leaves out a share of the window at its start, in which a queue may have
// filled.
func tail(o vitrine.Outcome, cut float64) vitrine.Outcome {
	if cut == 0 || len(o.Seconds) < 3 {
		return o
	}
	whole := len(o.Seconds)
	part := vitrine.Outcome{Key: o.Key, Valid: true, Seconds: o.Seconds[int(cut*float64(whole)):]}
	for _, s := range part.Seconds {
		part.Scheduled += s.Scheduled
		part.Succeeded += s.Succeeded
	}
	if n := len(o.InFlight); n > 0 {
		part.InFlight = o.InFlight[n*(whole-len(part.Seconds))/whole:]
	}
	return part
}

// still reports whether the calls in flight neither grow nor shrink significantly
// (one-sided 95%) faster than the bound, in calls a second.
func still(inFlight []int64, bound float64) bool {
	slope, half, ok := growth(inFlight)
	return !ok || slope-half <= bound && slope+half >= -bound
}

// passes reports whether the trial is steady and meets the threshold.
func (r reading) passes(threshold float64) bool { return r.success >= threshold && r.steady }

// fails reports whether the trial misses the threshold, or could not be steady.
func (r reading) fails(threshold float64) bool { return r.success < threshold || r.unresolved }

// unsteady reports whether the trial meets one of the thresholds while its
// backlog may grow, so that it gives no verdict. Success alone never calls for a
// longer trial: repeating unlucky trials would flatter the function.
func (r reading) unsteady(thresholds []float64) bool {
	return !r.steady && slices.ContainsFunc(thresholds, func(t float64) bool { return r.success >= t })
}

// sure limits the growth of calls in flight in a steady trial: its lower 95%
// bound must not exceed this share of precision times the rate. Otherwise a queue
// that serves late calls would pass a few percent above its capacity.
const sure = 0.1

// Grows reports whether the backlog of a trial may grow: the upper 95% bound of
// the growth of calls in flight is at least precision times the rate, or the
// lower 95% bound exceeds a tenth of that. It returns false for an outcome with
// too few counts of calls in flight, or none.
func Grows(o vitrine.Outcome, precision float64) bool {
	growth, half, ok := growth(o.InFlight)
	if !ok {
		return false
	}
	bound := precision * o.Rate
	return growth+half >= bound || growth-half > sure*bound
}

// growth returns the slope of calls in flight over time, in calls a second, and
// the distance to its one-sided 95% bounds; false: too few values to tell. Calls
// in flight are autocorrelated, so the variance is long-run: that of an
// equal-weighted cosine transform with its t distribution (Lazarus, Lewis, Stock
// and Watson, HAR Inference: Recommendations for Practice, JBES 2018).
func growth(inFlight []int64) (slope, half float64, ok bool) {
	const fewest, most, perCosine = 12, 12, 5
	n := len(inFlight)
	if n < fewest {
		return 0, 0, false
	}
	middle := float64(n-1) / 2
	mean, across, squares := 0.0, 0.0, 0.0
	for _, v := range inFlight {
		mean += float64(v) / float64(n)
	}
	for i, v := range inFlight {
		t := float64(i) - middle
		across += t * (float64(v) - mean)
		squares += t * t
	}
	slope = across / squares
	cosines := min(n/perCosine, most)
	variance := 0.0
	for j := 1; j <= cosines; j++ {
		sum := 0.0
		step := math.Pi * float64(j) / float64(n)
		// cos(step*(i+1/2)) by recurrence, because computing cosines is most of
		// the work.
		turn := 2 * math.Cos(step)
		previous, current := math.Cos(step/2), math.Cos(step/2)
		for i, v := range inFlight {
			t := float64(i) - middle
			sum += t * (float64(v) - mean - slope*t) * current
			previous, current = current, turn*current-previous
		}
		variance += 2 * sum * sum / float64(cosines)
	}
	deviation := math.Sqrt(variance) / squares
	perSecond := 1 / vitrine.InFlightEvery.Seconds()
	return slope * perSecond, deviation * students95(cosines) * perSecond, true
}

// students95 returns the one-sided 95% quantile of Student's t.
func students95(freedom int) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: float64(freedom)}.Quantile(0.95)
}
