package flex

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"vitrine"
	"vitrine/flex/decide"
	"vitrine/redline"
)

// A Measured is an entry of a type's capacity profile: one measurement by redline, and its
// effect on the capacity.
type Measured struct {
	At       time.Time       `json:"at"` // Begin of the measurement.
	Seconds  float64         `json:"seconds"`
	Size     string          `json:"size"`
	Instance string          `json:"instance"`
	Cause    string          `json:"cause"`   // first, schedule or drift.
	Reason   string          `json:"reason"`  // Why it was due, for people.
	Verdict  redline.Verdict `json:"verdict"` //
	Why      string          `json:"why,omitempty"`
	Rate     float64         `json:"rate,omitempty"` // Highest rate that met the objective, in transactions a second.
	Low      float64         `json:"low,omitempty"`  // 95% interval.
	High     float64         `json:"high,omitempty"` // 0: no upper bound.
	Before   float64         `json:"before"`         // Capacity that the policy used before, in transactions a second.
	After    float64         `json:"after"`          // Capacity that the policy uses since.
	Cost     Cost            `json:"cost"`           // CPU cost by the steps; Each is 0: not known.

	// Relief is the share by which the rate of the other instances on the host fell during the
	// measurement. They used less of the host, so the capacity may be too high.
	Relief float64 `json:"neighbours_fell,omitempty"`
}

// String describes the result and its effect in one line.
func (m *Measured) String() string {
	var found string
	switch m.Verdict {
	case redline.Within:
		found = fmt.Sprintf("%s/s, between %s and %s", vitrine.Digits(m.Rate), vitrine.Digits(m.Low), vitrine.Digits(m.High))
	case redline.AtLeast:
		found = fmt.Sprintf("at least %s/s: %s", vitrine.Digits(m.Low), m.Why)
	default:
		return fmt.Sprintf("%s: %s; the capacity stays at %s/s", m.Verdict, m.Why, vitrine.Digits(m.After))
	}
	if m.Relief >= 0.01 {
		found += fmt.Sprintf(", while the other instances on the host had %.0f%% less load", 100*m.Relief)
	}
	if m.After == m.Before {
		return fmt.Sprintf("%s; the capacity stays at %s/s", found, vitrine.Digits(m.After))
	}
	return fmt.Sprintf("%s; the capacity is %s/s instead of %s/s", found, vitrine.Digits(m.After), vitrine.Digits(m.Before))
}

// Found reports whether the measurement found a capacity or a lower bound of it.
func (m *Measured) Found() bool { return m.Verdict == redline.Within || m.Verdict == redline.AtLeast }

// adopt copies a result. The new capacity is the lower end of the confidence interval. A
// result that is only a lower bound (AtLeast) can raise the capacity but not reduce it. idle is the CPU
// use without load that was known before, in CPUs; 0: not known.
func (m *Measured) adopt(r *redline.Result, idle float64) {
	m.Verdict, m.Why, m.Rate, m.Low, m.High = r.Verdict, r.Why, r.Rate, r.Low, r.High
	if m.Low <= 0 || m.Low > m.Rate {
		m.Low = m.Rate
	}
	if cost, ok := costOf(r.Steps, idle); ok && m.Found() {
		m.Cost = cost
	}
	m.Relief = reliefOf(r.Steps)
	if m.Low > 0 && (m.Verdict == redline.Within || m.Verdict == redline.AtLeast && m.Low > m.Before) {
		m.After = m.Low
	}
}

// reliefOf returns the share by which the neighbours' rate fell from the first step to the last one that
// counts.
func reliefOf(steps []redline.Step) float64 {
	for i := len(steps) - 1; i > 0; i-- {
		if steps[i].Invalid == "" && steps[0].Neighbours > 0 {
			return max(0, 1-steps[i].Neighbours/steps[0].Neighbours)
		}
	}
	return 0
}

// mostMeasured bounds the history of a type, in measurements.
const mostMeasured = 200

