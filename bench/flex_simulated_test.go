package main

import (
	"path/filepath"
	"strings"
	"testing"

	"vitrine/flex/simulate"
)

// TestRandomSection checks that the page shows the recorded totals with their source.
func TestRandomSection(t *testing.T) {
	root := t.TempDir()
	if text, err := randomSection(root); text != notRun || err != nil {
		t.Errorf("without a record: %q, %v", text, err)
	}
	record := randomRecord{source{Date: "2026-01-02", Commit: "abc"}, []simulate.Total{
		{Result: simulate.Result{Scaler: "flex", InstanceSeconds: 500, Broken: 10}, Loads: 7},
		{Result: simulate.Result{Scaler: "hpa", InstanceSeconds: 400, Broken: 9, Lost: 11}, Loads: 7, Fewer: 2, Less: 3, Both: 1},
	}}
	if err := writeRecord(filepath.Join(root, randomFile), record); err != nil {
		t.Fatal(err)
	}
	text, err := randomSection(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"7 loads, 2026-01-02, by commit `abc`:", "| hpa | 400 | 9 s | 11 | 0 | 0 | 2 | 3 | 1 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
}
