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
	overloadFresh   = 30 // fresh deployments below and above the capacity, each
	overloadSuccess = 0.9
	overloadSteady  = 0.05 // a window is steady if the calls in flight grow by less than this share of the rate
	overloadStep    = 1.08 // factor between two rates of a search
	overloadQuota   = 0.5  // share of the flavor's quota; the instances share one CPU, which three large ones at full quota would exhaust
	overloadMore    = 1.2  // factor of the larger quota that must carry more
	overloadBelow   = 0.85 // of the capacity, where a fresh deployment must succeed with overloadCarried
	overloadCarried = 0.99
)

// overloadNow are the rules of new windows.
var overloadNow = overloadRules{Repeats: 5, Rounds: 5, Pairs: 3, Slowdown: quiet.StrictSlowdown, Awake: true}

// overloadRules say how windows are measured. Windows of different rules are not compared.
type overloadRules struct {
	Repeats  int     `json:"repeats"`          // fresh deployments per rate of a search
	Rounds   int     `json:"rounds,omitempty"` // of the fresh deployments below the capacity; 0: everything is compared with one capacity
	Pairs    int     `json:"pairs,omitempty"`  // of searches whose capacities are compared; 0: one
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

// capacity returns the highest rate whose mean success over fresh deployments
// is 0.9 in steady windows. It interpolates between two rates one step apart:
// one passes and one fails. at holds the windows of the rate that passes.
func (m *overloadMeter) capacity(ctx context.Context, mode string, quota float64) (capacity float64, at []window, err error) {
	rate, err := m.start(ctx, mode, quota)
	if err != nil {
		return 0, nil, err
	}
	return m.search(ctx, mode, quota, rate)
}

// search is capacity from a first rate.
func (m *overloadMeter) search(ctx context.Context, mode string, quota, rate float64) (capacity float64, at []window, err error) {
	for low, high, lowSuccess, highSuccess := 0.0, 0.0, 0.0, 0.0; ; {
		all, err := m.windows(ctx, mode, quota, rate, m.rules.Repeats)
		if err != nil {
			return 0, nil, err
		}
		if success, steady := sumUp(all); success >= overloadSuccess && steady {
			low, lowSuccess, at = rate, success, all
		} else {
			high, highSuccess = rate, success
		}
		switch {
		case low == 0:
			rate = math.Floor(rate / overloadStep)
		case high == 0:
			rate = math.Ceil(rate * overloadStep)
		case highSuccess >= overloadSuccess: // it fails because its backlog grows
			return low, at, nil
		default:
			share := (lowSuccess - overloadSuccess) / (lowSuccess - highSuccess)
			return low + share*(high-low), at, nil
		}
		if rate < 1 {
			return 0, nil, fmt.Errorf("%s carries nothing", m.flavor)
		}
	}
}

// start returns the rate at which a search begins: an estimate of the capacity from a single
// overloaded window.
func (m *overloadMeter) start(ctx context.Context, mode string, quota float64) (float64, error) {
	for rate := 1.2 * quota * overloadGuess[m.flavor]; ; rate *= 1.5 {
		probe, err := m.windows(ctx, mode, quota, rate, 1)
		if err != nil {
			return 0, err
		}
		if probe[0].Success < overloadSuccess {
			return math.Round(probe[0].Goodput / overloadSuccess), nil
		}
	}
}

// sumUp returns the mean success of the windows, and whether their calls in flight are steady on
// average.
func sumUp(all []window) (success float64, steady bool) {
	var growth float64
	for _, w := range all {
		success += w.Success / float64(len(all))
		growth += w.Growth / float64(len(all))
	}
	return success, growth < overloadSteady
}

// carried returns the calls per second that the deployments carried on average: the goodput less the
// growth of the backlog.
func carried(all []window) float64 {
	var sum float64
	for _, w := range all {
		sum += w.Goodput - w.Growth*w.Rate
	}
	return sum / float64(len(all))
}

func (m *overloadMeter) name(part string) string { return "ims/overload/" + m.flavor + "/" + part }

// overloadGoodput compares the goodput under overload with the capacity.
func overloadGoodput(ctx context.Context, m *overloadMeter) (rows []Row, err error) {
	capacity, _, err := m.capacity(ctx, overload.Graceful, overloadQuota)
	if err != nil {
		return nil, err
	}
	for _, load := range []float64{1.5, 2, 4} {
		all, err := m.windows(ctx, overload.Graceful, overloadQuota, load*capacity, m.rules.Repeats)
		if err != nil {
			return rows, err
		}
		p := Pairs{}
		for _, w := range all {
			p.add(w.Goodput, capacity)
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
	capacity, at, err := m.capacity(ctx, overload.Graceful, overloadQuota)
	if err != nil {
		return nil, err
	}
	defer func() { m.round = "" }()
	var used []float64
	for _, w := range at {
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
		some, err := m.compare(ctx, other, capacity, at)
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

// compare measures pairs of capacities side by side, from a capacity that is known with the windows knownAt.
func (m *overloadMeter) compare(ctx context.Context, other comparison, known float64, knownAt []window) (rows []Row, err error) {
	var capacities, carry Pairs
	var theirs float64
	var theirsAt []window
	for i := range max(m.rules.Pairs, 1) {
		round := other.name
		if i > 0 {
			round = fmt.Sprintf("%s-%d", other.name, i+1)
		}
		if known, knownAt, err = m.again(ctx, round, known, knownAt); err != nil {
			return nil, err
		}
		if i == 0 {
			theirs, theirsAt, err = m.capacity(ctx, other.mode, other.quota)
		} else {
			theirs, theirsAt, err = m.search(ctx, other.mode, other.quota, math.Round(theirs))
		}
		if err != nil {
			return nil, err
		}
		capacities.add(known, theirs)
		carry.add(carried(knownAt), carried(theirsAt))
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

// countBelow and countAbove count the fresh deployments that succeed
// below and above the capacity.
func countBelow(ctx context.Context, m *overloadMeter) ([]Row, error) {
	return m.count(ctx, "below", overloadBelow, m.rules.Rounds, overloadCarried, ">= 0.96")
}

func countAbove(ctx context.Context, m *overloadMeter) ([]Row, error) {
	return m.count(ctx, "above", 1.25, 1, 0.95, "<= 0")
}

// again begins a round of windows and measures the capacity in it, from a capacity that is known with the
// windows knownAt. The speed of a host changes within minutes, so what is compared must be measured side
// by side.
func (m *overloadMeter) again(ctx context.Context, round string, known float64, knownAt []window) (capacity float64, at []window, err error) {
	if m.rules.Rounds == 0 {
		return known, knownAt, nil
	}
	m.round = round
	return m.search(ctx, overload.Graceful, overloadQuota, math.Round(known))
}

// fresh returns overloadFresh windows at a multiple of the capacity, in rounds.
func (m *overloadMeter) fresh(ctx context.Context, name string, load float64, rounds int) (all []window, err error) {
	capacity, at, err := m.capacity(ctx, overload.Graceful, overloadQuota)
	if err != nil {
		return nil, err
	}
	defer func() { m.round = "" }()
	rounds = max(rounds, 1)
	for i := range rounds {
		if capacity, at, err = m.again(ctx, fmt.Sprintf("%s-%d", name, i+1), capacity, at); err != nil {
			return nil, err
		}
		some, err := m.windows(ctx, overload.Graceful, overloadQuota, load*capacity, overloadFresh/rounds)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func (m *overloadMeter) count(ctx context.Context, name string, load float64, rounds int, success float64, aim string) ([]Row, error) {
	all, err := m.fresh(ctx, name, load, rounds)
	if err != nil {
		return nil, err
	}
	var each []float64
	reached := 0.0
	for _, w := range all {
		each = append(each, w.Success)
		if w.Success >= success {
			reached++
		}
	}
	total := float64(len(all))
	return []Row{newRow(m.name(name), "deployments", fmt.Sprintf("all, at %g of the capacity; success from %g on counts", load, success), aim,
		reached, total, reached/total, each, len(all))}, nil
}
