package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/report"
	"vitrine/result"
)

// demoOf returns a demo of 250 s that cannot tell the sizes apart. Another size carries less.
func demoOf(sizes ...string) demoRecord {
	r := demoRecord{
		source: source{"2026-11-30", "abc", "a host"}, Build: "b", Began: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Seconds: 250,
		Best: sizes[0], Why: "the highest capacity",
		CPU: []report.CallCost{{Sizing: sizes[0], Component: "bono", PerCall: 0.001, Idle: 0.02}},
	}
	for i, name := range append(slices.Clone(sizes), "zz1s") {
		z := demoSize{Sizing: name, Relation: "tied", Capacity: vitrine.Capacity{Rate: 200, Low: 150, High: 250, Censored: vitrine.CensoredNone}}
		switch i {
		case 0:
			z.Relation = "best"
		case len(sizes):
			z.Relation, z.Censored = "lower", vitrine.CensoredAbove
		}
		r.Sizes = append(r.Sizes, z)
	}
	return r
}

// TestDemoRows checks which demos meet the aims.
func TestDemoRows(t *testing.T) {
	five := func(change func(all demoRecords)) demoRecords {
		all := demoRecords{demoOf("a", "b"), demoOf("b"), demoOf("b", "c"), demoOf("a", "b"), demoOf("c", "b")}
		change(all)
		return all
	}
	for name, c := range map[string]struct {
		all   demoRecords
		agree float64
		met   string // of seconds, agree and cpu
	}{
		"agree":             {five(func(demoRecords) {}), 5, "yes yes yes"},
		"no common size":    {five(func(all demoRecords) { all[1] = demoOf("c", "a") }), 4, "yes no yes"},
		"one is slow":       {five(func(all demoRecords) { all[2].Seconds = 301 }), 5, "no yes yes"},
		"a slope falls":     {five(func(all demoRecords) { all[3].CPU[0].PerCall = -0.001 }), 5, "yes yes no"},
		"four":              {five(func(demoRecords) {})[:4], 4, "no no no"},
		"no slopes at all":  {five(clearCosts), 5, "yes yes -"},
		"a size is lower":   {five(func(all demoRecords) { all[4].Sizes[1].Relation = "lower" }), 4, "yes no yes"},
		"a size is unknown": {five(func(all demoRecords) { all[4].Sizes[1].Relation = "unknown" }), 4, "yes no yes"},
	} {
		rows := c.all.rows()
		var met []string
		for _, r := range rows {
			met = append(met, r.holds())
		}
		if got := strings.Join(met, " "); got != c.met || *rows[1].Ours != c.agree {
			t.Errorf("%s: aims met: %s, and %g demos agree; want %s and %g", name, got, *rows[1].Ours, c.met, c.agree)
		}
	}
}

func clearCosts(all demoRecords) {
	for i := range all {
		all[i].CPU = nil
	}
}

// TestDemosResume checks that only the demos that the file lacks run, and that those of another build or
// host do not count.
func TestDemosResume(t *testing.T) {
	file, here := filepath.Join(t.TempDir(), "demos.jsonl"), demoOf("a")
	otherBuild, otherHost := here, here
	otherBuild.Build, otherHost.Host = "c", "another"
	for _, r := range []demoRecord{otherBuild, here, otherHost} {
		if err := appendLine(file, r); err != nil {
			t.Fatal(err)
		}
	}
	var numbers []int
	failed := errors.New("too noisy")
	run := func(number int) (demoRecord, error) {
		numbers = append(numbers, number)
		if len(numbers) == 3 {
			return demoRecord{}, failed
		}
		return here, nil
	}
	if all, err := collectDemos(file, here, run, io.Discard); !errors.Is(err, failed) || len(all) != 3 {
		t.Errorf("interrupted: got %d demos, %v", len(all), err)
	}
	for range 2 {
		if all, err := collectDemos(file, here, run, io.Discard); err != nil || len(all) != demoRuns {
			t.Errorf("resumed: got %d demos, %v", len(all), err)
		}
	}
	if want := []int{2, 3, 4, 4, 5}; !slices.Equal(numbers, want) {
		t.Errorf("ran the demos %v, want %v", numbers, want)
	}
}

