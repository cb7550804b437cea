package papers

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"vitrine/measure"
	"vitrine/measure/chain"
	"vitrine/measure/delay"
	"vitrine/result"
)

// A Reading is one measured quantity.
type Reading struct {
	delay.Interval
	Lost  float64   `json:"lost_percent,omitempty"` // of its packets
	Mark  string    `json:"mark,omitempty"`         // why it is not comparable
	Bound string    `json:"bound,omitempty"`        // vitrine.CensoredBelow, ...: the quantity is only bounded
	Turns []float64 `json:"turns,omitempty"`        // the value in each turn; nil: not measured in turns, or a turn has no value

	given  bool // a number of the claim, which has no interval
	netdev bool // of Open vSwitch in user space
}

// What a verdict requires of a reading.
const (
	LeastRepeats = 5   // fresh deployments
	MostLost     = 0.1 // percent of the packets
)

// unfit returns why no verdict may rest on the reading; empty: one may.
func (r Reading) unfit() string {
	switch {
	case r.given:
		return ""
	case r.Mark != "":
		return r.Mark + ": not comparable"
	case r.Lost > MostLost:
		return fmt.Sprintf("the path lost %.3g%% of its packets", r.Lost)
	case r.Confidence == 0:
		return "a value without an interval"
	case r.Repeats < LeastRepeats:
		return fmt.Sprintf("%d repeats, fewer than five", r.Repeats)
	}
	return ""
}

// figure returns the reading as text, with its name.
func (r Reading) figure(name string) string {
	if r.given {
		return name
	}
	return name + ": " + r.text(name)
}

// text returns the value of the reading of that name. Of all quantities only a slope can be negative, so
// the interval of any other is printed from 0 on.
func (r Reading) text(name string) string {
	text, low := short(r.Mean), r.Low
	if r.Mean >= 0 && !strings.HasSuffix(name, ".slope") {
		low = max(low, 0)
	}
	switch {
	case r.Bound != "":
		text = fmt.Sprintf("%s (%s)", short(r.Mean), r.Bound)
	case r.Confidence > 0:
		text += fmt.Sprintf(" [%s, %s]", short(low), short(r.High))
	}
	return text
}

// short formats a number with about three digits, also below 1.
func short(v float64) string {
	if a := max(v, -v); 0 < a && a < 1 {
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return measure.Figure(v)
}

// Readings are the quantities of a run by name: "docker/bridge rtt.mean@64" for a
// stream and its frame size, "docker/bridge/packet rtt.mean@3" for a chain and
// its length, "bn1s-sp1m-hs1s/pinning=on capacity@0.9" for a sizing. Times are in
// µs, CPU times in ns.
type Readings struct {
	of      map[string]Reading
	missing map[string]string   // "docker/sriov" -> why nothing was measured
	beside  map[string]Readings // other runs of the paper, by the last part of their names
	machine string              // the kind of machine
	turns   bool                // the sizings were measured in turns
	netdev  bool                // Open vSwitch ran in user space
	Notes   []string            // remarks that a table must show
}

func newReadings() Readings {
	return Readings{of: map[string]Reading{}, missing: map[string]string{}}
}

// Read takes the readings from the data of any kind of run folder.
func Read(d *result.Data) (Readings, error) {
	r := newReadings()
	r.machine, r.netdev = d.Manifest.Host.Machine(), inUserSpace(d.Manifest.FabricVersions)
	if _, ok, err := chain.ReadSettings(d.Manifest); err != nil {
		return r, err
	} else if ok {
		report, err := chain.Read(d)
		if err == nil {
			r.chains(report)
		}
		return r, err
	}
	if len(d.Manifest.Measurement) == 0 {
		return r, r.capacities(d)
	}
	s, err := measure.Read(d)
	if err == nil {
		r.network(s)
	}
	return r, err
}

// inUserSpace reports whether Open vSwitch ran in user space, by the versions of a run's fabrics as package
// fabric/ovs describes them. Records of runs up to 2026-11-29 have none.
func inUserSpace(versions map[string]string) bool {
	return strings.Contains(versions["ovs"], "datapath netdev")
}

// Beside adds the committed records of the paper's other runs that the claims name. It leaves out
// records of other plans than the committed ones.
func (r Readings) Beside(from fs.FS, e Exhibit) (Readings, error) {
	r.beside = map[string]Readings{}
	for _, c := range e.Claims {
		for _, name := range c.names() {
			other, _, ok := strings.Cut(name, ": ")
			if !ok {
				continue
			}
			record, err := ReadRecord(from, path.Join(e.Paper(), other))
			if err != nil {
				return r, err
			}
			history, err := ReadHistory(from, path.Join(e.Paper(), other))
			if err != nil {
				return r, err
			}
			if record != nil && history.Refuses(record.Plan, record.Started) == "" {
				r.beside[other] = record.readings()
			}
		}
	}
	return r, nil
}

// read returns the reading with that name, or why there is none.
func (r Readings) read(name string) (x Reading, missing string) {
	if v, err := strconv.ParseFloat(name, 64); err == nil {
		return Reading{Interval: delay.Interval{Mean: v, Low: v, High: v}, given: true}, ""
	}
	if other, rest, ok := strings.Cut(name, ": "); ok {
		from, ok := r.beside[other]
		switch {
		case !ok:
			return x, "not run by its committed plan"
		case from.machine != r.machine: // absolute figures of different machines are not compared
			return x, "recorded on another machine (" + from.machine + "): run and record it on this one too"
		}
		x, missing = from.read(rest)
		x.Turns = nil // the turns of another run were at another time
		return x, missing
	}
	where, _, _ := strings.Cut(name, " ")
	x, ok := r.of[name]
	if ok {
		x.netdev = r.netdev && strings.Contains(where+"/", "/ovs/")
		return x, ""
	}
	return x, "not measured: " + oneLine(cmp.Or(r.missing[where], "the run has no such value"))
}

// oneLine returns the text of a reason, such as the output of a program, as one line.
func oneLine(why string) string { return strings.Join(strings.Fields(why), " ") }

// matching returns the texts that the * of the pattern stands for.
func (r Readings) matching(pattern string) []string {
	if other, rest, ok := strings.Cut(pattern, ": "); ok {
		return r.beside[other].matching(rest)
	}
	var list []string
	for name := range r.of {
		if what, ok := match(pattern, name); ok {
			list = append(list, what)
		}
	}
	return list
}

// withoutInterval returns a value without an interval.
func withoutInterval(v float64) delay.Interval {
	return delay.Interval{Mean: v, Low: v, High: v, Repeats: 1}
}
