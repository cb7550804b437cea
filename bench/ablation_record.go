package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"vitrine/search/sim/queue"
)

// ablationRecordFile is the committed record, one result per line. The tables in
// docs/decisions/0016-adaptive-search.md are generated from it.
const ablationRecordFile = "bench/results/ablation.jsonl"

// An ablationSource says where a result comes from.
type ablationSource struct {
	source
	Search string `json:"search"` // git's hash of the folder search/ in the commit
}

// ablationSourceAt returns the source of a result that is measured now. It fails if the commit is
// unknown or Go files have uncommitted changes, because the commit would not identify the search.
func ablationSourceAt(ctx context.Context, now time.Time) (ablationSource, error) {
	from := ablationSource{source: sourceAt(ctx, now)}
	if strings.Contains(from.Commit, " ") {
		return from, fmt.Errorf("commit %s: commit first, because the record names the commit of each result", from.Commit)
	}
	tree, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", from.Commit+":search").Output()
	if err != nil {
		return from, fmt.Errorf("commit %s: hash of search/: %w", from.Commit, err)
	}
	from.Search = strings.TrimSpace(string(tree))
	return from, nil
}

// An ablationFound is the result of one ablation at one precision, on the tuning servers.
type ablationFound struct {
	Name      string  `json:"name"`
	Setting   setting `json:"setting,omitempty"`
	Precision float64 `json:"precision"`
	Runs      int     `json:"runs"` // per family
	ablationSource
	Changes  []change             `json:"changes"`
	Families []queue.FamilyFigure `json:"families"`
}

// An ablationRecord holds all results.
type ablationRecord []ablationFound

// of returns the results for one state of search/, which is named by its hash.
func (r ablationRecord) of(search string) (of ablationRecord) {
	for _, f := range r {
		if f.Search == search {
			of = append(of, f)
		}
	}
	return of
}

// find returns the result of the ablation, or nil. A result with other changes, another setting or
// another number of searches does not count.
func (r ablationRecord) find(a ablation, precision float64) *ablationFound {
	for i, f := range r {
		if f.Name == a.name && f.Setting == a.in && f.Precision == precision && f.Runs == a.runs && slices.Equal(f.Changes, a.changes()) {
			return &r[i]
		}
	}
	return nil
}

func readAblations(file string) (ablationRecord, error) { return readLines[ablationFound](file) }

func (r ablationRecord) write(file string) error {
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	lines.SetEscapeHTML(false)
	for _, f := range r {
		if err := lines.Encode(f); err != nil {
			return err
		}
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// coverage returns the share of all intervals that hold the truth.
func (f ablationFound) coverage() float64 {
	held, runs := 0, 0
	for _, family := range f.Families {
		held, runs = held+family.Held, runs+family.Runs
	}
	return float64(held) / float64(max(runs, 1))
}

// worst returns the family whose intervals hold the truth least often.
func (f ablationFound) worst() queue.FamilyFigure {
	worst := f.Families[0]
	for _, family := range f.Families {
		if family.Held*worst.Runs < worst.Held*family.Runs {
			worst = family
		}
	}
	return worst
}

// times returns a figure as a multiple of the other search's figure: the geometric mean over
// families.
func (f ablationFound) times(other *ablationFound, figure func(queue.FamilyFigure) float64) float64 {
	sum := 0.0
	for i, family := range f.Families {
		sum += math.Log(figure(family) / figure(other.Families[i]))
	}
	return math.Exp(sum / float64(len(f.Families)))
}

// contradictions returns how many intervals contradict their trials.
func (f ablationFound) contradictions() int {
	n := 0
	for _, family := range f.Families {
		n += family.Contradictions
	}
	return n
}

func (f ablationFound) row(title string, whole *ablationFound) Row {
	ours, theirs := f.coverage(), whole.coverage()
	return newRow("search/ablation/"+title, "share of runs", untouched, "", ours, theirs, ours/theirs, nil, 1)
}
