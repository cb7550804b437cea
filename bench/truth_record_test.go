package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine/search/sim/queue"
)

var update = flag.Bool("update", false, "rewrite the tables of pages from the committed records")

// TestTruthPages checks that the tables of pages are made of the committed records.
func TestTruthPages(t *testing.T) {
	records, err := readTruth(filepath.Join("..", truthRecordFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range truthPages() {
		path := filepath.Join("..", p.path)
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := p.fill(string(page), records)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if string(page) != want {
			t.Errorf("%s is not what %s makes of it: go test ./bench -run TruthPages -update", p.path, truthRecordFile)
		}
	}
}

// TestTruthRecord checks that a record has the figures of its runs, that it replaces
// only the record of its own family, and that a page shows it.
func TestTruthRecord(t *testing.T) {
	b := &truthBench{family: queue.GC, runs: 100, version: "a", done: map[truthKey]truthRun{}}
	for run := range b.runs {
		r := truthRun{Precision: 0.1, Run: run, Truth: 100, Rate: 100, Low: 98, High: 104, Covered: run < 90, Oracle: 0.05, Trials: 30, Deployments: 8, Load: 600, Wall: 900}
		b.done[truthKey{0.1, run, ourSearch}] = r
	}
	b.done[truthKey{0.1, 0, mlrSearch}] = truthRun{Precision: 0.1, Truth: 100} // found nothing: its error is infinite
	r := b.summarize()
	r.from(t.Context(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	if len(r.Figures) != 2 || r.Figures[1].Error != nil || r.Figures[1].Width != nil {
		t.Fatalf("figures %+v", r.Figures)
	}
	f := r.Figures[0]
	// Clopper and Pearson's interval of 90 of 100 is 0.8238 to 0.9510.
	if f.Held != 90 || f.Coverage != 0.9 || f.CoverageLow < 0.8237 || f.CoverageLow > 0.8239 || f.CoverageHigh < 0.9509 || f.CoverageHigh > 0.9511 ||
		f.P > 0.05 || *f.Width != 0.06 || f.overOracle() < 1.199 || f.overOracle() > 1.201 || f.Load != 600 {
		t.Errorf("figures %+v", f)
	}
	file := filepath.Join(t.TempDir(), "results", "truth.json")
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
	for _, p := range truthPages() {
		page, err := p.fill("# Page\n\n<!-- "+p.name+": begin -->\nSTALE\n<!-- "+p.name+": end -->\n\nafter\n", records)
		if err != nil || strings.Contains(page, "STALE") || !strings.Contains(page, "after") ||
			!strings.Contains(page, "`queue`: 7 searches") || !strings.Contains(page, "2026-01-02") || !strings.Contains(page, "2000 searches of each, has not been run yet") {
			t.Errorf("%s: %v\n%s", p.path, err, page)
		}
		if want := map[string]string{"docs/simulate.md": "| 0.900 (0.824 to 0.951) |", "docs/search.md": "| 30 | 8 | 10 min | – | – | – |"}[p.path]; !strings.Contains(page, want) {
			t.Errorf("%s lacks %q:\n%s", p.path, want, page)
		}
		if _, err := p.fill("no marks", records); err == nil {
			t.Errorf("%s: a page without marks is filled", p.path)
		}
	}
}
