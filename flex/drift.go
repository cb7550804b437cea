package flex

import (
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/redline"
)

// A Cost is the CPU use of all members of an instance together, as a linear function of the
// rate: Idle CPUs without load, plus Each CPU seconds per transaction.
type Cost struct {
	Idle float64 `json:"idle_vcpus"`
	Each float64 `json:"transaction_seconds"` // CPU seconds; 0: not known.
	Near float64 `json:"near_rate,omitzero"`  // Rate near which the cost holds, because Idle is not known; 0: any rate.
}

// holdsAt reports whether the cost is known at a rate.
func (c Cost) holdsAt(rate float64) bool {
	const most = 2 // highest ratio of the rate to Near, and of Near to the rate
	return c.Each > 0 && (c.Near == 0 || rate >= c.Near/most && rate <= c.Near*most)
}

// costOf fits a line to the CPU use of the steps of a measurement. One or two steps do not show the
// use without load. For them, costOf keeps idle, the use that was known before, in CPUs. If that is 0,
// the cost holds only near their rates. ok is false if no valid step has a known CPU use, or if the
// slope is not positive.
func costOf(steps []redline.Step, idle float64) (c Cost, ok bool) {
	var rates, cpus []float64
	for i := range steps {
		if s := &steps[i]; s.CPU > 0 && s.Rate > 0 && !s.Stopped && s.Invalid == "" {
			rates, cpus = append(rates, s.Rate), append(cpus, s.CPU)
		}
	}
	few := len(rates) <= 2
	switch {
	case len(rates) == 0:
		return c, false
	case !few:
		c.Idle, c.Each = stat.LinearRegression(rates, cpus, nil, false)
	case idle > 0:
		c.Idle = idle
		for i := range rates {
			c.Each += (cpus[i] - idle) / rates[i] / float64(len(rates))
		}
	}
	if c.Idle < 0 || c.Each <= 0 {
		c.Idle = 0
		_, c.Each = stat.LinearRegression(rates, cpus, nil, true)
		if few {
			c.Near = stat.Mean(rates, nil)
		}
	}
	return c, c.Each > 0
}

// costOfSize returns the expected CPU cost of an instance: measured by redline, or else from
// the profile in the file. Each is 0 if neither has it.
func (o *Orchestrator) costOfSize(p *Profile, typeName, size string) Cost {
	if c, ok := p.Costs[size]; ok {
		return c
	}
	return o.Costs[typeName][size]
}

// watchCPU adds this second to the drift detection of the type. It skips seconds in which the
// type is scaled or measured, or in which some figure or the cost at some rate is unknown.
func (o *Orchestrator) watchCPU(t *config.Type, p *Profile, now time.Time) {
	if r := o.types[t.Name]; t.Redline.Drift == 0 || r == nil || r.leased {
		return
	}
	var used, transactions float64
	var expected Cost
	for _, in := range o.instances {
		if in.Type != t.Name {
			continue
		}
		cpus, ok := in.cpus()
		cost := o.costOfSize(p, t.Name, in.Size)
		if in.State != decide.Active || !in.known || !ok || !cost.holdsAt(in.lately().Rate()) || now.Sub(in.since) < calm {
			return
		}
		rate := in.lastStep().Rate()
		used += cpus
		transactions += rate
		expected.Idle += cost.Idle
		expected.Each += cost.Each * rate
	}
	if transactions > 0 {
		p.drifts.add(now, used, transactions, expected)
	}
}

// The rule of drift. A window votes for drift if the CPU time used is above 1 + drift times
// the time that the profile expects at the window's rates, or below 1 / (1 + drift) times it.
// The CPU time has drifted when at least driftVotes of the last driftWindows windows vote in
// the same direction. Counting votes is robust against outliers. The long history is needed
// because noise is autocorrelated over minutes: a backup job of half an hour is no drift.
// drift_test.go has the error rates.
const (
	driftWindow  = time.Minute
	driftWindows = 45
	driftVotes   = 36
	driftFewest  = 100 // transactions in a window
	driftSeconds = 30  // seconds of a window whose figures are known
)

// A drift compares measured CPU use with the CPU use that a profile expects.
type drift struct {
	began    time.Time // begin of the current window
	seconds  int       // seconds of the window with known figures
	used     float64   // CPU seconds used
	expected float64   // CPU seconds that the profile expects
	moving   float64   // part of expected that depends on the rate
	begun    float64   // transactions

	ratios []float64 // used / expected of the last windows, oldest first
}

// add adds one second: the CPUs in use, the transactions, and the cost that the profile
// expects. expected has the sum over all instances: Idle without load, and Each for all
// transactions of the second.
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

// close ends a window. It discards a window with too few seconds or transactions, and a
// window in which idle CPU use is more than half of the expected CPU use.
func (d *drift) close() {
	const most = 2 // highest ratio of expected to moving
	if d.seconds < driftSeconds || d.begun < driftFewest || d.expected > most*d.moving {
		return
	}
	if len(d.ratios) >= driftWindows {
		d.ratios = slices.Delete(d.ratios, 0, 1)
	}
	d.ratios = append(d.ratios, d.used/d.expected)
}

// departed reports whether the CPU time of transactions has drifted from the profile by more
// than share.
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

// median returns the median ratio of used to expected CPU time. ok is false while there are
// too few windows.
func (d *drift) median() (ratio float64, ok bool) {
	const fewest = 5
	if len(d.ratios) < fewest {
		return 0, false
	}
	sorted := slices.Sorted(slices.Values(d.ratios))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2, true
}
