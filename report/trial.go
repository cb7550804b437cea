package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
)

// A trialTable is the table of all trials of a run. It has the columns for which at
// least one trial has a value.
type trialTable struct {
	Rows    []trialView
	Invalid int
	Backlog bool // the generator reports calls in flight
	Host    bool // the host was watched
	Sampled bool // the monitor's gaps are recorded
}

type trialView struct {
	vitrine.Outcome
	Name    string
	Causes  string
	Class   string
	Backlog measuredCell // growth of calls in flight
	Steal   measuredCell // CPUs
	Others  measuredCell // CPUs
	Speed   measuredCell // of the host before, during and after
	Gap     measuredCell // seconds
}

// A measuredCell is a cell with the value by which the column is sorted; empty: missing.
type measuredCell struct{ Text, Sort string }

func cell(v *float64, format string) measuredCell {
	if v == nil {
		return measuredCell{Text: missing}
	}
	return measuredCell{fmt.Sprintf(format, *v), sortable(*v)}
}

func (r *run) trialTable() trialTable {
	names := map[vitrine.Key]string{}
	for _, x := range r.subjects {
		for _, o := range x.outcomes {
			names[o.Key] = x.name
		}
	}
	var table trialTable
	for _, o := range r.Outcomes {
		t := trialView{
			Outcome: o, Name: cmp.Or(names[o.Key], result.Label(o.Substrate, o.Options, o.Subject)), Causes: causes(o),
			Backlog: backlogCell(o), Steal: cell(nil, ""), Others: cell(nil, ""), Speed: cell(nil, ""), Gap: cell(nil, ""),
		}
		if !o.Valid {
			t.Class = "invalid"
			table.Invalid++
		}
		if h := o.Host; h != nil {
			t.Steal, t.Others, t.Speed = cell(&h.Steal, "%.3f"), cell(h.Other, "%.3f"), speedCell(*h)
		}
		if o.Sampling != nil {
			t.Gap = cell(&o.Sampling.Longest, "%.1f")
		}
		table.Backlog = table.Backlog || t.Backlog.Text != missing
		table.Host = table.Host || o.Host != nil
		table.Sampled = table.Sampled || o.Sampling != nil
		table.Rows = append(table.Rows, t)
	}
	return table
}

// backlogCell shows the growth of calls in flight, with the distance to its bounds.
func backlogCell(o vitrine.Outcome) measuredCell {
	share, half, known := rate.Growth(o)
	if !known {
		return measuredCell{Text: missing}
	}
	return measuredCell{fmt.Sprintf("%+.1f ± %.1f%%", 100*share, 100*half), sortable(share)}
}

// speedCell shows the speeds before, during and after the trial, sorted by the lowest.
func speedCell(h vitrine.HostReading) measuredCell {
	lowest := math.Inf(1)
	var parts []string
	for _, v := range []float64{h.Before, h.During, h.After} {
		if v <= 0 {
			parts = append(parts, missing)
			continue
		}
		parts = append(parts, fmt.Sprintf("%.2f", v))
		lowest = min(lowest, v)
	}
	c := measuredCell{Text: strings.Join(parts, " ")}
	if !math.IsInf(lowest, 1) {
		c.Sort = sortable(lowest)
	}
	return c
}

// heldUp returns a warning if the monitor was held up in trials.
func (r *run) heldUp() []string {
	n, longest := 0, 0.0
	for _, o := range r.Outcomes {
		if s := o.Sampling; s != nil && s.Gaps > 0 {
			n++
			longest = max(longest, s.Longest)
		}
	}
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the monitor was held up in %s, for up to %s s: mean CPU and network are still right, because they come from counters, but peaks are unknown (see the column Gap of the trials)",
		numberOf(n, "trial"), number(longest))}
}

// late returns a warning if calls began late in trials that missed a threshold.
func (r *run) late() string {
	n, longest := 0, 0.0
	for _, o := range r.Outcomes {
		if o.Valid && o.Late > vitrine.MostLate && o.SuccessRatio() < r.thresholds()[0] {
			n++
			longest = max(longest, o.Late.Seconds())
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("calls began up to %s s late in %s that missed a success ratio: the generator was held up or had no free subscriber, and calls that it then sent all at once may have failed for that reason (see generator_late_s in trials.csv)",
		number(longest), numberOf(n, "trial"))
}

// ended returns a warning for each size in whose trials an instance of the function ended.
func (r *run) ended() (list []string) {
	for _, x := range r.subjects {
		n := 0
		for _, o := range x.outcomes {
			if o.InstanceEnded {
				n++
			}
		}
		if n > 0 {
			list = append(list, fmt.Sprintf("%s: an instance of the function ended in %s: such a trial does not count, so the capacity is that of deployments that survived",
				x.name, numberOf(n, "trial")))
		}
	}
	return list
}

func numberOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// causes lists failures by cause, the most frequent first.
func causes(o vitrine.Outcome) string {
	list := slices.Sorted(maps.Keys(o.Failed))
	slices.SortStableFunc(list, func(a, b string) int { return int(o.Failed[b] - o.Failed[a]) })
	for i, cause := range list {
		list[i] = fmt.Sprintf("%s %d", cause, o.Failed[cause])
	}
	return strings.Join(list, ", ")
}

// ratio formats a trial's success ratio.
func (s *set) ratio(o vitrine.Outcome) string {
	if o.Scheduled == 0 {
		return missing
	}
	return RatioText(o.SuccessRatio(), s.thresholds)
}

// RatioText formats a success ratio with three decimals. It uses more if rounding would move the ratio
// across a threshold.
func RatioText(ratio float64, thresholds []float64) string {
	ratio = math.Round(ratio*1e9) / 1e9 // without binary rounding errors
	for digits := 3; digits < 9; digits++ {
		text := strconv.FormatFloat(ratio, 'f', digits, 64)
		shown, err := strconv.ParseFloat(text, 64)
		if err == nil && !slices.ContainsFunc(thresholds, func(t float64) bool { return (shown < t) != (ratio < t) }) {
			return text
		}
	}
	return shortest(ratio)
}

func latencyText(o trialView, ms float64) string {
	if o.Succeeded == 0 || ms <= 0 {
		return missing
	}
	return number(ms)
}
