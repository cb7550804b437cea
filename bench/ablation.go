package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Searches per family for each rule and for each constant. Constants get fewer, because they are
// many.
const rulesRuns, constantsRuns = 20, 10

// constantsPrecision is the only precision at which constants get other values.
const constantsPrecision = 0.1

// An ablation is the adaptive search with one rule switched off or one constant changed. It
// replaces one piece of the search's source text.
type ablation struct {
	name     string // what the changed search does, or the constant and its value
	file     string // in search/rate
	old, new string
	in       setting
	under    []change // replacements of the setting
	runs     int      // searches per family
}

// A change replaces one piece of source text.
type change struct {
	File string `json:"file"` // below search/
	Old  string `json:"old"`
	New  string `json:"new"`
}

// untouched names the unchanged search, the baseline of every ablation.
const untouched = "the search as it is"

// A rule is a behaviour of the adaptive search that one replacement in its source text switches
// off.
type rule struct{ without, file, old, new string }

// rules returns the unchanged search, and then one search without each rule.
func rules() (all []ablation) {
	for _, r := range []rule{
		{without: untouched},
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
		{"looks for no cold deployments", "adaptive_climb.go", "if c.warmed || d.recalled", "if true || c.warmed || d.recalled"},
		{"knows one state", "adaptive_states.go", "if n < 2*fewestOfState {", "if true || n < 2*fewestOfState {"},
		{"tries no deployment again between two states", "adaptive_states.go", "return s.stateful || failed >= fewestOfState", "return true || failed >= fewestOfState"},
		{"does not subtract the growth of the backlog", "adaptive_steady.go", "if n < 4*ends {", "if true || n < 4*ends {"},
		{"never cuts the start of a window", "adaptive_steady.go", "range []float64{0, 1. / 3, 2. / 3} {", "range []float64{0} {"},
		{"accepts any growth below the precision", "adaptive_steady.go", "const sure = 0.1", "const sure = 1.0"},
		{"does not rest after failures", "adaptive_trial.go", "return min(time.Duration(left*float64(time.Second))", "return 0 * min(time.Duration(left*float64(time.Second))"},
	} {
		all = append(all, ablation{name: r.without, file: r.file, old: r.old, new: r.new, runs: rulesRuns})
	}
	return all
}

// tried returns for each setting the unchanged search, and then one search per constant and value.
func tried() (all []ablation) {
	for _, in := range settings() {
		all = append(all, in.whole())
		for _, c := range constants() {
			if c.in == in {
				all = append(all, c.at(c.lower), c.at(c.higher))
			}
		}
	}
	return all
}

// ablations returns the searches that run at the precision. Constants are tried only at
// constantsPrecision.
func ablations(precision float64) []ablation {
	if precision == constantsPrecision {
		return append(tried(), rules()...)
	}
	return rules()
}

// whole returns the baseline of the ablation: the unchanged search in the ablation's setting.
func (a ablation) whole() ablation {
	return ablation{name: untouched, in: a.in, under: a.under, runs: a.runs}
}

// title returns PRECISION/SETTING/NAME. The ordinary setting is left out.
func (a ablation) title(precision float64) string {
	parts := []string{fmt.Sprint(precision), string(a.in), a.name}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "/")
}

// changes returns the replacements of the setting, and then the ablation's own.
func (a ablation) changes() []change {
	if a.file == "" {
		return a.under
	}
	return append(slices.Clone(a.under), change{"rate/" + a.file, a.old, a.new})
}

// patch returns the source text with the replacement. It fails unless the old text occurs exactly
// once.
func (c change) patch(source []byte) ([]byte, error) {
	if n := bytes.Count(source, []byte(c.Old)); n != 1 {
		return nil, fmt.Errorf("%s: %q occurs %d times, want once", c.File, c.Old, n)
	}
	return bytes.Replace(source, []byte(c.Old), []byte(c.New), 1), nil
}

// searchAblation runs every ablation that the record lacks, one on each CPU, and writes the record
// after each of them. Results for another state of search/ are dropped. The environment variable
// ONLY is a regular expression that selects ablations by title.
func searchAblation(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	only, err := regexp.Compile(os.Getenv("ONLY"))
	if err != nil {
		return nil, fmt.Errorf("ONLY: %w", err)
	}
	record, err := readAblations(ablationRecordFile)
	if err != nil {
		return nil, err
	}
	from, err := ablationSourceAt(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	record = record.of(from.Search)
	var lock sync.Mutex
	group, limited := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for _, precision := range truthPrecisions() {
		for i, a := range ablations(precision) {
			if record.find(a, precision) != nil || !only.MatchString(a.title(precision)) {
				continue
			}
			own := filepath.Join(dir, fmt.Sprintf("%g-%d", precision, i))
			group.Go(func() error {
				found, err := a.run(limited, own, precision)
				if err != nil {
					return err
				}
				lock.Lock()
				defer lock.Unlock()
				fmt.Fprintf(progress, "  %s: coverage %.3f\n", a.title(precision), found.coverage())
				record = append(record, found)
				return record.write(ablationRecordFile)
			})
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for _, precision := range truthPrecisions() {
		for _, a := range ablations(precision) {
			if f, whole := record.find(a, precision), record.find(a.whole(), precision); f != nil && whole != nil {
				rows = append(rows, f.row(a.title(precision), whole))
			}
		}
	}
	return rows, nil
}

// run searches the tuning servers with the changed search, in a test process of its own. dir must
// not be shared with another ablation.
func (a ablation) run(ctx context.Context, dir string, precision float64) (found ablationFound, err error) {
	found = ablationFound{Name: a.name, Setting: a.in, Precision: precision, Runs: a.runs, Changes: a.changes()}
	if found.ablationSource, err = ablationSourceAt(ctx, time.Now()); err != nil {
		return found, err
	}
	overlay, err := a.overlay(dir)
	if err != nil {
		return found, err
	}
	figures := filepath.Join(dir, "figures.json")
	c := exec.CommandContext(ctx, "go", "test", "-count", "1", "-vet", "off", "-timeout", "0", "-overlay", overlay, "./search/sim/queue",
		"-run", "^TestAdaptiveHoldsTheTruth$", "-runs", strconv.Itoa(a.runs), "-precision", fmt.Sprint(precision), "-figures", figures)
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	// The go command runs the test in a child process. Killing the go command alone would leave the
	// child running, and CombinedOutput would wait for it.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	// The test fails if coverage is too low. Only missing figures are an error here.
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

// overlay writes the changed sources below dir. It returns the path of the file for the go
// command's -overlay option, which puts them in place of the committed sources.
func (a ablation) overlay(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for i, c := range a.changes() {
		path, err := filepath.Abs(filepath.Join("search", c.File))
		if err != nil {
			return "", err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		if source, err = c.patch(source); err != nil {
			return "", err
		}
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d-%s", i, filepath.Base(c.File)))
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
