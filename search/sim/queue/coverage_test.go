package queue_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"testing"

	"vitrine/search/rate"
	"vitrine/search/sim/queue"
)

var (
	runs      = flag.Int("runs", 0, "searches of a family; 0: as many as fit into a test")
	precision = flag.Float64("precision", 0.1, "that searches are asked for")
	family    = flag.String("family", "", "the only family; empty: all")
	figures   = flag.String("figures", "", "write the figures of each family to this file")
	verbose   = flag.Bool("each", false, "print every run")
)

// fewRuns of each family take about half a minute together under the race
// detector.
const fewRuns = 20

// tally runs searches on the tuning servers of a family.
func tally(family string, n int, cfg rate.Config) queue.Tally {
	results := make(queue.Tally, n)
	var group sync.WaitGroup
	for w := range runtime.GOMAXPROCS(0) {
		group.Go(func() {
			for k := w; k < n; k += runtime.GOMAXPROCS(0) {
				results[k] = queue.Tuning.Run(family, k).Search(rate.NewAdaptive(cfg), cfg)
			}
		})
	}
	group.Wait()
	return results
}

// TestAdaptiveHoldsTheTruth checks servers that do not follow a curve. The
// intervals of each family hold the truth about as often as they say, and none
// contradicts its trials.
func TestAdaptiveHoldsTheTruth(t *testing.T) {
	holdTheTruth(t, fewRuns, queue.Config(*precision))
}

// TestAdaptiveHoldsTheTruthOfStatefulServers checks the same where each overload
// needs a fresh deployment.
func TestAdaptiveHoldsTheTruthOfStatefulServers(t *testing.T) {
	cfg := queue.Config(*precision)
	cfg.Stateful = true
	holdTheTruth(t, fewRuns/2, cfg)
}

// holdTheTruth runs n searches of each family, unless flags ask for others.
func holdTheTruth(t *testing.T, n int, cfg rate.Config) {
	if *runs > 0 {
		n = *runs
	}
	held := 0
	var all []queue.FamilyFigure
	families := queue.Families()
	if *family != "" {
		families = []string{*family}
	}
	for _, family := range families {
		results := tally(family, n, cfg)
		held += results.Held()
		p := queue.TooFew(results.Held(), n, 0.95)
		f := results.Figure(family)
		all = append(all, f)
		line := fmt.Sprintf("%-9s %d of %d hold the truth (p %.2g), %d contradict; bias %+.4f, median width %.3f, %.1f trials, %.1f deployments, %.0f s of load, %.0f s in all",
			family, f.Held, n, p, f.Contradictions, f.Bias, f.Width, f.Trials, f.Deployments, f.Load, f.Wall)
		t.Log(line)
		if *verbose {
			for k, r := range results {
				t.Logf("  %s/%d: truth %.1f, found %.1f [%.1f, %.1f], held %v, %d trials, %.0f s: %s %s",
					family, k%queue.Size, r.Truth, r.Found.Rate, r.Found.Low, r.Found.High, r.Covered, r.Trials, r.Load, r.Why, r.Contradiction)
			}
		}
		if p < 0.001 || results.Contradictions() > 0 {
			t.Error(line)
		}
	}
	if p := queue.TooFew(held, n*len(families), 0.95); p < 0.001 {
		t.Errorf("all families: %d of %d hold the truth (p %.2g)", held, n*len(families), p)
	}
	if *figures != "" {
		text, err := json.Marshal(all)
		if err == nil {
			err = os.WriteFile(*figures, text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestColdServerIsWarmed checks a server whose cold deployments the first three
// climbs do not always reveal. A search that stops looking after them reports up to
// 6% too little.
func TestColdServerIsWarmed(t *testing.T) {
	const server, searches = 10, 7
	cfg := queue.Config(0.05)
	for k := range searches {
		r := queue.Tuning.Run(queue.Warm, server+k*queue.Size).Search(rate.NewAdaptive(cfg), cfg)
		if !r.Covered || r.Bias < -0.03 {
			t.Errorf("search %d: truth %.1f, found %.1f [%.1f, %.1f]: %s", k, r.Truth, r.Found.Rate, r.Found.Low, r.Found.High, r.Why)
		}
	}
}

func TestTooFew(t *testing.T) {
	// P(X <= 37) of 40 at 0.95 is 1 - P(38) - P(39) - P(40).
	want := 1 - (780*math.Pow(0.95, 38)*0.0025 + 40*math.Pow(0.95, 39)*0.05 + math.Pow(0.95, 40))
	if p := queue.TooFew(37, 40, 0.95); math.Abs(p-want) > 1e-12 {
		t.Errorf("37 of 40: got %g, want %g", p, want)
	}
	if p := queue.TooFew(40, 40, 0.95); p != 1 {
		t.Errorf("40 of 40: got %g, want 1", p)
	}
	if p := queue.TooFew(0, 2, 0.95); math.Abs(p-0.0025) > 1e-12 {
		t.Errorf("0 of 2: got %g, want 0.0025", p)
	}
}
