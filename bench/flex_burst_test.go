package main

import (
	"path/filepath"
	"testing"

	"vitrine/flex/burst"
)

// TestBurstsResume checks that only stored days of the same build and length count, and that
// figures of 0 give no ratio.
func TestBurstsResume(t *testing.T) {
	file := filepath.Join(t.TempDir(), "days.jsonl")
	for _, r := range []burstRecord{
		{"a", burst.Result{Policy: "flex", Seconds: 60, InstanceSeconds: 10, Lag: 4, Boot: 1.5}},
		{"b", burst.Result{Policy: "hpa", Seconds: 60}},
		{"a", burst.Result{Policy: "hpa", Seconds: 3600}},
		{"a", burst.Result{Policy: "fixed=5", Seconds: 60, InstanceSeconds: 40}},
	} {
		if err := appendLine(file, r); err != nil {
			t.Fatal(err)
		}
	}
	done, err := readBursts(file, "a", 60)
	if err != nil || len(done) != 2 {
		t.Fatalf("%+v, %v: want flex and fixed=5", done, err)
	}
	rows, err := burstRows(done)
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.Name != "flex/burst" || *r.Ratio != 1 || !*r.Holds {
		t.Errorf("a lag of 4 s with a start of 1.5 s: %+v", r)
	}
	if r := rows[1]; r.Name != "flex/burst/instance-seconds/fixed=5" || *r.Ratio != 0.25 {
		t.Errorf("%+v", r)
	}
	if r := rows[3]; r.Ratio != nil || r.Reason == "" {
		t.Errorf("a lag of 4 s against 0 s has a ratio: %+v", r)
	}
}

func TestBurstLengthIsChecked(t *testing.T) {
	for text, want := range map[string]int{"": burstSeconds, "60": 60, "59": 0, "x": 0, "86401": 0} {
		if n, err := burstLength(text); n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}
