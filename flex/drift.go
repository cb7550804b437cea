package flex

import (
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"vitrine/redline"
)

// A Cost is the CPUs that all members of an instance use together: Idle, and Each for every
// transaction a second.
type Cost struct {
	Idle float64 `json:"idle_vcpus"`
	Each float64 `json:"transaction_seconds"` // CPU seconds; 0: not known.
}

// costOf fits a line to the steps of a measurement. ok is false if their CPU is not known.
func costOf(steps []redline.Step) (c Cost, ok bool) {
	var rates, cpus []float64
	for i := range steps {
		if s := &steps[i]; s.CPU > 0 && s.Rate > 0 && !s.Stopped && s.Invalid == "" {
			rates, cpus = append(rates, s.Rate), append(cpus, s.CPU)
		}
	}
	if len(rates) == 0 {
		return c, false
	}
	if len(rates) > 2 {
		c.Idle, c.Each = stat.LinearRegression(rates, cpus, nil, false)
	}
	if c.Idle < 0 || c.Each <= 0 {
		c.Idle = 0
		_, c.Each = stat.LinearRegression(rates, cpus, nil, true)
	}
	return c, c.Each > 0
}

// The rule of drift. A window says that the CPU time departs if the CPUs in use are above
// 1 + drift of what the profile expects at the window's rates, or below 1 / (1 + drift). The
// CPU time has departed when at least driftVotes of the last driftWindows windows say so in the
// same direction. A count of windows does not care how far off a single one is, and minutes of
// noise follow each other: a backup job of half an hour is no drift. drift_test.go has the
// error rates.
const (
	driftWindow  = time.Minute
	driftWindows = 45
	driftVotes   = 36
	driftFewest  = 100 // transactions in a window
	driftSeconds = 30  // seconds of a window whose figures are known
)

// A drift compares CPU use with a profile's.
type drift struct {
	began    time.Time // of the present window
	seconds  int       // of it, with known figures
	used     float64   // CPU seconds
	expected float64   // by the profile
	moving   float64   // part of expected that depends on the rate
	begun    float64   // transactions

	ratios []float64 // of the last windows, oldest first
}

// add takes in a second in which instances used CPUs for transactions. expected is what the
// profile expects of all of them together: Idle for the instances, Each for the transactions.
func (d *drift) add(now time.Time, used, transactions float64, expected Cost) {
	if passed := now.Sub(d.began); passed >= driftWindow || passed < 0 {
		d.close()
		*d = drift{began: now, ratios: d.ratios}
	}
	d.seconds++
	d.used += used
	d.expected += expected.Idle + expected.Each
	d.moving += expected.Each
	d.begun += transactions
}

// close ends a window. It does not count if it has few transactions, or if idle CPU use
// is most of what is expected.
func (d *drift) close() {
	const most = 2 // of expected over its moving part
	if d.seconds < driftSeconds || d.begun < driftFewest || d.expected > most*d.moving {
		return
	}
	if len(d.ratios) >= driftWindows {
		d.ratios = slices.Delete(d.ratios, 0, 1)
	}
	d.ratios = append(d.ratios, d.used/d.expected)
}

// departed reports whether the CPU time of transactions has departed from the profile's by a
// share.
func (d *drift) departed(share float64) bool {
	above, below := 0, 0
	for _, r := range d.ratios {
		if r > 1+share {
			above++
		}
		if r < 1/(1+share) {
			below++
		}
	}
	return max(above, below) >= driftVotes
}

// median returns the median of the CPU time over the profile's. ok is false before there are
// enough windows.
func (d *drift) median() (ratio float64, ok bool) {
	const fewest = 5
	if len(d.ratios) < fewest {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(d.ratios))
	return sorted[len(sorted)/2], true
}
