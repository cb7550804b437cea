package rate

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"vitrine"
)

// A reading is what the search takes from one outcome.
type reading struct {
	valid   bool
	reason  string // why it is not valid
	repeat  int
	rate, x float64 // x is the logarithm of rate
	calls   float64 // scheduled in the steady part of the window
	success float64 // ratio in the steady part of the window
	late    float64 // ratio in the last third of that
	exact   bool    // the window has a steady part; else success is that of the whole window
	steady  bool    // the backlog does not grow, as far as the precision asks

	scheduled, succeeded int64 // of the outcome, to tell it from others
	duration             float64

	unresolved bool // not steady after all extensions: the rate bounds the capacity from above
}

// of says whether the reading is of this outcome.
func (r reading) of(o vitrine.Outcome) bool {
	return r.valid == counts(o) && r.repeat == o.Repeat && r.rate == o.Rate &&
		r.scheduled == o.Scheduled && r.succeeded == o.Succeeded && r.duration == o.Duration.Seconds()
}

func read(o vitrine.Outcome, precision float64) reading {
	r := reading{valid: counts(o), repeat: o.Repeat, rate: o.Rate, x: math.Log(o.Rate),
		calls: float64(o.Scheduled), success: o.SuccessRatio(),
		scheduled: o.Scheduled, succeeded: o.Succeeded, duration: o.Duration.Seconds()}
	if !r.valid {
		r.reason = reason(o)
		return r
	}
	for _, cut := range []float64{0, 1. / 3, 2. / 3} {
		part := tail(o, cut)
		early, late := thirds(part)
		if part.Scheduled > 0 && still(part.InFlight, sure*precision*o.Rate) && alike(early, late, part.Scheduled) {
			r.calls, r.success, r.late, r.exact = float64(part.Scheduled), part.SuccessRatio(), late, true
			r.steady = !Grows(part, precision)
			return r
		}
	}
	_, r.late = thirds(o)
	return r
}

// tail leaves out a share of the window from its beginning, in which a queue
// may have filled, or a cache.
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

// still says that the calls in flight neither grow nor shrink surely faster
// than the bound, in calls a second.
func still(inFlight []int64, bound float64) bool {
	slope, half, ok := growth(inFlight)
	return !ok || slope-half <= bound && slope+half >= -bound
}

// alike says that success did not change between the thirds of a window, but for
// chance: calls of one second share their luck.
func alike(early, late float64, calls int64) bool {
	const deviations, least = 4, 0.02
	p := (early + late) / 2
	return math.Abs(early-late) <= least+deviations*math.Sqrt(p*(1-p)*2*3/float64(calls))
}

// thirds are the success ratios of the first and the last third of the window.
func thirds(o vitrine.Outcome) (early, late float64) {
	n := len(o.Seconds) / 3
	var first, last count
	for i := range n {
		s, e := o.Seconds[i], o.Seconds[len(o.Seconds)-1-i]
		first.add(s.Scheduled, s.Succeeded)
		last.add(e.Scheduled, e.Succeeded)
	}
	if first.scheduled == 0 || last.scheduled == 0 {
		return o.SuccessRatio(), o.SuccessRatio()
	}
	return first.ratio(), last.ratio()
}

// passes says that the trial is steady and meets the threshold.
func (r reading) passes(threshold float64) bool { return r.success >= threshold && r.steady }

// fails says that the trial misses the threshold, or could not be steady.
func (r reading) fails(threshold float64) bool { return r.success < threshold || r.unresolved }

// unsteady says why the trial gives no verdict on one of the thresholds;
// empty: it does on all.
func (r reading) unsteady(thresholds []float64) string {
	const deviations, thirds = 2, 3
	for _, t := range thresholds {
		noise := deviations * math.Sqrt(t*(1-t)*thirds/r.calls)
		switch {
		case r.success >= t && r.late < t-noise:
			return "success fell during the trial"
		case r.success < t && r.late >= t+noise:
			return "success rose during the trial"
		case r.success >= t && !r.steady:
			return "calls in flight may still grow"
		}
	}
	return ""
}

// sure is the share of precision times the rate by which calls in flight may
// surely grow in a steady trial. A queue whose calls are late would otherwise
// pass a few percent above its capacity.
const sure = 0.1

// Grows says that the backlog of a trial may grow: the upper 95% bound of the
// growth of calls in flight is not below precision times the rate, or it is
// sure that they grow by more than a tenth of that. An outcome without calls in flight does not grow as far as anyone can tell.
func Grows(o vitrine.Outcome, precision float64) bool {
	growth, half, ok := growth(o.InFlight)
	if !ok {
		return false
	}
	bound := precision * o.Rate
	return growth+half >= bound || growth-half > sure*bound
}

// growth is the slope of calls in flight over time, in calls a second, and the
// distance to its one-sided 95% bounds; false: too few values to tell. Calls
// in flight are autocorrelated, so the variance is long-run: that of an
// equal-weighted cosine transform with its t distribution (Lazarus, Lewis,
// Stock and Watson, HAR Inference: Recommendations for Practice, JBES 2018).
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
		// cos(step*(i+1/2)) by recurrence, since cosines are most of the work
		turn := 2 * math.Cos(step)
		previous, current := math.Cos(step/2), math.Cos(step/2)
		for i, v := range inFlight {
			t := float64(i) - middle
			sum += t * (float64(v) - mean - slope*t) * current
			previous, current = current, turn*current-previous
		}
		variance += 2 * sum * sum / float64(cosines)
	}
	error := math.Sqrt(variance) / squares
	perSecond := 1 / vitrine.InFlightEvery.Seconds()
	return slope * perSecond, error * students95(cosines) * perSecond, true
}

// students95 is the one-sided 95% quantile of Student's t.
func students95(freedom int) float64 {
	return distuv.StudentsT{Sigma: 1, Nu: float64(freedom)}.Quantile(0.95)
}
