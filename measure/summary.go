package measure

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"vitrine"
	"vitrine/measure/cpu"
	"vitrine/measure/delay"
	"vitrine/result"
)

// A Summary holds the results by combination.
type Summary struct {
	Settings    Settings          `json:"settings"`
	Rows        []Row             `json:"rows"`                  // the instrument's floor first
	Unsupported map[string]string `json:"unsupported,omitempty"` // combination -> why it was left out
	Ports       []Wiring          `json:"ports"`
}

// A Wiring holds the facts about the ports of a combination.
type Wiring struct {
	Combination
	Ports []PortFacts `json:"ports"`
}

// A Row sums up the repeats of one kind of stream on one combination.
type Row struct {
	Combination
	Metric  string  `json:"metric"`
	Way     string  `json:"way"`
	Size    int     `json:"frame_size_without_fcs"`
	Rate    float64 `json:"rate"`              // packets a second
	Repeats int     `json:"repeats"`           // valid ones
	Invalid string  `json:"invalid,omitempty"` // why the other repeats are not valid
	Mark    string  `json:"not_comparable,omitempty"`

	Sent       int `json:"sent"` // in all valid repeats, within the cut
	Lost       int `json:"lost"`
	Reordered  int `json:"reordered"`
	Duplicates int `json:"duplicates"`
	Extent     int `json:"reorder_extent"` // largest of any repeat

	ReorderedPercent delay.Interval `json:"reordered_percent"` // of the packets that a repeat received

	Delay       *Spread        `json:"delay,omitempty"` // nil: the ends do not share one kernel's clock
	Jitter      Spread         `json:"jitter"`
	PDV         Spread         `json:"pdv"`
	IPDV        Spread         `json:"ipdv"`
	Lateness    Spread         `json:"lateness"`
	Application *Spread        `json:"application_lateness,omitempty"`
	Schedule    delay.Interval `json:"schedule_error_p99_us"`
	ScheduleMax float64        `json:"schedule_error_max_us"`
	Stamps      string         `json:"stamps"`
	Room        int            `json:"receive_buffer_bytes,omitempty"` // of the socket of the receiver or the echo, with the kernel's overhead; 0: not known
	Skew        float64        `json:"greatest_skew_ppm"`              // between two kernels' clocks; already removed
	Drift       float64        `json:"greatest_drift_us"`              // of the time of day against the steady clock, in one stream; of a receiver with another kernel, over all its streams

	CPU *Use `json:"cpu,omitempty"` // efficiency only
}

// A Spread is a distribution over repeats, in µs. Min and Max are over all values. Each
// interval is the mean of a figure over the repeats.
type Spread struct {
	N         int            `json:"n"` // values in all repeats
	Min       float64        `json:"min_us"`
	Max       float64        `json:"max_us"`
	MinEach   delay.Interval `json:"min_of_each_us"`
	MaxEach   delay.Interval `json:"max_of_each_us"`
	Mean      delay.Interval `json:"mean_us"`
	Deviation delay.Interval `json:"deviation_us"`
	P50       delay.Interval `json:"p50_us"`
	P90       delay.Interval `json:"p90_us"`
	P95       delay.Interval `json:"p95_us"`
	P99       delay.Interval `json:"p99_us"`
	P999      delay.Interval `json:"p99.9_us"`
}

// A Use is the CPU time per packet; ns.
type Use struct {
	Total      delay.Interval  `json:"total_ns"`      // by the soaker
	Counted    delay.Interval  `json:"counted_ns"`    // by BPF; Repeats is 0 if BPF did not count
	Background delay.Interval  `json:"background_ns"` // not included in Total
	Split      *cpu.Split      `json:"split"`         // mean of the repeats in which soaker and BPF agreed; nil: no split, see Why
	Agreed     int             `json:"agreed"`        // repeats in which soaker and BPF agreed
	Why        string          `json:"why,omitempty"`
	Relative   *delay.Interval `json:"relative_to_direct"` // Total divided by direct's on the same substrate, repeat by repeat; nil: direct was not measured

	totals map[int]float64 // by repeat
}

// Read summarizes the data of a run folder. It returns a *vitrine.BadInput for a run of
// another kind.
func Read(d *result.Data) (Summary, error) {
	s, ok, err := ReadSettings(d.Manifest)
	if err != nil {
		return Summary{}, err
	}
	if !ok {
		return Summary{}, &vitrine.BadInput{File: d.Dir, Found: "a run that measured no network", Want: "want a run of vitrine measure network"}
	}
	return Summarize(s, d.Outcomes, d.Manifest.Unsupported)
}

// An id identifies one kind of stream: its repeats share it.
type id struct {
	Combination
	metric, way string
	size        int
}

