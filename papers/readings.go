package papers

import (
	"fmt"
	"strings"

	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/measure/delay"
	"vitrine/result"
)

// A Reading is one figure that was measured.
type Reading struct {
	delay.Interval
	Mark string // why it is not comparable, or what to know about it
}

// Readings are the figures of a run by name: "docker/bridge rtt.mean@64" is of a
// stream of a size, "docker/bridge/packet rtt.mean@3" of a chain's length.
// Times are µs, of the CPU ns.
type Readings struct {
	of      map[string]Reading
	missing map[string]string // "docker/sriov" -> why nothing was measured
}

// Find gives the figure of that name.
func (r Readings) Find(name string) (Reading, bool) {
	x, ok := r.of[name]
	return x, ok
}

// Missing says why nothing was measured of what the name is of; empty: it was.
func (r Readings) Missing(name string) string {
	where, _, _ := strings.Cut(name, " ")
	return r.missing[where]
}

// Read takes the figures from a run folder's data, of whichever kind.
func Read(d *result.Data) (Readings, error) {
	r := Readings{of: map[string]Reading{}, missing: map[string]string{}}
	if _, ok, err := chain.ReadSettings(d.Manifest); err != nil {
		return r, err
	} else if ok {
		report, err := chain.Read(d)
		if err != nil {
			return r, err
		}
		r.chains(report)
		return r, nil
	}
	s, err := measure.Read(d)
	if err != nil {
		return r, err
	}
	r.network(s)
	return r, nil
}

// alone is a figure of all repeats together, which has no interval.
func alone(v float64) delay.Interval {
	return delay.Interval{Mean: v, Low: v, High: v, Repeats: 1, Confidence: certain}
}

const certain = 1

// network takes the figures of streams between two instances.
func (r Readings) network(s measure.Summary) {
	for name, why := range s.Unsupported {
		r.missing[strings.ReplaceAll(name, " on ", "/")] = why
	}
	for _, row := range s.Rows {
		where := row.Substrate + "/" + row.Fabric
		if row.Repeats == 0 {
			r.missing[where] = row.Invalid
			continue
		}
		put := func(name string, i delay.Interval) {
			if i.Repeats > 0 {
				r.of[where+" "+name] = Reading{i, row.Mark}
			}
		}
		switch row.Metric {
		case measure.Latency:
			if row.Delay == nil {
				continue
			}
			name := "rtt"
			if row.Way == measure.OneWay {
				name = "delay"
			}
			spread(put, name, fmt.Sprintf("@%d", row.Size), *row.Delay)
		case measure.Jitter:
			spread(put, "jitter", "", row.Jitter)
			spread(put, "lateness", "", row.Lateness)
			put("reordered.percent", alone(100*share(row.Reordered, row.Sent-row.Lost)))
			put("lost.percent", alone(100*share(row.Lost, row.Sent)))
		case measure.Efficiency:
			use(put, row.CPU)
		}
	}
}

// spread takes the figures of a distribution.
func spread(put func(string, delay.Interval), name, size string, s measure.Spread) {
	put(name+".least"+size, alone(s.Min))
	put(name+".min"+size, alone(s.Min))
	put(name+".max"+size, alone(s.Max))
	put(name+".mean"+size, s.Mean)
	put(name+".deviation"+size, s.Deviation)
	put(name+".p50"+size, s.P50)
	put(name+".p99"+size, s.P99)
}

// use takes the figures of CPU time.
func use(put func(string, delay.Interval), u *measure.Use) {
	if u == nil {
		return
	}
	put("cpu.total", u.Total)
	if u.Relative != nil {
		put("cpu.relative", *u.Relative)
	}
	if u.Split != nil {
		put("cpu.user", alone(u.Split.User))
		put("cpu.kernel", alone(u.Split.Kernel))
		put("cpu.interrupt", alone(u.Split.Interrupt))
	}
}

func share(part, whole int) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// chains takes the figures of chains.
func (r Readings) chains(report chain.Report) {
	for _, path := range report.Settings.Paths() {
		if why := report.Unsupported[path.String()]; why != "" {
			r.missing[path.Substrate+"/"+path.Fabric+"/"+path.Forwarder] = why
		}
	}
	for _, c := range report.Chains {
		where := c.Substrate + "/" + c.Fabric + "/" + c.Forwarder
		put := func(name string, i delay.Interval) {
			if i.Repeats > 0 {
				r.of[where+" "+name] = Reading{i, c.Mark()}
			}
		}
		for _, p := range c.Points {
			if p.Injected {
				continue
			}
			at := fmt.Sprintf("@%d", p.Length)
			put("rtt.mean"+at, p.Mean)
			put("rtt.p50"+at, p.RoundTrip)
			put("rtt.p99"+at, p.P99)
			put("rtt.least"+at, alone(p.Least))
			put("jitter.mean"+at, p.Jitter)
		}
		for of, name := range map[string]string{chain.RoundTripMean: "rtt", chain.Variation: "jitter"} {
			f, ok := c.Fit(of)
			if !ok {
				continue
			}
			put(name+".r2", alone(f.R2))
			put(name+".slope", f.Slope)
		}
	}
}
