package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
	"vitrine/search/sim/queue"
	"vitrine/testbed/quiet"
)

// TestCrossing checks that the fit decreases and is straight between rates.
func TestCrossing(t *testing.T) {
	for name, c := range map[string]struct {
		rates, success []float64
		want           float64 // 0: none
	}{
		"between":      {[]float64{90, 100, 110}, []float64{1, 0.95, 0.85}, math.Sqrt(100 * 110)},
		"repeated":     {[]float64{90, 100, 100, 110}, []float64{1, 1, 0.9, 0.85}, math.Sqrt(100 * 110)},
		"not falling":  {[]float64{90, 100, 110}, []float64{0.9, 1, 0.85}, math.Exp(math.Log(100) + 0.5*math.Log(1.1))},
		"all pass":     {[]float64{90, 100}, []float64{1, 0.9}, 0},
		"all fail":     {[]float64{90, 100}, []float64{0.8, 0.9}, 0},
		"nothing at 1": {nil, nil, 0},
	} {
		var trials []realTrial
		for i, r := range c.rates {
			trials = append(trials, realTrial{Rate: r, Success: c.success[i]})
		}
		x, inside := crossing(trials, 0.9)
		if inside != (c.want > 0) || inside && math.Abs(math.Exp(x)-c.want) > 1e-9 {
			t.Errorf("%s: %g, %t, want %g", name, math.Exp(x), inside, c.want)
		}
	}
}

// A curve returns the success ratio of a deployment. x and capacity are the logarithms of the rate
// and of the deployment's capacity.
type curve func(x, capacity float64) float64

// TestReferenceHoldsTruth checks that intervals contain the rate at which the
// mean success is 0.9. Deployments differ by 3%, and curves have three shapes.
func TestReferenceHoldsTruth(t *testing.T) {
	const spread, noise, runs = 0.03, 0.006, 60
	for name, of := range map[string]curve{
		"goodput stays": func(x, c float64) float64 { return min(1, 0.9*math.Exp(c-x)) },
		"goodput falls": func(x, c float64) float64 { return min(1, math.Exp(-5*(x-c))) },
		"steep":         func(x, c float64) float64 { return min(1, math.Exp(-20*(x-c))) },
	} {
		random := rand.New(rand.NewPCG(1, 2))
		truth := meanCrossing(of, spread, random)
		held, bias := 0, 0.0
		for range runs {
			var trials []realTrial
			for range 12 {
				for _, factor := range blockFactors() {
					x := truth + math.Log(factor) + 0.01
					s := of(x, spread*random.NormFloat64()) + noise*random.NormFloat64()
					trials = append(trials, realTrial{Rate: math.Exp(x), Success: min(max(s, 0), 1)})
				}
			}
			ref, ok := newReference(trials)
			if !ok {
				t.Fatalf("%s: the rates do not enclose the truth", name)
			}
			bias += math.Log(ref.Rate) - truth
			if math.Log(ref.Low) <= truth && truth <= math.Log(ref.High) {
				held++
			}
		}
		t.Logf("%s: %d of %d hold, bias %+.4f", name, held, runs, bias/runs)
		if p := queue.TooFew(held, runs, 0.9); p < 0.001 {
			t.Errorf("%s: %d of %d intervals hold the truth", name, held, runs)
		}
		if math.Abs(bias/runs) > 0.01 {
			t.Errorf("%s: bias %+.4f", name, bias/runs)
		}
	}
}

// meanCrossing returns the logarithm of the rate at which the mean over deployments is 0.9. It
// bisects.
func meanCrossing(of curve, spread float64, random *rand.Rand) float64 {
	capacities := make([]float64, 20_000)
	for i := range capacities {
		capacities[i] = spread * random.NormFloat64()
	}
	low, high := -0.3, 0.3
	for high-low > 1e-5 {
		x, mean := (low+high)/2, 0.0
		for _, c := range capacities {
			mean += of(x, c) / float64(len(capacities))
		}
		if mean >= 0.9 {
			low = x
		} else {
			high = x
		}
	}
	return low
}

