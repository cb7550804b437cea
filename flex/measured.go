package flex

import (
	"fmt"
	"slices"
	"time"

	"vitrine/redline"
)

// A Measured is an entry of a type's capacity profile: one measurement by redline, and what
// became of the capacity.
type Measured struct {
	At       time.Time       `json:"at"` // When it began.
	Seconds  float64         `json:"seconds"`
	Size     string          `json:"size"`
	Instance string          `json:"instance"`
	Cause    string          `json:"cause"`   // first, schedule or drift
	Reason   string          `json:"reason"`  // Why it was due, for people.
	Verdict  redline.Verdict `json:"verdict"` //
	Why      string          `json:"why,omitempty"`
	Rate     float64         `json:"rate,omitempty"` // Highest rate that met the objective, in transactions a second.
	Low      float64         `json:"low,omitempty"`  // 95% interval.
	High     float64         `json:"high,omitempty"` // 0: no upper bound.
	Before   float64         `json:"before"`         // What deciding counted an instance of the size with.
	After    float64         `json:"after"`          // What it counts with since.
	Cost     Cost            `json:"cost"`           // What the steps showed of its CPU.
}

// String says what was found and what it changed, in one line.
func (m *Measured) String() string {
	var found string
	switch m.Verdict {
	case redline.Within:
		found = fmt.Sprintf("%.4g/s, between %.4g and %.4g", m.Rate, m.Low, m.High)
	case redline.AtLeast:
		found = fmt.Sprintf("at least %.4g/s: %s", m.Low, m.Why)
	default:
		return fmt.Sprintf("%s: %s; the capacity stays at %.4g/s", m.Verdict, m.Why, m.After)
	}
	if m.After == m.Before {
		return fmt.Sprintf("%s; the capacity stays at %.4g/s", found, m.After)
	}
	return fmt.Sprintf("%s; the capacity is %.4g/s instead of %.4g/s", found, m.After, m.Before)
}

// found reports whether the measurement says something about the capacity.
func (m *Measured) found() bool { return m.Verdict == redline.Within || m.Verdict == redline.AtLeast }

// adopt takes over a result. The capacity becomes the lower end of the interval, which is what
// an instance carries for sure. A bound from below only raises the capacity.
func (m *Measured) adopt(r *redline.Result) {
	m.Verdict, m.Why, m.Rate, m.Low, m.High = r.Verdict, r.Why, r.Rate, r.Low, r.High
	if m.Low <= 0 || m.Low > m.Rate {
		m.Low = m.Rate
	}
	if cost, ok := costOf(r.Steps); ok && m.found() {
		m.Cost = cost
	}
	if m.Low > 0 && (m.Verdict == redline.Within || m.Verdict == redline.AtLeast && m.Low > m.Before) {
		m.After = m.Low
	}
}

// mostMeasured bounds the history of a type.
const mostMeasured = 200

// A Profile is what redline has to do with a type. The exported fields outlive the
// orchestrator.
type Profile struct {
	Given    map[string]float64 `json:"given"`           // Capacities of the file, by size.
	Measured map[string]float64 `json:"measured"`        // Capacities that count instead, by size.
	Costs    map[string]Cost    `json:"costs"`           // What redline found of the CPU, by size.
	History  []Measured         `json:"history"`         // The oldest first.
	Next     time.Time          `json:"next"`            // No measurement before this time; zero: at once.
	Failures int                `json:"failures"`        // Measurements in a row that found no capacity.
	Under    *Measured          `json:"under,omitempty"` // The measurement that is under way.

	waits  string // why a measurement that is due does not begin
	drifts drift
}

// The pauses after measurements without a capacity.
const (
	firstRetry   = 10 * time.Minute
	longestRetry = 24 * time.Hour
)

// add notes the end of a measurement, and when the next one is due.
func (p *Profile) add(m *Measured, now time.Time, every time.Duration) {
	p.Under = nil
	kept := p.History[max(0, len(p.History)-mostMeasured+1):]
	p.History = append(slices.Clone(kept), *m) // the old one is in a status that others read
	if !m.found() {
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
		p.drifts = drift{}
	}
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

// meet compares the file's capacities with those that were measured in place of. A new value in
// the file counts instead of what was measured. It returns the sizes with one.
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
	p.Given = given
	slices.Sort(changed)
	return changed
}

// oldest returns those of the sizes whose last measurement is the longest ago.
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
