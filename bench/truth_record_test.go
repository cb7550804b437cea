package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/search/sim/queue"
)

// TestTruthRecord checks the figures that a record computes from its runs. A new record replaces
// only that of its own family, and the pages show it.
func TestTruthRecord(t *testing.T) {
	b := &truthBench{kind: truthKinds()[0], family: queue.GC, runs: 100, version: "a", done: map[truthKey]truthRun{}}
	for run := range b.runs {
		r := truthRun{Precision: 0.1, Run: run, Truth: 100, Rate: 100, Low: 98, High: 104, Covered: run < 90, Oracle: 0.05, Trials: 30, Deployments: 8, Load: 600, Wall: 900}
		b.done[truthKey{0.1, run, ourSearch}] = r
	}
	b.done[truthKey{0.1, 0, mlrSearch}] = truthRun{Precision: 0.1, Truth: 100} // found nothing: its error is infinite
	r := b.summarize()
	r.source = sourceAt(t.Context(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	if len(r.Figures) != 2 || r.Figures[1].Error != nil || r.Figures[1].Width != nil {
		t.Fatalf("figures %+v", r.Figures)
	}
	f := r.Figures[0]
	// Clopper and Pearson's interval of 90 of 100 is 0.8238 to 0.9510.
	if f.Held != 90 || f.Coverage != 0.9 || f.CoverageLow < 0.8237 || f.CoverageLow > 0.8239 || f.CoverageHigh < 0.9509 || f.CoverageHigh > 0.9511 ||
		f.P > 0.05 || *f.Width != 0.06 || f.overOracle() < 1.199 || f.overOracle() > 1.201 || f.Load != 600 {
		t.Errorf("figures %+v", f)
	}
	root := t.TempDir()
	file := filepath.Join(root, truthKinds()[0].recordFile())
	other := truthRecord{Family: queue.Queue, Runs: 7, Servers: queue.HeldOut}
	for _, each := range []truthRecord{r, other, {Family: queue.GC, Runs: 1}, r} {
		if err := keepTruth(file, each); err != nil {
			t.Fatal(err)
		}
	}
	records, err := readTruth(file)
	if err != nil || len(records) != 2 || records[0].Family != queue.Queue || records[1].Runs != 100 || *records[1].Figures[0].Width != 0.06 {
		t.Fatalf("%+v, %v", records, err)
	}
	rows := map[string][]string{
		"bench/truth":      {"| 0.900 (0.824 to 0.951) |"},
		"bench/truth/cost": {"| 30 | 8 | 10 min | – | – | – |"},
		"bench/truth/peers": {
			"| all | 0.1 | adaptive | 90 of 100 | 0.0000 | 10.0 min | 15.0 min |",
			"| `gc` | 0.1 | mlr | 0 of 1 | +Inf | 0.0 min | 0.0 min |",
		},
	}
	for _, p := range pages()[:len(rows)] {
		text, err := p.fill(root, "# Page\n\n<!-- "+p.name+": begin -->\nSTALE\n<!-- "+p.name+": end -->\n\nafter\n")
		if err != nil || strings.Contains(text, "STALE") || !strings.Contains(text, "after") ||
			!strings.Contains(text, "`queue`: 7 searches") || !strings.Contains(text, "2026-01-02") || !strings.Contains(text, "1000 searches of each, has not been run yet") {
			t.Errorf("%s: %v\n%s", p.path, err, text)
		}
		if rows[p.name] == nil {
			t.Errorf("no rows are wanted of %s", p.name)
		}
		for _, want := range rows[p.name] {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", p.name, want, text)
			}
		}
	}
}