// A group is the repeats of one kind of stream.
type group struct {
	id
	details []Detail // of valid repeats
	repeats []int
	rate    float64
	invalid map[int]string // repeat -> why it has no valid stream
}

// Summarize summarizes the streams. It is pure.
func Summarize(s Settings, outcomes []vitrine.Outcome, unsupported map[string]string) (Summary, error) {
	out := Summary{Settings: s, Unsupported: maps.Clone(unsupported)}
	groups, order, err := grouped(outcomes)
	if err != nil {
		return out, err
	}
	if err := s.Check(); err != nil {
		return out, err
	}
	for _, where := range s.combinations() {
		var ports []PortFacts
		for _, id := range order {
			if id.Combination != where {
				continue
			}
			g := groups[id]
			out.Rows = append(out.Rows, g.row())
			for _, d := range g.details {
				ports = d.Ports
			}
		}
		if ports != nil {
			out.Ports = append(out.Ports, Wiring{where, ports})
		}
	}
	out.compareWithDirect()
	return out, nil
}

// grouped groups the streams by kind, in the order of the plan.
func grouped(outcomes []vitrine.Outcome) (map[id]*group, []id, error) {
	groups := map[id]*group{}
	var order []id
	sorted := slices.Clone(outcomes)
	slices.SortStableFunc(sorted, func(a, b vitrine.Outcome) int { return a.Seq - b.Seq })
	for _, o := range sorted {
		d, err := ReadDetail(o)
		if err != nil {
			return nil, nil, err
		}
		x := id{Combination{o.Substrate, d.Fabric}, d.Metric, d.Way, d.Size}
		g := groups[x]
		if g == nil {
			g = &group{id: x, rate: o.Rate, invalid: map[int]string{}}
			groups[x] = g
			order = append(order, x)
		}
		if !o.Valid {
			g.invalid[o.Repeat] = o.Reason
			continue
		}
		delete(g.invalid, o.Repeat)
		g.details, g.repeats = append(g.details, d), append(g.repeats, o.Repeat)
	}
	return groups, order, nil
}

// row summarizes the repeats.
func (g *group) row() Row {
	r := Row{Combination: g.Combination, Metric: g.metric, Way: g.way, Size: g.size, Rate: g.rate, Repeats: len(g.details), Invalid: g.why()}
	for _, d := range g.details {
		n := d.Network
		r.Sent, r.Lost, r.Reordered, r.Duplicates = r.Sent+n.Sent, r.Lost+n.Lost, r.Reordered+n.Reordered, r.Duplicates+n.Duplicates
		r.Extent = max(r.Extent, n.Extent)
		r.ScheduleMax = max(r.ScheduleMax, float64(d.Sent.Schedule.Max)/1e3)
		r.Drift = max(r.Drift, abs(d.Drift)/1e3, abs(d.Sent.Drift)/1e3)
		r.Skew = max(r.Skew, d.Skew, -d.Skew)
		r.Stamps, r.Room = d.Stamps, d.Room
		r.Mark = cmp.Or(Mark(d.Accelerator), r.Mark)
	}
	r.ReorderedPercent = g.interval(func(d Detail) float64 {
		return 100 * float64(d.Network.Reordered) / max(1, float64(d.Network.Sent-d.Network.Lost))
	})
	r.Schedule = g.interval(func(d Detail) float64 { return float64(d.Sent.Schedule.P99) / 1e3 })
	r.Jitter = g.spread(func(d Detail) delay.Distribution { return d.Network.Jitter })
	r.PDV = g.spread(func(d Detail) delay.Distribution { return d.Network.PDV })
	r.IPDV = g.spread(func(d Detail) delay.Distribution { return d.Network.IPDV })
	r.Lateness = g.spread(func(d Detail) delay.Distribution { return d.Network.Lateness })
	if g.all(func(d Detail) bool { return d.OneClock }) {
		s := g.spread(func(d Detail) delay.Distribution { return d.Network.Delay })
		r.Delay = &s
	}
	if g.all(func(d Detail) bool { return d.Application != nil }) {
		s := g.spread(func(d Detail) delay.Distribution { return *d.Application })
		r.Application = &s
	}
	if g.all(func(d Detail) bool { return d.CPU != nil }) {
		r.CPU = g.cpuUse()
	}
	return r
}

// Mark returns the mark for measurements under an accelerator that makes them not comparable. It
// is empty if they are comparable.
func Mark(accelerator string) string {
	if vitrine.NotComparable(accelerator) == "" {
		return ""
	}
	return "emulated (" + accelerator + ")"
}

func abs(v int64) float64 { return max(float64(v), -float64(v)) }

