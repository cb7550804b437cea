package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/search/sim/queue"
)

// TestAblations checks that every changed line is in the source once and stays Go
// without it, and that the names of the table differ.
func TestAblations(t *testing.T) {
	names := map[string]bool{}
	for _, a := range ablations() {
		if names[a.name] {
			t.Errorf("%s: there are two", a.name)
		}
		names[a.name] = true
		if a.name == untouched {
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", "search", "rate", a.file))
		if err != nil {
			t.Fatal(err)
		}
		patched, err := a.patch(source)
		if err != nil {
			t.Errorf("%s: %v", a.name, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), a.file, patched, 0); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
	}
}

// TestAblationSection checks that the table compares each search with the untouched one.
func TestAblationSection(t *testing.T) {
	root := t.TempDir()
	families := func(held int, width float64) []queue.FamilyFigure {
		return []queue.FamilyFigure{
			{Family: queue.Queue, Runs: 100, Held: 98, Width: 0.04, Load: 100},
			{Family: queue.GC, Runs: 100, Held: held, Width: width, Load: 100, Contradictions: 2},
		}
	}
	record := ablationRecord{Servers: queue.Tuning, Runs: 100, Results: []ablationFound{
		{untouched, 0.1, families(96, 0.08)}, {ablations()[1].name, 0.1, families(70, 0.02)},
	}}
	if text, err := ablationSection(root); err != nil || text != notRun {
		t.Errorf("without a record: %q, %v", text, err)
	}
	if err := writeRecord(filepath.Join(root, ablationRecordFile), record); err != nil {
		t.Fatal(err)
	}
	text, err := ablationSection(root)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	printTable(&table, []Row{record.Results[1].row(&record.Results[0])})
	if !strings.Contains(table.String(), "search/ablation/0.1/"+ablations()[1].name) {
		t.Errorf("no row in\n%s", table.String())
	}
	for _, want := range []string{
		"100 searches of each family", "| " + untouched + " | 0.1 | 0.970 | 0.960 (`gc`) | 2 | 1.00 | 1.00 |",
		"| " + ablations()[1].name + " | 0.1 | 0.840 | 0.700 (`gc`) | 2 | 0.50 | 1.00 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
