package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"

	"vitrine/reference/ims/overload"
	"vitrine/testbed/quiet"
)

// overloadFile stores every window, so that an interrupted bench can resume, and so that the page can
// be written again. A bench ignores windows of another build of the program or of another host.
const overloadFile = "bench/results/overload.jsonl"

const (
	overloadSeconds = 10 // length of a window
	overloadSuccess = 0.9
	overloadSteady  = 0.05 // a window is steady if the calls in flight grow by less than this share of the rate
	overloadStep    = 1.08 // factor between two rates of a search
	overloadQuota   = 0.5  // share of the flavor's quota; the instances share one CPU, which three large ones at full quota would exhaust
	overloadMore    = 1.2  // factor of the larger quota that must carry more
	overloadCarried = 0.99 // success of a deployment that carries its load
)

// overloadNow are the rules of new windows.
var overloadNow = overloadRules{Repeats: 5, Rounds: 5, Turns: 3, Slowdown: quiet.StrictSlowdown, Awake: true}

// overloadRules say how windows are measured. Windows of different rules are not compared.
type overloadRules struct {
	Repeats  int     `json:"repeats"`          // fresh deployments per rate of a search
	Rounds   int     `json:"rounds,omitempty"` // of fresh deployments, each with a search for the capacity; 0: everything is compared with one capacity
	Turns    int     `json:"turns,omitempty"`  // how often a comparison is made; what is compared is driven in turns; 0: once, one thing after the other
	Slowdown float64 `json:"slowdown"`         // a window is repeated if the host was slower by more than this share; see quiet.Guard
	Awake    bool    `json:"awake"`            // idle CPUs polled; see quiet.KeepAwake
}

// overloadGuess is the approximate capacity of each flavor at its full quota,
// in calls/s. A search begins there.
var overloadGuess = map[string]float64{"small": 400, "medium": 800, "large": 1600}

func overloadFlavors() []string { return []string{"small", "medium", "large"} }

// An overloadPart measures one property of one flavor.
type overloadPart struct {
	name string
	run  func(ctx context.Context, m *overloadMeter) ([]Row, error)
}

func overloadParts() []overloadPart {
	return []overloadPart{
		{"goodput", overloadGoodput}, {"control", overloadControl}, {"below", countBelow}, {"above", countAbove}, {recoveryPart, overloadRecovery},
	}
}

// overloadBenches returns benches that test whether the reference IMS degrades
// gracefully and recovers.
func overloadBenches() (all []bench) {
	for _, flavor := range overloadFlavors() {
		for _, part := range overloadParts() {
			all = append(all, bench{"ims/overload/" + flavor + "/" + part.name, onOverloadSite(flavor,
				func(ctx context.Context, s *overloadSite, progress io.Writer) ([]Row, error) {
					m := &overloadMeter{flavor: flavor, build: s.build, host: s.from.Host, rules: overloadNow, drive: s.drive, file: overloadFile, progress: progress}
					if err := m.load(); err != nil {
						return nil, err
					}
					return part.run(ctx, m)
				})})
		}
	}
	return all
}

// An overloadMeter drives the windows that its file does not contain yet.
type overloadMeter struct {
	flavor, build, host, file string
	rules                     overloadRules
	drive                     func(ctx context.Context, w window) (window, error)
	progress                  io.Writer
	done                      []window
	round                     string // of the windows to drive
}

// load reads the windows that this meter may use.
func (m *overloadMeter) load() error {
	all, err := readLines[window](m.file)
	for _, w := range all {
		m.take(w)
	}
	return err
}

// take adds a window of an earlier call, if the meter may use it.
func (m *overloadMeter) take(w window) {
	if m.fits(w) {
		m.done = append(m.done, w)
	}
}

// fits reports whether the window is of this flavor, build and host, and by these rules.
func (m *overloadMeter) fits(w window) bool {
	return w.Flavor == m.flavor && w.Build == m.build && w.Host == m.host && w.overloadRules == m.rules
}

// at returns the windows so far with the load of w, of all rounds.
func (m *overloadMeter) at(w window) (all []window) {
	for _, other := range m.done {
		if compareLoads(other, w) == 0 {
			all = append(all, other)
		}
	}
	return all
}

// windows returns n windows of this round, each on a fresh deployment.
func (m *overloadMeter) windows(ctx context.Context, mode string, quota, rate float64, n int) ([]window, error) {
	return m.collect(ctx, m.want(mode, quota, rate), n)
}

// want returns a window of this round without results.
func (m *overloadMeter) want(mode string, quota, rate float64) window {
	return window{Build: m.build, Flavor: m.flavor, Quota: quota, Mode: mode, Rate: math.Round(rate), Round: m.round, Seconds: overloadSeconds, overloadRules: m.rules}
}

