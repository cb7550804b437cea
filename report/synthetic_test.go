package report_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/result"
	"vitrine/search/rate"
)

// A simulation is a seeded network function whose trials fill a run folder like a
// campaign, so that reports are tested on real folders.
type simulation struct {
	seed       uint64
	substrate  string
	options    string
	speed      float64 // of the machine
	repeats    int
	seconds    int
	rates      []float64
	path       []result.Step
	components []vitrine.Component
	search     result.Search // zero: not recorded
	untried    []string      // sizes that a profile predicts
}

// cost returns CPU-seconds per call; the capacity follows from it and from the
// CPU given.
func cost(component string) float64 {
	return map[string]float64{"bono": 0.0006, "sprout": 0.0012, "homestead": 0.0009, "homer": 0.0001}[component]
}

func flavor(initial byte) float64 { return map[byte]float64{'s': 0.1, 'm': 0.2, 'l': 0.4}[initial] }

func ims() []vitrine.Component {
	return []vitrine.Component{
		{Name: "bono", Short: "bn", Scalable: true}, {Name: "sprout", Short: "sp", Scalable: true},
		{Name: "homestead", Short: "hs", Scalable: true}, {Name: "homer", Short: "hm"},
	}
}

// directed returns NFV-VITAL's own demonstration (section III.B.1).
func directed() simulation {
	return simulation{
		seed: 7, substrate: "process", speed: 1, repeats: 3, seconds: 3, components: ims(),
		rates: []float64{40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 240, 260},
		path: []result.Step{
			{Sizing: "bn1s-sp1s-hs1s", Why: "the least of everything"},
			{Sizing: "bn1s-sp1m-hs1s", Why: "sprout used most of its CPU (96%): the next flavor"},
			{Sizing: "bn1s-sp1m-hs1m", Why: "homestead used most of its CPU (97%): the next flavor"},
			{Why: "sprout is the bottleneck, and its next flavor exceeds the limit of 0.6 CPUs"},
		},
	}
}

// modelled returns the same function, searched by a model of what components
// cost.
func modelled() simulation {
	m := directed()
	believed := func(rate, low, high float64) *vitrine.Capacity {
		return &vitrine.Capacity{Threshold: 0.9, Rate: rate, Low: low, High: high, Censored: vitrine.CensoredNone}
	}
	m.search = result.Search{Name: "ramp", Min: 40, Max: 260, Increase: 20, Duration: 3, Repeat: 3}
	m.path = []result.Step{
		{Sizing: "bn1s-sp1s-hs1s", Why: "the smallest sizing: what each component costs"},
		{Sizing: "bn1s-sp1m-hs1s", Why: "predicted to carry 105 calls/s", Predicted: believed(105, 84, 130)},
		{Sizing: "bn1s-sp1m-hs1m", Why: "predicted to carry 158 calls/s", Predicted: believed(158, 141, 176)},
		{Why: "no untried sizing can plausibly beat bn1s-sp1m-hs1m"},
	}
	m.untried = []string{"bn1m-sp1m-hs1m", "bn1m-sp1s-hs1s", "bn1m-sp2s-hs1m", "bn1s-sp2s-hs1s", "bn1m-sp1l-hs1m"}
	return m
}

// limit returns the rate at which the sizing's bottleneck is fully used.
func (m simulation) limit(sizing vitrine.Sizing) (rate float64, bottleneck string) {
	rate = 1e9
	for _, c := range m.components {
		part := sizing.Part(c.Short)
		if part == nil {
			continue
		}
		loss := 1 + 0.35*float64(part.Count-1) // clustering costs
		if r := float64(part.Count) * flavor(part.Initial) / cost(c.Name) / loss * m.speed; r < rate {
			rate, bottleneck = r, c.Name
		}
	}
	return rate, bottleneck
}

