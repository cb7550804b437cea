package queue

import "math"

// The shortest and the longest stall, in seconds.
const stallShortest, stallLongest = 1.0, 3.0

// Each majorEvery-th collection takes majorLonger times as long.
const majorEvery, majorLonger = 8, 3.0

// meanPause is the mean length of a collection, divided by that of an ordinary
// one.
const meanPause = 1 + (majorLonger-1)/majorEvery

// finish returns when work that begins at start is done.
func (d *deployment) finish(start, work float64) float64 {
	switch {
	case d.Period > 0:
		return d.throttled(start, work)
	case d.Collect > 0:
		return d.collecting(start, work)
	case d.StallAfter > 0:
		return d.stalling(start, work)
	}
	return start + work
}

// throttled runs the work within the quota of each period.
func (d *deployment) throttled(start, work float64) float64 {
	if p := math.Floor(start / d.Period); p > d.period {
		d.period, d.left = p, d.Share*d.Period
	}
	at := max(start, d.period*d.Period)
	for {
		runs := max(0, min(d.left, (d.period+1)*d.Period-at))
		if work <= runs {
			d.left -= work
			return at + work
		}
		work -= runs
		d.period++
		d.left = d.Share * d.Period
		at = d.period * d.Period
	}
}

// collecting pauses in proportion to the work done.
func (d *deployment) collecting(start, work float64) float64 {
	done := start + work
	d.collect -= work
	if d.collect <= 0 {
		pause := d.Pause * d.Collect / meanPause
		if d.collected++; d.collected%majorEvery == 0 {
			pause *= majorLonger
		}
		d.collect += d.Collect * (0.5 + d.uniform())
		done += pause
		d.paused = done
	}
	return done
}

// stalling stops the worker at times. The chance of a stall per unit of work is
// proportional to the third power of the load.
func (d *deployment) stalling(start, work float64) float64 {
	d.load = min(1, d.load*(1-min(1, start-d.began))+work)
	d.began = start
	d.stall -= work * d.load * d.load * d.load
	done := start + work
	if d.stall <= 0 {
		done += stallShortest + (stallLongest-stallShortest)*d.uniform()
		d.paused = done
		d.stall = d.StallAfter * -math.Log1p(-d.uniform())
		d.began = done
	}
	return done
}
