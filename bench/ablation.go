package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"time"

	"vitrine/papers"
	"vitrine/search/sim/queue"
)

// ablationRecordFile is committed. The table of the decision about the adaptive search
// is made of it.
const ablationRecordFile = "bench/results/ablation.json"

// ablationRuns is the number of searches per family, unless RUNS is set.
const ablationRuns = 60

// An ablation takes one rule or constant out of the adaptive search, by replacing one
// piece of its source text.
type ablation struct {
	name     string // what the search does without it
	file     string // in search/rate
	old, new string
}

// untouched is the search as it is.
const untouched = "the search as it is"

func ablations() []ablation {
	return []ablation{
		{name: untouched},
		{"judges the end by the width itself", "adaptive.go", "return math.Sqrt(freedom / ", "return 1 + 0*math.Sqrt(freedom / "},
		{"extends no trial", "adaptive.go", "extensions        = 3", "extensions        = 0"},
		{"does not widen for looking repeatedly", "adaptive_between.go", "const sequential = 1.25", "const sequential = 1.0"},
		{"allows for no error that all samples share", "adaptive_between.go", "const unseen = 0.2", "const unseen = 0.0"},
		{"takes the mean deployment where success falls steeply", "adaptive_between.go", "return max(0, distuv.UnitNormal", "return 0 * max(0, distuv.UnitNormal"},
		{"takes every function as steep", "adaptive_between.go", "return all > 0 && 2*gently >= all", "return all < 0 && 2*gently >= all"},
		{"takes only small falls as gentle", "adaptive_climb.go", "const least, chance = 0.2, 1.5", "const least, chance = 0.0, 1.0"},
		{"starts each climb at the same place", "adaptive_climb.go", "_, share := math.Modf(golden * float64(d.number))", "share := 0.5 + 0*golden"},
		{"leaves steep brackets as wide as the precision", "adaptive_climb.go", "return min(max(p, sd), widest), max(p, sd) / 4", "return min(max(p, sd), widest), max(p, sd)"},
		{"repeats no rate in a long trial", "adaptive_climb.go", "if b.passed && b.failed && !b.pass.verified", "if false && b.passed && b.failed && !b.pass.verified"},
		{"looks for no rare stalls", "adaptive_trial.go", "const stall = 2.4", "const stall = 0.0"},
		{"looks for no cold deployments", "adaptive_climb.go", "if c.cfg.Stateful || c.warmed || d.recalled", "if true || c.cfg.Stateful || c.warmed || d.recalled"},
		{"knows one state", "adaptive_states.go", "if n < 2*fewestOfState {", "if true || n < 2*fewestOfState {"},
		{"tries no deployment again between two states", "adaptive_states.go", "return s.stateful || failed >= fewestOfState", "return true || failed >= fewestOfState"},
		{"does not subtract the growth of the backlog", "adaptive_steady.go", "if n < 4*ends {", "if true || n < 4*ends {"},
		{"never cuts the start of a window", "adaptive_steady.go", "range []float64{0, 1. / 3, 2. / 3} {", "range []float64{0} {"},
		{"accepts any growth below the precision", "adaptive_steady.go", "const sure = 0.1", "const sure = 1.0"},
		{"does not rest after failures", "adaptive_trial.go", "return min(time.Duration(left*float64(time.Second))", "return 0 * min(time.Duration(left*float64(time.Second))"},
	}
}

// patch returns the source text without what the ablation takes out.
func (a ablation) patch(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(a.old)); n != 1 {
		return nil, fmt.Errorf("%s: %q is there %d times, want once", a.file, a.old, n)
	}
	return bytes.Replace(source, []byte(a.old), []byte(a.new), 1), nil
}

// An ablationRecord holds what every ablation changed, with where the figures come
// from.
type ablationRecord struct {
	Servers queue.Set `json:"servers"`
	Runs    int       `json:"runs"` // per family and precision
	source
	Results []ablationFound `json:"results"`
}

// An ablationFound is what the search found at one precision with one rule or constant
// taken out.
type ablationFound struct {
	Name      string               `json:"name"`
	Precision float64              `json:"precision"`
	Families  []queue.FamilyFigure `json:"families"`
}

// find returns what was found, or nil.
func (r ablationRecord) find(name string, precision float64) *ablationFound {
	for i, f := range r.Results {
		if f.Name == name && f.Precision == precision {
			return &r.Results[i]
		}
	}
	return nil
}

// keep adds what was found now. If the untouched search finds something else than it did,
// the record is of another search and begins anew.
func (r *ablationRecord) keep(ctx context.Context, runs int, fresh ablationFound) error {
	if found := r.find(fresh.Name, fresh.Precision); found != nil {
		if reflect.DeepEqual(*found, fresh) {
			return nil
		}
		r.Results = nil
	}
	r.Servers, r.Runs, r.source = queue.Tuning, runs, sourceAt(ctx, time.Now())
	r.Results = append(r.Results, fresh)
	return writeRecord(ablationRecordFile, *r)
}