// TestBlocksOnServers checks that blocks find the true capacities of simulated
// servers, whose success is not a fixed curve.
func TestBlocksOnServers(t *testing.T) {
	for _, family := range []string{queue.Queue, queue.Refusal, queue.Luck} {
		server := queue.Tuning.Server(family, 3)
		truth := server.Capacity(queue.Sizing(), 0.9)
		cfg := queue.Config(0.1)
		b := realBench{counts: realCounts{Deployments: 12, Window: 20 * time.Second, Precision: 0.1}}
		block := b.block(1.02*truth, 1)
		m := sim.Drive(server, queue.Sizing(), block, cfg, queue.Costs(), 1000)
		trials, next := block.walk(m.History)
		ref, ok := newReference(trials)
		t.Logf("%s: %d trials, %+v, truth %g", family, len(trials), ref, truth)
		if !next.Done || !ok || len(trials) != 60 {
			t.Fatalf("%s: %d trials, %+v", family, len(trials), next)
		}
		if off := math.Abs(math.Log(ref.Rate / truth)); off > max(0.02, 3*ref.SD) {
			t.Errorf("%s: %g [%g, %g], truth %g", family, ref.Rate, ref.Low, ref.High, truth)
		}
	}
}

// TestBlockExtends checks that a passing trial with a growing backlog is extended
// three times, and that an invalid trial is repeated on a fresh deployment.
func TestBlockExtends(t *testing.T) {
	b := block{rates: []float64{100, 90}, window: 20 * time.Second, precision: 0.1, threshold: 0.9}
	growing := func(step rate.Step) vitrine.Outcome {
		n := int64(step.Duration.Seconds() * step.Rate)
		o := vitrine.Outcome{Key: vitrine.Key{Rate: step.Rate, Repeat: step.Repeat}, Duration: step.Duration, Scheduled: n, Succeeded: n, Valid: true}
		for i := range int(step.Duration / vitrine.InFlightEvery) {
			o.InFlight = append(o.InFlight, int64(2*i)) // grows by 20 calls per second
		}
		return o
	}
	var history []vitrine.Outcome
	for i, want := range []float64{20, 40, 80, 160} {
		step := b.Next(history)
		if step.Duration.Seconds() != want || step.Restart != (i == 0) || step.Repeat != 1 {
			t.Fatalf("%+v, want %g s", step, want)
		}
		history = append(history, growing(step))
	}
	trials, _ := b.walk(history)
	if len(trials) != 1 || trials[0].Steady || math.Abs(trials[0].Growth-0.2) > 0.01 || math.Abs(trials[0].Success-0.8) > 0.01 {
		t.Errorf("%+v, want a success of 0.8", trials)
	}
	for range blockAttempts {
		if step := b.Next(history); step.Rate != 90 || !step.Restart || step.Repeat != 2 {
			t.Errorf("%+v, want a fresh deployment at 90", step)
		}
		history = append(history, vitrine.Outcome{Key: vitrine.Key{Rate: 90, Repeat: 2}, Reason: "it crashed"})
	}
	if trials, step := b.walk(history); !step.Done || len(trials) != 2 || trials[1].Invalid != "it crashed" {
		t.Errorf("%+v, %+v", trials, step)
	}
}

// drawn returns a drive for a function of capacity 100 whose deployments do not differ. A search
// finds 99 to 101. The drive fails after the given number of campaigns.
func drawn(after int) realDrive {
	random := rand.New(rand.NewPCG(uint64(after), 1))
	return func(_ context.Context, asked campaignRequest) (got campaignResult, err error) {
		if after--; after < 0 {
			return got, errors.New("interrupted")
		}
		got.wall = time.Minute
		if asked.block == nil {
			at := 99 + 2*random.Float64()
			got.capacity = &vitrine.Capacity{Rate: at, Low: 0.95 * at, High: 1.05 * at, Censored: vitrine.CensoredNone}
			got.outcomes = []vitrine.Outcome{{Key: vitrine.Key{Rate: at}, Duration: 10 * time.Second, Scheduled: 1000, Succeeded: 900, Valid: true}}
			return got, nil
		}
		for {
			step := asked.block.Next(got.outcomes)
			if step.Done {
				return got, nil
			}
			n := int64(step.Rate * step.Duration.Seconds())
			got.outcomes = append(got.outcomes, vitrine.Outcome{Key: vitrine.Key{Rate: step.Rate, Repeat: step.Repeat}, Duration: step.Duration,
				Scheduled: n, Succeeded: int64(float64(n) * min(1, 90/step.Rate)), Valid: true})
		}
	}
}

