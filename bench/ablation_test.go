package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine/search/sim/queue"
)

// TestAblations checks that the source has each piece of text to replace exactly once, that the
// changed source is valid Go, and that no two ablations share a name.
func TestAblations(t *testing.T) {
	for _, precision := range truthPrecisions() {
		names := map[string]bool{}
		for _, a := range ablations(precision) {
			name := fmt.Sprint(a.in, "/", a.name, a.runs)
			if names[name] {
				t.Errorf("%s: two ablations have this name", name)
			}
			names[name] = true
			for _, c := range a.changes() {
				source, err := os.ReadFile(filepath.Join("..", "search", c.File))
				if err != nil {
					t.Fatal(err)
				}
				patched, err := c.patch(source)
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				if _, err := parser.ParseFile(token.NewFileSet(), c.File, patched, 0); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// TestAblationSection checks that the tables compare each search with the unchanged search in its
// setting. Results with other changes must not appear.
func TestAblationSection(t *testing.T) {
	root := t.TempDir()
	families := func(held int, width float64) []queue.FamilyFigure {
		return []queue.FamilyFigure{
			{Family: queue.Queue, Runs: 100, Held: 98, Width: 0.04, Load: 100},
			{Family: queue.GC, Runs: 100, Held: held, Width: width, Load: 100, Contradictions: 2},
		}
	}
	if text, err := ablationSection(root); err != nil || text != notRun {
		t.Errorf("without a record: %q, %v", text, err)
	}
	found := func(a ablation, families []queue.FamilyFigure) ablationFound {
		return ablationFound{Name: a.name, Setting: a.in, Precision: 0.1, Runs: a.runs, Changes: a.changes(), Families: families}
	}
	rule, tried := rules()[1], constants()[0]
	record := ablationRecord{
		found(rules()[0], families(96, 0.08)), found(rule, families(70, 0.02)), found(tried.in.whole(), families(96, 0.08)),
		found(tried.at(tried.lower), families(80, 0.08)), found(tried.at(tried.higher), families(90, 0.08)),
	}
	record[4].Changes = record[3].Changes
	file := filepath.Join(root, ablationRecordFile)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := record.write(file); err != nil {
		t.Fatal(err)
	}
	text, err := ablationSection(root)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	printTable(&table, []Row{record[1].row(rule.title(0.1), &record[0])})
	if !strings.Contains(table.String(), "search/ablation/0.1/"+rule.name) {
		t.Errorf("no row of the ablation in\n%s", table.String())
	}
	for _, want := range []string{
		"| " + untouched + " | 0.1 | 0.970 | 0.960 (`gc`) | 2 | 1.00 | 1.00 |",
		"| " + rule.name + " | 0.1 | 0.840 | 0.700 (`gc`) | 2 | 0.50 | 1.00 |",
		"| `" + tried.name + "` | `" + tried.value + "` | `" + tried.lower + "` | 0.890 | 0.800 (`gc`) | 2 | 1.00 | 1.00 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the section lacks %q:\n%s", want, text)
		}
	}
	if unwanted := "`" + tried.higher + "` | 0.9"; strings.Contains(text, unwanted) {
		t.Errorf("the section must not have %q:\n%s", unwanted, text)
	}
}