// why lists the reasons of repeats without a valid stream.
func (g *group) why() string {
	reasons := map[string]int{}
	for _, why := range g.invalid {
		reasons[why]++
	}
	var parts []string
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		parts = append(parts, fmt.Sprintf("%d of %d repeats: %s", reasons[why], len(g.invalid)+len(g.details), why))
	}
	return strings.Join(parts, "; ")
}

// all reports whether there are valid repeats and so is true for each of them.
func (g *group) all(so func(Detail) bool) bool {
	return len(g.details) > 0 && !slices.ContainsFunc(g.details, func(d Detail) bool { return !so(d) })
}

func (g *group) interval(value func(Detail) float64) delay.Interval {
	var list []float64
	for _, d := range g.details {
		list = append(list, value(d))
	}
	return delay.OfRepeats(list)
}

func (g *group) spread(of func(Detail) delay.Distribution) Spread {
	interval := func(value func(delay.Distribution) float64) delay.Interval {
		return g.interval(func(d Detail) float64 { return value(of(d)) })
	}
	s := Spread{
		MinEach:   interval(func(d delay.Distribution) float64 { return d.Min }),
		MaxEach:   interval(func(d delay.Distribution) float64 { return d.Max }),
		Mean:      interval(func(d delay.Distribution) float64 { return d.Mean }),
		Deviation: interval(func(d delay.Distribution) float64 { return d.Deviation }),
		P50:       interval(func(d delay.Distribution) float64 { return d.P50 }),
		P90:       interval(func(d delay.Distribution) float64 { return d.P90 }),
		P95:       interval(func(d delay.Distribution) float64 { return d.P95 }),
		P99:       interval(func(d delay.Distribution) float64 { return d.P99 }),
		P999:      interval(func(d delay.Distribution) float64 { return d.P999 }),
	}
	for i, d := range g.details {
		x := of(d)
		if i == 0 {
			s.Min, s.Max = x.Min, x.Max
		}
		s.N, s.Min, s.Max = s.N+x.N, min(s.Min, x.Min), max(s.Max, x.Max)
	}
	return s
}

// cpuUse summarizes the CPU time of the repeats. It gives the split only if soaker and
// BPF agreed in most repeats, as the mean of these repeats.
func (g *group) cpuUse() *Use {
	u := &Use{
		Total:      g.interval(func(d Detail) float64 { return d.CPU.Total }),
		Background: g.interval(func(d Detail) float64 { return d.CPU.Background }),
		totals:     map[int]float64{},
	}
	var counted []float64
	var split cpu.Split
	for i, d := range g.details {
		u.totals[g.repeats[i]] = d.CPU.Total
		if d.CPU.Counted > 0 {
			counted = append(counted, d.CPU.Counted)
		}
		if s := d.CPU.Split; s != nil {
			u.Agreed++
			split.User, split.Kernel, split.Interrupt = split.User+s.User, split.Kernel+s.Kernel, split.Interrupt+s.Interrupt
		} else {
			u.Why = d.CPU.Why
		}
	}
	u.Counted = delay.OfRepeats(counted)
	if 2*u.Agreed <= len(g.details) {
		return u
	}
	u.Why = ""
	n := float64(u.Agreed)
	u.Split = &cpu.Split{User: split.User / n, Kernel: split.Kernel / n, Interrupt: split.Interrupt / n}
	return u
}

// Direct is the fabric that other fabrics are compared with (the paper's figure 5).
const Direct = "direct"

// compareWithDirect divides each CPU time by the CPU time of direct on the same
// substrate.
func (s *Summary) compareWithDirect() {
	for i := range s.Rows {
		r := &s.Rows[i]
		direct := s.find(Combination{r.Substrate, Direct}, *r)
		if r.CPU == nil || direct == nil || direct.CPU == nil {
			continue
		}
		var ratios []float64
		for _, repeat := range slices.Sorted(maps.Keys(r.CPU.totals)) {
			if base := direct.CPU.totals[repeat]; base > 0 {
				ratios = append(ratios, r.CPU.totals[repeat]/base)
			}
		}
		if len(ratios) > 0 {
			x := delay.OfRepeats(ratios)
			r.CPU.Relative = &x
		}
	}
}

// Floor returns the floor's row for the same kind of stream; nil: it was not measured.
func (s *Summary) Floor(of Row) *Row { return s.find(floor(), of) }

// find returns another combination's row for the same kind of stream; nil: it has
// no valid repeat.
func (s *Summary) find(where Combination, like Row) *Row {
	i := slices.IndexFunc(s.Rows, func(r Row) bool {
		return r.Combination == where && r.Metric == like.Metric && r.Way == like.Way && r.Size == like.Size
	})
	if i < 0 || s.Rows[i].Repeats == 0 {
		return nil
	}
	return &s.Rows[i]
}