// TestRealWaitsForAQuietHost checks that the bench tries again while the host is too noisy, and that
// it ends without an error soon after its time limit.
func TestRealWaitsForAQuietHost(t *testing.T) {
	folder, err := filepath.Abs("../catalog/nginx")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		noisy func(attempt int) bool
		order string
		last  time.Duration
	}{
		"at times":            {noisy: func(n int) bool { return n%3 != 0 }, order: "brmdrb", last: 12 * time.Minute},
		"always":              {noisy: func(int) bool { return true }, order: "", last: time.Hour},
		"after the first run": {noisy: func(n int) bool { return n > 2 }, order: "br", last: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			synctest.Test(t, func(t *testing.T) {
				counts, err := readRealCounts(func(string) string { return "" })
				if err != nil {
					t.Fatal(err)
				}
				counts.Runs, counts.Estimate, counts.For = 2, 100, time.Hour
				attempts, quietly := 0, drawn(100)
				b := realBenchOf(t, folder, "1", counts, func(ctx context.Context, asked campaignRequest) (campaignResult, error) {
					if attempts++; c.noisy(attempts) {
						return campaignResult{}, fmt.Errorf("a trial: %w", quiet.ErrTooNoisy)
					}
					return quietly(ctx, asked)
				})
				if err := b.measure(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(b.began); order(b.all) != c.order || took > c.last+noisyTries*noisyPause {
					t.Errorf("measured %q in %s, want %q in about %s", order(b.all), took, c.order, c.last)
				}
			})
		})
	}
}

// realBenchOf returns a bench with the given session. Its records are below the current folder.
func realBenchOf(t *testing.T, folder, session string, counts realCounts, drive realDrive) *realBench {
	t.Helper()
	b, err := newRealBench(realFunction{Name: "nginx", Folder: folder, Workload: "workload.yaml", Sizing: "ng1s"}, counts, "a", drive, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b.session = session
	return b
}

// order returns one letter for each recorded unit: p for a pilot, b for a block, r, m and d for a
// run of adaptive, mlr and mlrDefault.
func order(all []realRecord) string {
	letters := map[string]string{realPilot: "p", realBlock: "b", rate.Adaptive: "r", rate.MLR: "m", mlrDefault: "d"}
	text := ""
	for _, r := range all {
		if r.Kind == realRun {
			text += letters[r.Search]
		} else {
			text += letters[r.Kind]
		}
	}
	return text
}

// TestRealResumes checks that a stopped bench resumes with a block, and measures truncated records
// again. Records of another plan must not count. The page shows the runs between blocks.
func TestRealResumes(t *testing.T) {
	folder, err := filepath.Abs("../catalog/nginx")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	counts, err := readRealCounts(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	counts.Runs, counts.Between, counts.Deployments = 7, 2, 1
	first := realBenchOf(t, folder, "1", counts, drawn(6))
	if err := first.measure(t.Context()); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatal(err)
	}
	if got := order(first.all); got != "pbrmdr" {
		t.Errorf("measured %s", got)
	}
	file := first.function.file()
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, kept[:len(kept)-10], 0o644); err != nil { // truncate the second run
		t.Fatal(err)
	}
	again := realBenchOf(t, folder, "2", counts, drawn(100))
	if err := again.measure(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = "pbrmd" + "brrbrrbrmdrb"
	third := realBenchOf(t, folder, "3", counts, drawn(0))
	if got := order(third.all); got != want || third.measure(t.Context()) != nil {
		t.Errorf("measured %s, want %s, and no more", got, want)
	}
	counts.Window = time.Minute
	if other := realBenchOf(t, folder, "4", counts, drawn(0)); len(other.all) != 0 {
		t.Errorf("%d records of another plan count", len(other.all))
	}
	counts.For = 0
	if other := realBenchOf(t, folder, "5", counts, drawn(0)); order(other.all) != want || other.measure(t.Context()) != nil {
		t.Error("open does not read the records of the last plan")
	}
	text, err := realSection(".")
	if err != nil || !strings.Contains(text, "7 of 7 intervals") || strings.Count(text, "\n| adaptive | ") != 7 || strings.Count(text, "\n| mlr") != 4 {
		t.Errorf("the page's section: %v\n%s", err, text)
	}
	for _, want := range []string{
		"on one side only, because the bench was stopped: 1.",
		"mlr: 2 of 2 intervals hold; medians: error 0.",
		"| 0.1 | all | 7 of 7 | 1 | 0 of 21 | 0 of 6 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	rows := third.rows()
	for name, ours := range map[string]float64{"coverage": 1, "coverage/with-error-of-blocks": 1, "load": 10, "wall": 60, "mlr/load": 10, "mlr-default/wall": 60} {
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == "real/nginx/"+name })
		if i < 0 || rows[i].Ours == nil || *rows[i].Ours != ours {
			t.Errorf("%s: want %g in %+v", name, ours, rows)
		}
	}
}

