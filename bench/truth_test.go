package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/search/sim/queue"
)

// truthBenchOf returns a bench of a few runs, with no peer and a simple oracle.
func truthBenchOf(t *testing.T, file, version string) *truthBench {
	b := &truthBench{kind: truthKinds()[0], family: queue.Refusal, runs: 3, version: version, progress: io.Discard}
	b.oracle = func(*queue.Server) width { return func(int, float64) float64 { return 0.05 } }
	if err := b.open(file); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTruthResumes checks that a stopped bench resumes, unless the search has
// changed.
func TestTruthResumes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "truth.jsonl")
	first := truthBenchOf(t, file, "a")
	if err := first.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	const all = 2 * (3 + 3) // runs at two precisions, each with a run of mlr
	if len(first.done) != all {
		t.Fatalf("%d runs, want %d", len(first.done), all)
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(kept), "\n")
	// One run is missing, and another one is truncated.
	if err := os.WriteFile(file, []byte(strings.Join(lines[2:], "")+lines[0][:40]), 0o644); err != nil {
		t.Fatal(err)
	}
	again := truthBenchOf(t, file, "a")
	if len(again.done) != all-2 {
		t.Errorf("%d runs remain, want %d", len(again.done), all-2)
	}
	if err := again.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	for key, r := range first.done {
		if again.done[key] != r {
			t.Errorf("%v: %+v, before %+v", key, again.done[key], r)
		}
	}
	if third := truthBenchOf(t, file, "a"); len(third.done) != all {
		t.Errorf("%d runs remain after the second time, want %d", len(third.done), all)
	}
	if other := truthBenchOf(t, file, "b"); len(other.done) != 0 {
		t.Errorf("%d runs of another version count", len(other.done))
	}
}

// TestTruthVersionStays checks that the version does not change between calls. If
// it did, a bench could not resume.
func TestTruthVersionStays(t *testing.T) {
	if first, again := truthKinds()[0].version(queue.Refusal), truthKinds()[0].version(queue.Refusal); first != again {
		t.Errorf("version %s, then %s, of one search", first, again)
	}
}

// TestTruthRows checks that a row misses its aim if too few intervals contain the truth, if one
// contradicts its trials, or if they are too wide for the oracle.
func TestTruthRows(t *testing.T) {
	b := &truthBench{kind: truthKinds()[0], family: queue.GC, runs: 1000, done: map[truthKey]truthRun{}}
	fill := func(covered, contradicted int, wide float64) {
		for run := range b.runs {
			r := truthRun{Precision: 0.1, Run: run, Truth: 100, Rate: 100, Low: 100, High: 100 * (1 + wide), Covered: run < covered, Oracle: 0.05, Load: 100, Wall: 200}
			if run < contradicted {
				r.Contradiction = "it ends below"
			}
			b.done[truthKey{0.1, run, ourSearch}] = r
			if run%10 == 0 {
				r.Load = 50
				b.done[truthKey{0.1, run, mlrSearch}] = r
			}
		}
	}
	for name, c := range map[string]struct {
		covered, contradicted int
		wide                  float64
		holds                 [3]bool
	}{
		"good":         {940, 0, 0.07, [3]bool{true, true, true}},
		"too few":      {930, 0, 0.07, [3]bool{false, true, true}},
		"contradicted": {950, 1, 0.07, [3]bool{true, false, true}},
		"too wide":     {1000, 0, 0.08, [3]bool{true, true, false}},
	} {
		fill(c.covered, c.contradicted, c.wide)
		rows := b.rows(0.1)
		for i, holds := range c.holds {
			if *rows[i].Holds != holds {
				t.Errorf("%s: %s, want %v", name, encode(t, rows[i]), holds)
			}
		}
		for _, r := range rows {
			if r.Name == "truth/gc/0.1/mlr/load" && (*r.Ratio != 2 || r.Rounds != 100) {
				t.Errorf("%s: %s, want a ratio of 2 over 100 runs", name, encode(t, r))
			}
		}
	}
}

// TestRatioOfInfiniteMedians checks that a row has no ratio if a median is infinite, on either
// side. JSON has no infinity.
func TestRatioOfInfiniteMedians(t *testing.T) {
	none, some := []float64{math.Inf(1), math.Inf(1)}, []float64{1, 2}
	for _, c := range [][2][]float64{{some, none}, {none, some}, {none, none}} {
		row := ratioOf("x", "s", "y", "<= 1.5", c[0], c[1])
		if text := encode(t, row); row.Ratio != nil || row.Holds != nil || row.Reason == "" {
			t.Errorf("%v against %v: %s, want a reason and no figure", c[0], c[1], text)
		}
	}
	// Rounds with an infinite median are left out of the spread.
	row := ratioOf("x", "s", "y", "", []float64{2, 2, 2}, []float64{1, math.Inf(1), 1})
	if text := encode(t, row); *row.Spread != [2]float64{2, 2} {
		t.Errorf("%s, want a spread from 2 to 2", text)
	}
}
