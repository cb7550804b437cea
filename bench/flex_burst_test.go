package main

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/flex/burst"
	"vitrine/flex/simulate"
)

// TestBurstsAreComparedInOneSetting checks that only stored days of the same program, boot, rate and
// length count, that later days find the rate, and that figures of 0 give no ratio.
func TestBurstsAreComparedInOneSetting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "days.jsonl")
	here := burstSetting{"a", "1", 70}
	for _, r := range []burstRecord{
		{Setting: here, Result: burst.Result{Policy: "flex", Seconds: 60, InstanceSeconds: 10, Lag: 4, Boot: 1.5, Calls: 100}},
		{Setting: burstSetting{"b", "1", 70}, Result: burst.Result{Policy: "hpa", Seconds: 60}},
		{Setting: burstSetting{"a", "2", 80}, Result: burst.Result{Policy: "hpa", Seconds: 60}},
		{Setting: here, Result: burst.Result{Policy: "hpa", Seconds: 3600}},
		{Setting: here, Result: burst.Result{Policy: "fixed=5", Seconds: 60, InstanceSeconds: 40}},
	} {
		if err := appendLine(file, r); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readBursts(file)
	if err != nil {
		t.Fatal(err)
	}
	if all.of(here, 60).day("hpa") != nil || all.of(here, 3600).day("hpa") == nil {
		t.Error("hpa ran only a day of 3600 s in this setting")
	}
	for _, s := range []burstSetting{here, {"b", "1", 70}, {"a", "2", 80}, {"c", "1", 0}} {
		if got := all.rate(burstSetting{Build: s.Build, Boot: s.Boot}); got != s.Rate {
			t.Errorf("the rate of program %s after boot %s is %g, want %g", s.Build, s.Boot, got, s.Rate)
		}
	}
	rows, err := all.of(here, 60).rows()
	if err != nil || len(rows) != 5 {
		t.Fatalf("got %+v, %v: want flex, what it lost, and three rows against fixed=5", rows, err)
	}
	if r := rows[0]; r.Name != "flex/burst" || *r.Ratio != 1 || !*r.Holds {
		t.Errorf("a lag of 4 s with a start of 1.5 s: %+v", r)
	}
	if r := rows[1]; r.Name != "flex/burst/lost" || *r.Theirs != 300 || !*r.Holds {
		t.Errorf("nothing lost in 100 calls: %+v", r)
	}
	if r := rows[2]; r.Name != "flex/burst/instance-seconds/fixed=5" || *r.Ratio != 0.25 {
		t.Errorf("%+v", r)
	}
	worse := slices.Clone(all.of(here, 60))
	worse[0].Over, worse[0].Lost = 1, 1
	if rows, err := worse.rows(); err != nil || *rows[1].Holds || *rows[2].Holds {
		t.Errorf("a lost transaction, and fewer instance-seconds with more seconds over the objective: %+v, %v", rows, err)
	}
	if r := rows[4]; r.Ratio != nil || r.Reason == "" {
		t.Errorf("a lag of 4 s against 0 s has a ratio: %+v", r)
	}
}

// TestBurstSectionShowsFullDays checks that each setting has a table, without compressed days.
func TestBurstSectionShowsFullDays(t *testing.T) {
	root := t.TempDir()
	if text, err := burstSection(root); text != notRun || err != nil {
		t.Errorf("without records: %q, %v", text, err)
	}
	for _, r := range []burstRecord{
		{Setting: burstSetting{"a", "1", 70}, Result: burst.Result{Policy: "flex", Seconds: burstSeconds, InstanceSeconds: 11}},
		{Setting: burstSetting{"a", "1", 70}, Result: burst.Result{Policy: "hpa", Seconds: 60, InstanceSeconds: 99}},
		{Setting: burstSetting{"b", "1", 80}, Result: burst.Result{Policy: "flex", Seconds: burstSeconds, InstanceSeconds: 22}},
	} {
		if err := appendLine(filepath.Join(root, burstFile), r); err != nil {
			t.Fatal(err)
		}
	}
	text, err := burstSection(root)
	if err != nil || strings.Count(text, "| flex |") != 2 || strings.Contains(text, "99") || !strings.Contains(text, "a rate of 70/s:") || !strings.Contains(text, "a rate of 80/s:") {
		t.Errorf("got %v\n%s", err, text)
	}
}

// TestDeclaredRateIsTheLowerBound also refuses an interval that reaches far below the capacity.
func TestDeclaredRateIsTheLowerBound(t *testing.T) {
	for _, c := range []struct {
		found capacityFound
		want  float64
	}{{capacityFound{100, 90.7, 104}, 90}, {capacityFound{100, 50, 104}, 50}, {capacityFound{100, 49.9, 104}, 0}, {capacityFound{100, 0, 104}, 0}} {
		if rate, err := declaredRate(c.found); rate != c.want || (err == nil) != (c.want > 0) {
			t.Errorf("%+v: %g, %v, want %g", c.found, rate, err, c.want)
		}
	}
}

// TestBurstIsFiveRates checks that the burst needs as many instances as the fixed policy has, and no more
// than burstMax under Knative's rules.
func TestBurstIsFiveRates(t *testing.T) {
	const knativeTarget = 0.7
	peak := simulate.Day(burstSeconds, burstPeak).Peak()
	if math.Abs(peak-burstFixed) > 1e-9 || math.Ceil(peak/knativeTarget) > burstMax {
		t.Errorf("the burst reaches %g rates", peak)
	}
}

func TestBurstPeersAreChecked(t *testing.T) {
	if all, err := chosenBurstPeers(""); err != nil || len(all) != 3 {
		t.Errorf("all: got %q, %v", all, err)
	}
	if some, err := chosenBurstPeers("knative hpa"); err != nil || len(some) != 2 {
		t.Errorf("two: got %q, %v", some, err)
	}
	if _, err := chosenBurstPeers("hpa kpa"); err == nil {
		t.Error("kpa is no policy")
	}
}

func TestBurstLengthIsChecked(t *testing.T) {
	for text, want := range map[string]int{"": burstSeconds, "60": 60, "59": 0, "x": 0, "86401": 0} {
		if n, err := burstLength(text); n != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
}