// A Profile is the redline state of a type: its measurements and the capacities from them. The
// state file keeps the exported fields.
type Profile struct {
	Given    map[string]float64 `json:"given"`           // Capacities in the file, by size, and the last ones of sizes that were in it.
	Measured map[string]float64 `json:"measured"`        // Measured capacities, by size. They override Given.
	Costs    map[string]Cost    `json:"costs"`           // Measured CPU costs, by size.
	History  []Measured         `json:"history"`         // Oldest first.
	Next     time.Time          `json:"next"`            // Earliest time of the next measurement; zero: at once.
	Failures int                `json:"failures"`        // Consecutive measurements without a capacity.
	Under    *Measured          `json:"under,omitempty"` // The measurement under way.

	// Objective is the one that Measured holds for. Zero: an earlier version saved the state.
	Objective decide.Objective `json:"objective,omitzero"`

	waits  string // why a due measurement cannot begin
	drifts drift
}

// Pauses after measurements without a capacity. They double from firstRetry to longestRetry.
const (
	firstRetry   = 10 * time.Minute
	longestRetry = 24 * time.Hour
)

// add appends a finished measurement and schedules the next one.
func (p *Profile) add(m *Measured, now time.Time, every time.Duration) {
	p.Under = nil
	kept := p.History[max(0, len(p.History)-mostMeasured+1):]
	p.History = append(slices.Clone(kept), *m) // do not modify the old slice: a published Status shares it
	if !m.Found() {
		p.Next = now.Add(min(firstRetry<<min(p.Failures, 10), longestRetry))
		p.Failures++
		return
	}
	p.Failures, p.Next = 0, time.Time{}
	if every > 0 {
		p.Next = now.Add(every)
	}
	if m.Cost.Each > 0 {
		p.Costs[m.Size] = m.Cost
	}
	p.drifts = drift{} // also without a cost: otherwise the same minutes cause the next measurement at once
	if m.After != m.Before {
		p.Measured[m.Size] = m.After
	}
}

// last returns the last entry; nil: there is none.
func (p *Profile) last() *Measured {
	if len(p.History) == 0 {
		return nil
	}
	return &p.History[len(p.History)-1]
}

// meet compares the capacities in the file with those of the last run. A changed value in the
// file replaces the measured capacity and cost. It returns the changed sizes.
func (p *Profile) meet(given map[string]float64) (changed []string) {
	for _, m := range []*map[string]float64{&p.Given, &p.Measured} {
		if *m == nil {
			*m = map[string]float64{}
		}
	}
	if p.Costs == nil {
		p.Costs = map[string]Cost{}
	}
	for size, rate := range given {
		if was, known := p.Given[size]; known && was != rate {
			delete(p.Measured, size)
			delete(p.Costs, size)
			changed = append(changed, size)
		}
	}
	maps.Copy(p.Given, given) // a size that is not in the file now may come back with another capacity
	slices.Sort(changed)
	return changed
}

// aim compares the objective in the file with that of the last run. If it has changed, aim discards what was
// measured and the time of the next measurement: with every, one is due at once.
func (p *Profile) aim(o decide.Objective) (changed bool) {
	none := decide.Objective{}
	if o == none { // redline does not measure without an objective
		return false
	}
	if changed = p.Objective != none && p.Objective != o; changed {
		clear(p.Measured)
		clear(p.Costs)
		p.Next, p.Failures = time.Time{}, 0
	}
	p.Objective = o
	return changed
}

// triedInVain reports whether the last measurement of the size that found a capacity found no CPU
// time of a transaction.
func (p *Profile) triedInVain(size string) (vain bool) {
	for i := range p.History {
		if m := &p.History[i]; m.Size == size && m.Found() {
			vain = m.Cost.Each == 0
		}
	}
	return vain
}

// oldest returns the size with the oldest last measurement. A size without a measurement
// comes first.
func (p *Profile) oldest(sizes []string) (size string) {
	var at time.Time
	for i, s := range sizes {
		var last time.Time
		for k := range p.History {
			if p.History[k].Size == s {
				last = p.History[k].At
			}
		}
		if i == 0 || last.Before(at) {
			size, at = s, last
		}
	}
	return size
}
