package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestAblationRecordIsWhole checks that the record has a result for every ablation of the present
// tables, and that all results are for one state of search/.
func TestAblationRecordIsWhole(t *testing.T) {
	record, err := readAblations("results/ablation.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for _, precision := range truthPrecisions() {
		for _, a := range ablations(precision) {
			if record.find(a, precision) == nil {
				t.Errorf("no result for %s", a.title(precision))
			}
		}
	}
	for _, f := range record {
		if f.Search != record[0].Search {
			t.Errorf("%s is for search/ %s, the first result is for %s", f.Name, f.Search, record[0].Search)
		}
	}
}

// TestAblationRecordMatchesItsCommits checks that the history has the commits of the record, each
// with the recorded state of search/.
func TestAblationRecordMatchesItsCommits(t *testing.T) {
	if out, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output(); err != nil || strings.TrimSpace(string(out)) != "false" {
		t.Skip("this is not a git clone with full history")
	}
	record, err := readAblations("results/ablation.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	checked := map[string]bool{}
	for _, f := range record {
		if checked[f.Commit] {
			continue
		}
		checked[f.Commit] = true
		if out, err := exec.Command("git", "merge-base", "--is-ancestor", f.Commit, "HEAD").CombinedOutput(); err != nil {
			t.Errorf("commit %s is not in the history: %v %s", f.Commit, err, out)
		}
		out, err := exec.Command("git", "rev-parse", f.Commit+":search").CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), f.Search) {
			t.Errorf("commit %s has search/ %s, the record says %s: %v", f.Commit, strings.TrimSpace(string(out)), f.Search, err)
		}
	}
}

// TestResultsOfAnotherSearchDoNotCount checks that a result counts only for the same state of
// search/, setting, changes and number of searches.
func TestResultsOfAnotherSearchDoNotCount(t *testing.T) {
	a := constants()[0].at("7")
	found := ablationFound{Name: a.name, Precision: 0.1, Runs: a.runs, Changes: a.changes(), ablationSource: ablationSource{Search: "now"}}
	if record := (ablationRecord{found}).of("now"); record.find(a, 0.1) == nil {
		t.Error("the result does not count for its own ablation")
	}
	if record := (ablationRecord{found}).of("before"); record.find(a, 0.1) != nil {
		t.Error("a result for another state of search/ counts")
	}
	for name, other := range map[string]ablation{
		"with another change":          {name: a.name, file: a.file, old: a.old, new: "leastDeployments = 9", under: a.under, runs: a.runs},
		"with more searches":           {name: a.name, file: a.file, old: a.old, new: a.new, under: a.under, runs: 2 * a.runs},
		"in another setting":           {name: a.name, file: a.file, old: a.old, new: a.new, under: weak.changes(), runs: a.runs},
		"without the setting's change": {name: a.name, file: a.file, old: a.old, new: a.new, runs: a.runs},
	} {
		if (ablationRecord{found}).find(other, 0.1) != nil {
			t.Errorf("the result counts for an ablation %s", name)
		}
	}
}