// TestDemoSection checks the page without a record, and that it shows only the demos of the last build.
func TestDemoSection(t *testing.T) {
	root := t.TempDir()
	if text, err := demoSection(root); err != nil || text != notRun {
		t.Errorf("without a record: %q, %v", text, err)
	}
	old := demoOf("old1s")
	old.Build = "a"
	for _, r := range []demoRecord{old, demoOf("a1s", "b1s"), demoOf("b1s"), demoOf("b1s"), demoOf("b1s"), demoOf("b1s")} {
		if err := appendLine(filepath.Join(root, demoFile), r); err != nil {
			t.Fatal(err)
		}
	}
	text, err := demoSection(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"5 of 5 demos, 2026-11-30, on a host, by commit `abc`.",
		"| seconds | 250 s, the longest demo | 300, five minutes | 0.833 | <= 1 | yes |",
		"| agree | 5 demos | 5, ",
		"| cpu | 0 negative slopes | 5, slopes that the reports show | 0.000 | <= 0 | yes |",
		"| 2026-11-30 12:00:00 | 250 | `a1s`: the highest capacity | `a1s` 200 [150, 250], best; `b1s` 200 [150, 250], tied; `zz1s` from 150 up, lower |",
		"| `b1s` | bono | 4 | 1 (1 to 1) | 0.02 (0.02 to 0.02) |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the section lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "old1s") {
		t.Error("the section shows a demo of an earlier build")
	}
}

// TestDemoIsRead checks what a run folder adds to a record.
func TestDemoIsRead(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	run, err := result.Create(dir, result.Manifest{})
	if err != nil {
		t.Fatal(err)
	}
	size := func(name string, low, rate, high float64) result.Sizing {
		return result.Sizing{Name: name, Substrate: "process", Capacities: []vitrine.Capacity{{Threshold: 0.9, Rate: rate, Low: low, High: high, Censored: vitrine.CensoredNone}}}
	}
	err = errors.Join(run.SaveSummary(result.Summary{
		Unit: "calls/s", Thresholds: []float64{0.9},
		Sizings: []result.Sizing{size("bn1s", 90, 100, 110), size("bn1m", 100, 120, 140), size("bn2s", 20, 30, 40)},
		Optimal: &result.Optimal{Sizing: "bn1s", Why: "the fewer vCPUs win"},
	}), run.Close())
	if err != nil {
		t.Fatal(err)
	}
	var r demoRecord
	if err := r.read(dir); err != nil {
		t.Fatal(err)
	}
	if got := r.alike(); r.Best != "bn1s" || r.Why != "the fewer vCPUs win" || !slices.Equal(got, []string{"bn1m", "bn1s"}) {
		t.Errorf("best %s: %s; best or tied: %v", r.Best, r.Why, got)
	}
	if z := r.Sizes[0]; z.Rate != 120 || z.Low != 100 || z.High != 140 || len(r.Sizes) != 3 {
		t.Errorf("sizes %+v", r.Sizes)
	}
}

// TestDemoIsOfTheMakefile checks that make demo and the bench run the same arguments, and that a change
// of a file among them makes another build.
func TestDemoIsOfTheMakefile(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if want := "\n\t$(SCOPE) $(BIN) $(DEMO) --out "; !strings.Contains(string(makefile), want) {
		t.Errorf("make demo does not run %q", want)
	}
	args, err := demoArgs("..")
	if err != nil || len(args) != 3 || args[0] != "characterize" {
		t.Fatalf("got %q, %v", args, err)
	}
	for _, file := range args[1:] {
		if _, err := os.Stat(filepath.Join("..", file)); err != nil {
			t.Error(err)
		}
	}
	dir := t.TempDir()
	program, file := filepath.Join(dir, "program"), filepath.Join(dir, "workload.yaml")
	builds := map[string]bool{}
	for _, texts := range [][2]string{{"p", "w"}, {"q", "w"}, {"p", "v"}, {"p", "w"}} {
		if err := errors.Join(os.WriteFile(program, []byte(texts[0]), 0o600), os.WriteFile(file, []byte(texts[1]), 0o600)); err != nil {
			t.Fatal(err)
		}
		build, err := demoBuild(program, []string{"characterize", file})
		if err != nil {
			t.Fatal(err)
		}
		builds[build] = true
	}
	if len(builds) != 3 {
		t.Errorf("%d builds of 3 different ones", len(builds))
	}
}