// collect returns n windows of the wanted load and round. It drives those that the file lacks.
func (m *overloadMeter) collect(ctx context.Context, want window, n int) ([]window, error) {
	got := slices.DeleteFunc(m.at(want), func(w window) bool { return w.Round != want.Round })
	got = got[:min(n, len(got))]
	for len(got) < n {
		w, err := m.drive(ctx, want)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(m.progress, "  %s, quota %g, %s, %g calls/s: success %.3f, goodput %.4g, Sprout at %.2f of its quota\n",
			w.Flavor, w.Quota, w.Mode, w.Rate, w.Success, w.Goodput, w.Quotas["sprout"])
		if err := m.keep(w); err != nil {
			return nil, err
		}
		got = append(got, w)
	}
	return got, nil
}

func (m *overloadMeter) keep(w window) error {
	m.done = append(m.done, w)
	return appendLine(m.file, w)
}

func (m *overloadMeter) name(part string) string { return "ims/overload/" + m.flavor + "/" + part }

// overloadGoodput compares the goodput under overload with the capacity.
func overloadGoodput(ctx context.Context, m *overloadMeter) (rows []Row, err error) {
	known, err := m.capacity(ctx, overload.Graceful, overloadQuota)
	if err != nil {
		return nil, err
	}
	defer func() { m.round = "" }()
	loads := []float64{1.5, 2, 4}
	found, got, err := m.beside(ctx, "goodput", known, loads, m.rules.Repeats)
	if err != nil {
		return nil, err
	}
	for i, load := range loads {
		p := Pairs{}
		for _, w := range got[i] {
			p.add(w.Goodput, found.capacity)
		}
		row, err := p.row(m.name(fmt.Sprintf("goodput-%gx", load)), "calls/s", "the capacity at success 0.9", ">= 0.8")
		if err != nil {
			return rows, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// overloadControl returns rows that a fixed limit of calls could not pass: the control costs no
// capacity, the bottleneck is used, and a larger quota carries more. With control the capacity is the
// rate at which a tenth is refused, and without it the rate at which the backlog begins to grow. So
// control-carried compares what both carry.
func overloadControl(ctx context.Context, m *overloadMeter) (rows []Row, err error) {
	known, err := m.capacity(ctx, overload.Graceful, overloadQuota)
	if err != nil {
		return nil, err
	}
	defer func() { m.round = "" }()
	var used []float64
	for _, w := range known.at {
		highest := 0.0
		for _, share := range w.Quotas {
			highest = max(highest, share)
		}
		used = append(used, highest)
	}
	rows = append(rows, newRow(m.name("bottleneck"), "of its quota", "the whole quota", ">= 0.9", median(used), 1, median(used), used, len(used)))
	for _, other := range []comparison{
		{"control", overload.Off, "the capacity without control", ">= 0.95", overloadQuota},
		{"quota", overload.Graceful, fmt.Sprintf("the capacity with %g times the quota", overloadMore), "<= 0.91", overloadMore * overloadQuota},
	} {
		some, err := m.compare(ctx, other, known)
		if err != nil {
			return rows, err
		}
		rows = append(rows, some...)
	}
	return rows, nil
}

// A comparison is of the capacity with control at overloadQuota and another one.
type comparison struct {
	name, mode, what, aim string
	quota                 float64
}

// compare measures pairs of capacities. known is an earlier search for the capacity with control.
func (m *overloadMeter) compare(ctx context.Context, other comparison, known *capacitySearch) (rows []Row, err error) {
	var capacities, carry Pairs
	for i := range max(m.rules.Turns, 1) {
		ours, theirs, err := m.pair(ctx, other, i, known)
		if err != nil {
			return nil, err
		}
		capacities.add(ours.capacity, theirs.capacity)
		carry.add(carried(ours.at), carried(theirs.at))
		known = ours
	}
	row, err := capacities.row(m.name(other.name), "calls/s", other.what, other.aim)
	if err != nil {
		return nil, err
	}
	rows = append(rows, row)
	if other.mode == overload.Off {
		row, err = carry.row(m.name(other.name+"-carried"), "calls/s carried", "the same without control, both at the highest rate that passes", other.aim)
		rows = append(rows, row)
	}
	return rows, err
}

// pair measures both capacities of a comparison in turns. By earlier rules it measures one after the other.
func (m *overloadMeter) pair(ctx context.Context, other comparison, i int, known *capacitySearch) (ours, theirs *capacitySearch, err error) {
	if m.rules.Turns == 0 {
		if ours, err = m.again(ctx, other.name, known); err != nil {
			return nil, nil, err
		}
		theirs, err = m.capacity(ctx, other.mode, other.quota)
		return ours, theirs, err
	}
	m.round = fmt.Sprintf("%s-%d", other.name, i+1)
	ours = newCapacitySearch(overload.Graceful, overloadQuota, known.capacity)
	theirs = newCapacitySearch(other.mode, other.quota, known.capacity*other.quota/overloadQuota)
	return ours, theirs, m.inTurns(ctx, []*capacitySearch{ours, theirs}, nil)
}