// TestPagePoolsTheNewestPlans checks that the page tests the coverage of each plan, and over all
// functions that of the newest plans, and of all plans by their limit.
func TestPagePoolsTheNewestPlans(t *testing.T) {
	t.Chdir(t.TempDir())
	functions := realFunctions()
	for _, of := range []struct {
		function realFunction
		plan     string
		low      float64
		limit    float64
	}{{functions[0], "first", 110, 0}, {functions[0], "second", 90, 0}, {functions[1], "other", 90, 0.1}} {
		for _, r := range []realRecord{
			{Kind: realBlock, Trials: []realTrial{{Rate: 90, Success: 1}, {Rate: 110, Success: 0.8}}},
			{Kind: realRun, Search: rate.Adaptive, Number: 1, Capacity: &vitrine.Capacity{Rate: 120, Low: of.low, High: 130}},
		} {
			r.Plan, r.Session, r.Slowdown = of.plan, of.plan, of.limit
			if err := appendLine(of.function.file(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := realSection(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{": 0 of 1 intervals hold the capacity of the blocks beside them (p 0.05)", "Over the newest plan of each function, 2 of 2 intervals",
		"| 0.45 | all | 1 of 2 | ", "| 0.1 | kamailio | 1 of 1 | 1 | 0 of 0 | 0 of 0 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}

// TestBlocksBesideARun checks that a run is compared with all blocks between it and the next runs, also
// with the block that follows one that missed the capacity.
func TestBlocksBesideARun(t *testing.T) {
	block := func(success float64, rates ...float64) realRecord {
		r := realRecord{Kind: realBlock, Session: "1"}
		for _, at := range rates {
			r.Trials = append(r.Trials, realTrial{Rate: at, Success: success})
		}
		return r
	}
	run := realRecord{Kind: realRun, Session: "1", Search: rate.Adaptive, Number: 1, Capacity: &vitrine.Capacity{Rate: 100, Low: 90, High: 125}}
	other := block(0, 50)
	other.Session = "2"
	b := &realBench{counts: realCounts{Runs: 1}, all: realRecords{block(1, 90), run, block(1, 100), other, block(0.8, 120)}}
	runs, without := b.judge(rate.Adaptive)
	if len(runs) != 1 || without != 0 || runs[0].beside.Deployments != 3 || !runs[0].between || runs[0].beside.Rate <= 100 {
		t.Errorf("%+v, %d without blocks", runs, without)
	}
	if trials, _ := b.blocks(run.host()); len(trials) != 3 {
		t.Errorf("%d trials of blocks, want 3", len(trials))
	}
}

// TestRunsAreSpreadOnTheirOwnHost checks that a faster host does not count as a spread of the runs.
func TestRunsAreSpreadOnTheirOwnHost(t *testing.T) {
	on := func(host string, rate float64) judged {
		return judged{realRecord: realRecord{Host: host, Capacity: &vitrine.Capacity{Rate: rate, Low: rate - 1, High: rate + 1}}}
	}
	one, two := []judged{on("slow", 100), on("slow", 110)}, []judged{on("slow", 100), on("fast", 200), on("slow", 110), on("fast", 220)}
	if a, b := runToRun(one), runToRun(two); math.Abs(a-b) > 1e-9 || a < 0.06 || a > 0.07 {
		t.Errorf("got a standard deviation of %g on one host and %g on two", a, b)
	}
	if sd := runToRun([]judged{on("slow", 100), on("fast", 200)}); !math.IsNaN(sd) {
		t.Errorf("got %g for hosts with one run each", sd)
	}
}

// TestRealTimeIsLimited checks that a session of limited time ends with a block
// after its last run.
func TestRealTimeIsLimited(t *testing.T) {
	folder, err := filepath.Abs("../catalog/nginx")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	counts, err := readRealCounts(func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	counts.For, counts.Estimate = 1000*time.Minute, 100
	b := realBenchOf(t, folder, "1", counts, nil)
	now := b.began
	drive := drawn(100)
	b.drive = func(ctx context.Context, asked campaignRequest) (campaignResult, error) {
		if len(b.all) == 3 {
			b.began = now.Add(-counts.For) // the time is over
		}
		return drive(ctx, asked)
	}
	if err := b.measure(t.Context()); err != nil || order(b.all) != "brmdb" {
		t.Errorf("%s: %v", order(b.all), err)
	}
	counts.For, counts.Estimate, counts.Runs, counts.Window = noLimit, 85, 1, time.Minute
	if b := realBenchOf(t, folder, "1", counts, drawn(100)); b.measure(t.Context()) != nil || order(b.all) != "bbrmdb" {
		t.Errorf("%s: want a second block after a block that misses the capacity", order(b.all))
	}
	counts.Estimate, counts.Runs = 0, 2
	other := realBenchOf(t, folder, "2", counts, drawn(1))
	other.from.Host = "another host"
	if err := other.measure(t.Context()); err == nil || order(other.all) != "bbrmdbp" {
		t.Errorf("%s: want a pilot on another host", order(other.all))
	}
	counts.Runs, counts.Window = 20, 20*time.Second
	counts.For, counts.Estimate = time.Second, 100
	if b := realBenchOf(t, folder, "2", counts, drive); b.measure(t.Context()) != nil || order(b.all) != "brmdb" {
		t.Errorf("%s: began a block without time for a run and another block", order(b.all))
	}
}

// TestCoverageRow checks that a row misses its aim by the binomial test.
func TestCoverageRow(t *testing.T) {
	for held, holds := range map[int]bool{20: true, 16: true, 15: false} {
		var runs []judged
		for i := range 20 {
			beside := 100.0
			if i >= held {
				beside = 120
			}
			runs = append(runs, judged{realRecord{Capacity: &vitrine.Capacity{Rate: 100, Low: 95, High: 105}}, reference{Rate: beside, SD: 0.01}, true})
		}
		if row := coverageRow("real/x/coverage", runs, judged.covered, truthAim); *row.Holds != holds {
			t.Errorf("%d of 20: %s", held, encode(t, row))
		}
	}
	nothing := judged{realRecord{Capacity: &vitrine.Capacity{}}, reference{Rate: 100, SD: 0.01}, true}
	if nothing.covered() || nothing.agrees() {
		t.Error("a run without a capacity counts as covered")
	}
}

func TestReadRealCounts(t *testing.T) {
	env := map[string]string{"RUNS": "3", "FOR": "20m", "PRECISION": "0.2", "AWAKE": "off"}
	c, err := readRealCounts(func(name string) string { return env[name] })
	if err != nil || c.Runs != 3 || c.For != 20*time.Minute || c.Precision != 0.2 || c.Between != 4 || c.Awake {
		t.Errorf("%+v, %v", c, err)
	}
	for name, text := range map[string]string{"RUNS": "0", "FOR": "20", "PRECISION": "1", "ESTIMATE": "-1", "WINDOW": "1ms", "AWAKE": "1"} {
		if _, err := readRealCounts(func(n string) string { return map[string]string{name: text}[n] }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s %q: %v", name, text, err)
		}
	}
}