// build writes the run and returns its folder.
func (m simulation) build(t *testing.T, dir string) string {
	t.Helper()
	r, err := result.Create(dir, m.manifest())
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(m.seed, 1))
	summary := result.Summary{
		VNF: "ims", Unit: "calls/s", Thresholds: []float64{0.9, 0.8}, Path: m.path,
		StoppedBecause: m.path[len(m.path)-1].Why,
	}
	seq := 0
	for _, step := range m.path {
		if step.Sizing == "" {
			continue
		}
		sizing, err := vitrine.ParseSizing(step.Sizing)
		if err != nil {
			t.Fatal(err)
		}
		var history []vitrine.Outcome
		for repeat := 1; repeat <= m.repeats; repeat++ {
			limit, _ := m.limit(sizing)
			limit *= 1 + 0.03*random.NormFloat64() // deployments differ
			for _, offered := range m.rates {
				seq++
				key := vitrine.Key{Seq: seq, Attempt: 1, Substrate: m.substrate, Options: m.options, Subject: step.Sizing, Repeat: repeat, Rate: offered}
				o := m.trial(t, r, key, sizing, limit, random)
				if err := r.Append(o); err != nil {
					t.Fatal(err)
				}
				history = append(history, o)
				if o.Valid && o.SuccessRatio() < 0.7 {
					break
				}
			}
		}
		summary.Sizings = append(summary.Sizings, m.sizing(step, sizing, history, &summary))
	}
	best := 0
	for i, z := range summary.Sizings {
		if z.Rate > summary.Sizings[best].Rate {
			best = i
		}
	}
	summary.Optimal = &result.Optimal{Sizing: summary.Sizings[best].Name, Why: "it carries the most of the sizes within 0.6 CPUs"}
	if err := r.SaveSummary(summary); err != nil {
		t.Fatal(err)
	}
	if len(m.untried) > 0 {
		if err := r.SaveProfile(m.profile(t, summary)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (m simulation) sizing(step result.Step, sizing vitrine.Sizing, history []vitrine.Outcome, s *result.Summary) result.Sizing {
	z := result.Sizing{
		Name: step.Sizing, Substrate: m.substrate, Options: m.options, Trials: len(history),
		LoadSeconds: float64(len(history) * (m.seconds + 1)),
		Capacities:  rate.Estimate(history, rate.Config{Thresholds: s.Thresholds, Seed: m.seed}),
	}
	for _, p := range sizing {
		z.VCPUs += float64(p.Count) * flavor(p.Initial)
		z.MemoryBytes += int64(p.Count) << 28
	}
	if m.search.Name != "" {
		z.Search = &m.search
	}
	z.Utilization = rate.UseAtCapacity(history, z.Capacities[0])[vitrine.CPU]
	for name, used := range z.Utilization {
		if used > z.Utilization[z.Bottleneck] {
			z.Bottleneck = name
		}
	}
	for _, o := range history {
		if !o.Valid {
			s.InvalidTrials++
		}
	}
	z.Capacity = z.Capacities[0]
	return z
}

// profile returns the measured sizes, and the true capacities as predictions of
// the untried ones.
func (m simulation) profile(t *testing.T, s result.Summary) vitrine.Profile {
	t.Helper()
	p := vitrine.Profile{Version: vitrine.ProfileVersion, Function: "ims", Unit: s.Unit, Thresholds: s.Thresholds, Confidence: 0.95}
	setting := vitrine.Setting{Substrate: m.substrate, Options: m.options}
	for _, z := range s.Sizings {
		setting.Sizes = append(setting.Sizes, vitrine.SizeProfile{Sizing: z.Name, VCPUs: z.VCPUs, Source: vitrine.SourceMeasured,
			Rate: z.Rate, Low: z.Low, High: z.High, Censored: z.Censored, Bottleneck: z.Bottleneck})
	}
	for _, name := range m.untried {
		sizing, err := vitrine.ParseSizing(name)
		if err != nil {
			t.Fatal(err)
		}
		z := vitrine.SizeProfile{Sizing: name, Source: vitrine.SourcePredicted, Censored: vitrine.CensoredNone}
		for _, part := range sizing {
			z.VCPUs += float64(part.Count) * flavor(part.Initial)
		}
		z.Rate, z.Bottleneck = m.limit(sizing)
		z.Low, z.High = z.Rate*0.9, z.Rate*1.1
		setting.Sizes = append(setting.Sizes, z)
	}
	p.Settings = []vitrine.Setting{setting}
	return p
}

func (m simulation) trial(t *testing.T, r *result.Run, key vitrine.Key, sizing vitrine.Sizing, limit float64, random *rand.Rand) vitrine.Outcome {
	t.Helper()
	o := vitrine.Outcome{
		Key: key, Duration: time.Duration(m.seconds) * time.Second, Valid: true,
		Failed: map[string]int64{}, Use: map[string]vitrine.Use{},
		Latency: vitrine.Latency{P50: 2.2, P95: 6 + key.Rate/20, P99: 14 + key.Rate/10},
	}
	over := key.Rate / limit
	for range m.seconds {
		due := int64(key.Rate)
		good := due
		if over > 1 { // load control swings once it sheds load
			share := 1/over - 0.25*(over-1) + 0.1*random.NormFloat64()*min(1, over-0.9)
			good = int64(float64(due) * min(1, max(0.05, share)))
		} else if over > 0.9 {
			good = due - int64(random.IntN(1+int(float64(due)*0.06)))
		}
		o.Seconds = append(o.Seconds, vitrine.Second{Scheduled: due, Offered: due, Succeeded: good, Failed: due - good})
		o.Scheduled, o.Offered, o.Succeeded = o.Scheduled+due, o.Offered+due, o.Succeeded+good
	}
	if failed := o.Scheduled - o.Succeeded; failed > 0 {
		o.Failed["503"] = failed - failed/5
		o.Failed["timeout"] = failed / 5
	}
	if key.Seq == 11 {
		o.Valid, o.Reason = false, "generator: offered 0.97 of its schedule"
		o.Offered = o.Scheduled * 97 / 100
	}
	m.disturb(&o, over)
	m.watch(t, r, &o, sizing, limit, random)
	return o
}

// disturb sets what a trial shows of its backlog, the host and the monitor.
func (m simulation) disturb(o *vitrine.Outcome, over float64) {
	for k := range 10 * m.seconds {
		o.InFlight = append(o.InFlight, int64(o.Rate*(0.02+0.1*max(0, over-1)*float64(k)/10))+int64(k%3))
	}
	share := float64(o.Seq%5) / 100
	o.Host = &vitrine.HostReading{Before: 1, During: 1 - share, After: 0.99, Steal: share / 10, Other: &share}
	o.Sampling = &vitrine.Sampling{Longest: 0.1 + share}
	switch o.Seq {
	case 5:
		o.Sampling = &vitrine.Sampling{Gaps: 2, Longest: 1.3}
	case 14:
		o.Valid, o.Disturbed, o.Reason = false, true, "disturbed: a fixed amount of work took 1.9 times as long"
		o.Host.During, o.Host.Other = 0.53, nil
	}
}

// watch writes the samples of a monitor and sets the trial's means.
func (m simulation) watch(t *testing.T, r *result.Run, o *vitrine.Outcome, sizing vitrine.Sizing, limit float64, random *rand.Rand) {
	t.Helper()
	w, _, err := r.CreateUsage(o.Key)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString(result.UsageHeader + "\n")
	for _, c := range m.components {
		count, given := 1, 0.1
		if p := sizing.Part(c.Short); p != nil {
			count, given = p.Count, flavor(p.Initial)
		}
		for i := 1; i <= count; i++ {
			name := fmt.Sprintf("%s-%d", c.Name, i)
			sum, n := 0.0, 0
			for at := -0.5; at < float64(m.seconds); at += 0.1 {
				load := min(o.Rate, limit) * cost(c.Name) / m.speed / float64(count) * (1 + 0.35*float64(count-1))
				if o.Rate > limit {
					load *= 0.85 + 0.3*random.Float64()
				}
				cpu := min(given, max(0, load*(1+0.06*random.NormFloat64())))
				fmt.Fprintf(&b, "%.3f,%s,%s,%.6f,%d,%.0f,%.0f,0,,,\n", at, name, c.Name, cpu, 40<<20, o.Rate*900, o.Rate*850)
				if at >= 0 {
					sum, n = sum+cpu, n+1
				}
			}
			mean := sum / float64(n)
			o.Use[name] = vitrine.Use{Component: c.Name, CPU: &mean, VCPUs: given, Missing: map[string]string{"memory": "no memory controller"}}
		}
	}
	busy := 0.00035 * o.Rate
	for at := -0.5; at < float64(m.seconds); at += 0.1 {
		fmt.Fprintf(&b, "%.3f,generator,generator,%.6f,%d,%.0f,%.0f,,,,throttled: no quota was set\n", at, busy, 30<<20, o.Rate*850, o.Rate*900)
	}
	o.Use["generator"] = vitrine.Use{Component: "generator", CPU: &busy, Missing: map[string]string{"throttled": "no quota was set"}}
	fmt.Fprintf(&b, "0.000,host,host,0.9,,,,,0.01,0.002,\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func (m simulation) manifest() result.Manifest {
	var components []result.Component
	for _, c := range m.components {
		components = append(components, result.Component(c))
	}
	return result.Manifest{
		Tool: "vitrine 1.0", Go: "go1.26.0", Command: []string{"vitrine", "characterize", "ims.yaml", "load.yaml", "--out", "run"},
		Started:  time.Date(2024, 5, 6, 9, 30, 0, 0, time.UTC),
		Finished: time.Date(2024, 5, 6, 9, 41, 12, 0, time.UTC),
		VNF:      "ims", Unit: "calls/s", Thresholds: []float64{0.9, 0.8}, Components: components, Seed: m.seed,
		Host: result.Host{
			Name: "bench-1", Kernel: "6.1.0-18-amd64", OS: "Debian GNU/Linux 12 (bookworm)", CPUModel: "AMD EPYC", CPUs: 2,
			SMT: "notsupported", MemoryBytes: 24 << 30, Virtualization: "virtual machine (hypervisor flag)", Clocksource: "tsc", Cgroup: "hybrid",
			Missing: map[string]string{"governor": "the kernel does not show CPU frequency control", "turbo": "not shown"},
		},
		CPUs:       result.Reservation{Function: []int{1}, Generator: []int{0}},
		Substrates: map[string]string{m.substrate: "6.1.0-18-amd64"}, Fabrics: []string{"bridge"}, Accelerator: "none", CFSPeriods: []string{"20ms"},
		Generator:   result.Generator{Name: "sip", Version: "vitrine 1.0"},
		NotIsolated: []string{"the generator runs under the same kernel as the function", "CPU 1 is not isolated from the scheduler (isolcpus)"},
		Specs: []result.Spec{
			result.NewSpec("deployment", "ims.yaml", []byte("vnf_name: ims\ncomponents:\n  - name: bono\n")),
			result.NewSpec("workload", "load.yaml", []byte("generator: sip\nrange: [40, 260]\n")),
		},
	}
}

func load(t *testing.T, dir string) *result.Data {
	t.Helper()
	d, err := result.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// simulate returns a fresh copy of the simulation's run; each run is built once.
func simulate(t *testing.T, m simulation, name string) *result.Data {
	t.Helper()
	built := filepath.Join(shared, fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%+v", m))))
	if _, err := os.Stat(built); errors.Is(err, fs.ErrNotExist) {
		m.build(t, built)
	}
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(built)); err != nil {
		t.Fatal(err)
	}
	return load(t, dir)
}
