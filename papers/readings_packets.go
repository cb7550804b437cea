package papers

import (
	"fmt"
	"slices"
	"strings"

	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/measure/delay"
)

// network adds the readings of streams between two instances.
func (r *Readings) network(s measure.Summary) {
	for name, why := range s.Unsupported {
		r.missing[strings.ReplaceAll(name, " on ", "/")] = why
	}
	split := r.splits(s)
	for _, row := range s.Rows {
		where := row.Substrate + "/" + row.Fabric
		if row.Repeats == 0 {
			r.missing[where] = row.Invalid
			continue
		}
		lost := 100 * share(row.Lost, row.Sent)
		put := func(name string, i delay.Interval) {
			if i.Repeats > 0 {
				r.of[where+" "+name] = Reading{Interval: i, Lost: lost, Mark: row.Mark, Turns: turnsOf(i, s.Settings.Repeat)}
			}
		}
		if row.Metric == measure.Latency && row.Way != measure.RoundTrip {
			continue
		}
		if worst, ok := r.of[where+" lost.percent"]; !ok || worst.Mean < lost {
			put("lost.percent", withoutInterval(lost))
		}
		switch row.Metric {
		case measure.Latency:
			if row.Delay != nil {
				spread(put, "rtt", fmt.Sprintf("@%d", row.Size), *row.Delay)
			}
		case measure.Jitter:
			spread(put, "jitter", "", row.Jitter)
			spread(put, "lateness", "", row.Lateness)
			put("reordered.percent", row.ReorderedPercent)
		case measure.Efficiency:
			use(put, row.CPU, split)
		}
	}
}

// turnsOf returns the quantity in each turn. A turn is a repeat, because each repeat visits all paths. It
// returns nil if a repeat has no value: the values of two paths may then be of different turns.
func turnsOf(i delay.Interval, repeats int) []float64 {
	if len(i.Each) != repeats {
		return nil
	}
	return i.Each
}

// splits reports whether the CPU time is split: for every path or for none.
func (r *Readings) splits(s measure.Summary) bool {
	var without []string
	for _, row := range s.Rows {
		if row.CPU != nil && row.CPU.Split == nil && row.Fabric != measure.Floor {
			without = append(without, fmt.Sprintf("%s: %s", row.Combination, row.CPU.Why))
		}
	}
	if len(without) > 0 {
		slices.Sort(without)
		r.Notes = append(r.Notes, "CPU time is split for no path, because that of these is not known ("+strings.Join(without, "; ")+").")
	}
	return len(without) == 0
}

// spread adds the readings of a distribution.
func spread(put func(string, delay.Interval), name, size string, s measure.Spread) {
	put(name+".least"+size, withoutInterval(s.Min))
	put(name+".min"+size, s.MinEach)
	put(name+".max"+size, s.MaxEach)
	put(name+".mean"+size, s.Mean)
	put(name+".deviation"+size, s.Deviation)
	put(name+".p50"+size, s.P50)
	put(name+".p99"+size, s.P99)
}

// use adds the readings of CPU time.
func use(put func(string, delay.Interval), u *measure.Use, split bool) {
	if u == nil {
		return
	}
	put("cpu.total", u.Total)
	if u.Relative != nil {
		put("cpu.relative", *u.Relative)
	}
	if split && u.Split != nil {
		put("cpu.user", withoutInterval(u.Split.User))
		put("cpu.kernel", withoutInterval(u.Split.Kernel))
		put("cpu.interrupt", withoutInterval(u.Split.Interrupt))
	}
}

func share(part, whole int) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// chains adds the readings of chains.
func (r *Readings) chains(report chain.Report) {
	for _, path := range report.Settings.Paths() {
		if why := report.Unsupported[path.String()]; why != "" {
			r.missing[path.Substrate+"/"+path.Fabric+"/"+path.Forwarder] = why
		}
	}
	for _, c := range report.Chains {
		where := c.Substrate + "/" + c.Fabric + "/" + c.Forwarder
		worst := 0.0
		put := func(name string, i delay.Interval, lost float64) {
			if i.Repeats > 0 {
				r.of[where+" "+name] = Reading{Interval: i, Lost: lost, Mark: c.Mark(), Turns: turnsOf(i, report.Settings.Repeat)}
			}
		}
		for _, p := range c.Points {
			if p.Injected {
				continue
			}
			at, lost := fmt.Sprintf("@%d", p.Length), 100*share(p.Lost, p.Sent)
			worst = max(worst, lost)
			put("rtt.mean"+at, p.Mean, lost)
			put("rtt.p50"+at, p.RoundTrip, lost)
			put("rtt.p99"+at, p.P99, lost)
			put("rtt.least"+at, withoutInterval(p.Least), lost)
			put("jitter.mean"+at, p.Jitter, lost)
		}
		put("lost.percent", withoutInterval(worst), worst)
		for of, name := range map[string]string{chain.RoundTripMean: "rtt", chain.Variation: "jitter"} {
			if f, ok := c.Fit(of); ok {
				put(name+".r2", f.R2Each, worst)
				put(name+".slope", f.Slope, worst)
			}
		}
	}
}