// searchAblation runs every ablation that the record lacks, and keeps the record after
// each.
func searchAblation(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	runs := ablationRuns
	if text := os.Getenv("RUNS"); text != "" {
		if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
			return nil, fmt.Errorf("RUNS %q: want a positive number", text)
		}
	}
	var record ablationRecord
	if err := readRecord(ablationRecordFile, &record); err != nil {
		return nil, err
	}
	if record.Runs != runs {
		record.Results = nil
	}
	for _, precision := range truthPrecisions() {
		for _, a := range ablations() {
			if a.name == untouched || record.find(a.name, precision) == nil {
				fresh, err := a.run(ctx, dir, precision, runs)
				if err == nil {
					err = record.keep(ctx, runs, fresh)
				}
				if err != nil {
					return nil, err
				}
			}
			found := record.find(a.name, precision)
			fmt.Fprintf(progress, "  precision %g, %s: coverage %.3f\n", precision, a.name, found.coverage())
			rows = append(rows, found.row(record.find(untouched, precision)))
		}
	}
	return rows, nil
}

// run searches the tuning servers with the changed search.
func (a ablation) run(ctx context.Context, dir string, precision float64, runs int) (found ablationFound, err error) {
	found = ablationFound{Name: a.name, Precision: precision}
	overlay, err := a.overlay(dir)
	if err != nil {
		return found, err
	}
	figures := filepath.Join(dir, "figures.json")
	if err := os.Remove(figures); err != nil && !errors.Is(err, os.ErrNotExist) {
		return found, err
	}
	c := exec.CommandContext(ctx, "go", "test", "-count", "1", "-vet", "off", "-timeout", "0", "-overlay", overlay, "./search/sim/queue",
		"-run", "^TestAdaptiveHoldsTheTruth$", "-runs", strconv.Itoa(runs), "-precision", fmt.Sprint(precision), "-figures", figures)
	// The test fails where coverage is too low, which is a result here.
	out, failed := c.CombinedOutput()
	text, err := os.ReadFile(figures)
	if err == nil {
		err = json.Unmarshal(text, &found.Families)
	}
	if err != nil {
		return found, fmt.Errorf("%s: %w: %w\n%s", a.name, failed, err, out)
	}
	return found, nil
}

// overlay writes the changed source and the file that lets the go command use it in
// place of the committed one.
func (a ablation) overlay(dir string) (string, error) {
	replace := map[string]string{}
	if a.file != "" {
		path, err := filepath.Abs(filepath.Join("search", "rate", a.file))
		if err != nil {
			return "", err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if source, err = a.patch(source); err != nil {
			return "", err
		}
		replace[path] = filepath.Join(dir, a.file)
		if err := os.WriteFile(replace[path], source, 0o644); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, text, 0o644)
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

// times returns the geometric mean over families of a figure as a multiple of that of
// another search.
func (f ablationFound) times(other *ablationFound, figure func(queue.FamilyFigure) float64) float64 {
	sum := 0.0
	for i, family := range f.Families {
		sum += math.Log(figure(family) / figure(other.Families[i]))
	}
	return math.Exp(sum / float64(len(f.Families)))
}

func (f ablationFound) row(whole *ablationFound) Row {
	ours, theirs := f.coverage(), whole.coverage()
	ratio := ours / theirs
	return Row{
		Name: fmt.Sprintf("search/ablation/%g/%s", f.Precision, f.Name), Ours: &ours, Theirs: &theirs, Unit: "share of runs",
		Against: untouched, Ratio: &ratio, Spread: &[2]float64{ratio, ratio}, Rounds: 1,
	}
}

// ablationSection returns the table of the committed record.
func ablationSection(root string) (string, error) {
	var record ablationRecord
	err := readRecord(filepath.Join(root, ablationRecordFile), &record)
	if err != nil || len(record.Results) == 0 {
		return notRun, err
	}
	grid := [][]string{{"the search", "precision", "coverage", "the lowest family's", "contradictions", "width", "load"}}
	for _, precision := range truthPrecisions() {
		whole := record.find(untouched, precision)
		for _, a := range ablations() {
			f := record.find(a.name, precision)
			if f == nil || whole == nil {
				continue
			}
			worst, contradictions := f.worst(), 0
			for _, family := range f.Families {
				contradictions += family.Contradictions
			}
			grid = append(grid, []string{
				f.Name, fmt.Sprint(precision), fmt.Sprintf("%.3f", f.coverage()),
				fmt.Sprintf("%.3f (`%s`)", float64(worst.Held)/float64(worst.Runs), worst.Family), fmt.Sprint(contradictions),
				fmt.Sprintf("%.2f", f.times(whole, func(f queue.FamilyFigure) float64 { return f.Width })),
				fmt.Sprintf("%.2f", f.times(whole, func(f queue.FamilyFigure) float64 { return f.Load })),
			})
		}
	}
	return fmt.Sprintf("%d searches of each family and precision on the servers `%s`, %s, on %s, by commit `%s`. Width and load are medians of a family, as multiples of those of the search as it is; the geometric mean over families.\n\n%s",
		record.Runs, record.Servers, record.Date, record.Host, record.Commit, papers.Markdown(grid)), nil
}
