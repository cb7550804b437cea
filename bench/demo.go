package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/papers"
	"vitrine/report"
	"vitrine/result"
)

// demoFile stores every demo, so that an interrupted bench can resume. Only demos of one build and one
// host are compared.
const demoFile = "bench/results/demo.jsonl"

const (
	demoRuns  = 5   // in a row
	demoLimit = 300 // s
)

// A demoRecord is the result of one demo.
type demoRecord struct {
	source
	Build   string            `json:"build"` // hash of the program, its arguments and its files
	Began   time.Time         `json:"began"`
	Seconds float64           `json:"seconds"` // of the run; make builds the program before it
	Best    string            `json:"best"`    // size, or "none"
	Why     string            `json:"why"`
	Sizes   []demoSize        `json:"sizes"` // the highest capacity first
	CPU     []report.CallCost `json:"cpu"`   // shown in the report
}

// A demoSize is one size, as vitrine compare prints it.
type demoSize struct {
	Sizing   string `json:"sizing"`
	Relation string `json:"relation"` // to the highest capacity: "best", "tied", "lower" or "unknown"
	vitrine.Capacity
}

// demoBench runs demos in a row and judges whether they agree.
func demoBench(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
	if _, err := cgroup.Detect(); err != nil {
		return nil, err
	}
	args, err := demoArgs(".")
	if err != nil {
		return nil, err
	}
	program, err := product(ctx, dir)
	if err != nil {
		return nil, err
	}
	here := demoRecord{source: sourceAt(ctx, time.Now())}
	if here.Build, err = demoBuild(program, args); err != nil {
		return nil, err
	}
	all, err := collectDemos(demoFile, here, func(number int) (demoRecord, error) {
		return runDemo(ctx, here, program, args, filepath.Join(dir, fmt.Sprint("demo-", number)))
	}, progress)
	if err != nil {
		return nil, err
	}
	return all.rows(), nil
}

// demoArgs returns the arguments of the program in make demo, without the folder of results.
func demoArgs(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if args, found := strings.CutPrefix(line, "DEMO := "); found {
			return strings.Fields(args), nil
		}
	}
	return nil, errors.New("the Makefile does not define DEMO")
}

// demoBuild returns a hash of the program, its arguments and the files among them.
func demoBuild(program string, args []string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, args)
	for _, path := range append([]string{program}, args...) {
		if path != program && filepath.Ext(path) != ".yaml" {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d\n%s", len(text), text)
	}
	return hex.EncodeToString(h.Sum(nil)[:6]), nil
}

// collectDemos returns the demos of the build and host of here. It runs those that the file lacks.
func collectDemos(file string, here demoRecord, run func(number int) (demoRecord, error), progress io.Writer) (demoRecords, error) {
	every, err := readDemos(file)
	if err != nil {
		return nil, err
	}
	all := every.of(here)
	for len(all) < demoRuns {
		number := len(all) + 1
		fmt.Fprintf(progress, "  demo %d of %d, about five minutes\n", number, demoRuns)
		r, err := run(number)
		if err != nil {
			return all, fmt.Errorf("demo %d: %w", number, err)
		}
		if err := appendLine(file, r); err != nil {
			return all, err
		}
		fmt.Fprintf(progress, "  %.0f s; %s: %s; best or tied: %s\n", r.Seconds, r.Best, r.Why, strings.Join(r.alike(), ", "))
		all = append(all, r)
	}
	return all, nil
}

// runDemo runs a demo into the folder out.
func runDemo(ctx context.Context, r demoRecord, program string, args []string, out string) (demoRecord, error) {
	r.Began = time.Now().UTC()
	text, err := interruptible(ctx, program, slices.Concat(args, []string{"--out", out})...).CombinedOutput()
	r.Seconds = time.Since(r.Began).Seconds()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return r, fmt.Errorf("%w: %s", err, text)
	}
	err = r.read(out)
	return r, err
}

// read fills in what the run folder holds.
func (r *demoRecord) read(dir string) error {
	d, err := result.Load(dir)
	if err != nil {
		return err
	}
	if d.Summary == nil {
		return fmt.Errorf("%s has no summary", dir)
	}
	r.Best, r.Why = "none", d.Summary.StoppedBecause
	if best := d.Summary.Optimal; best != nil {
		r.Best, r.Why = best.Sizing, best.Why
	}
	var text bytes.Buffer
	if err := report.CompareJSON(&text, d); err != nil {
		return err
	}
	var compared struct {
		Rows []demoSize `json:"rows"`
	}
	if err := json.Unmarshal(text.Bytes(), &compared); err != nil {
		return err
	}
	r.Sizes = compared.Rows
	r.CPU, err = report.CallCosts(d)
	return err
}

// alike returns the size with the highest capacity, and the sizes that tie with it.
func (r demoRecord) alike() (names []string) {
	for _, z := range r.Sizes {
		if z.Relation == "best" || z.Relation == "tied" {
			names = append(names, z.Sizing)
		}
	}
	return names
}

// demoRecords are demos, the oldest first.
type demoRecords []demoRecord

func readDemos(path string) (demoRecords, error) { return readLines[demoRecord](path) }

// of returns the demos of the same build and host.
func (all demoRecords) of(same demoRecord) demoRecords {
	return slices.DeleteFunc(slices.Clone(all), func(r demoRecord) bool { return r.Build != same.Build || r.Host != same.Host })
}

// shared counts for each size the demos in which it is best or tied, and returns the highest count.
func (all demoRecords) shared() (most int) {
	counts := map[string]int{}
	for _, r := range all {
		for _, name := range r.alike() {
			counts[name]++
			most = max(most, counts[name])
		}
	}
	return most
}

// rows judges at least one demo. With fewer than demoRuns, no aim is met.
func (all demoRecords) rows() []Row {
	few := len(all) < demoRuns
	seconds := values(all, func(r demoRecord) float64 { return r.Seconds / demoLimit })
	longest, agree := slices.Max(seconds), float64(all.shared())
	cpu := Row{Name: "demo/cpu", Unit: "negative slopes", Aim: "<= 0", Reason: "no report shows the CPU per call of a component"}
	var shown []report.CallCost
	for _, r := range all {
		shown = append(shown, r.CPU...)
	}
	if slopes := float64(len(shown)); slopes > 0 {
		negative := float64(countRuns(shown, func(c report.CallCost) bool { return c.PerCall < 0 }))
		cpu = newRow(cpu.Name, cpu.Unit, "slopes that the reports show", cpu.Aim, negative, slopes, negative/slopes, nil, len(all)).unless(few)
	}
	return []Row{
		newRow("demo/seconds", "s, the longest demo", "five minutes", "<= 1", longest*demoLimit, demoLimit, longest, seconds, len(all)).unless(few),
		newRow("demo/agree", "demos", "all; demos in which the same size is best or tied", ">= 1", agree, demoRuns, agree/demoRuns, nil, len(all)),
		cpu,
	}
}

// demoSection returns the page's section: the demos of the build and host that were measured last, or
// notRun.
func demoSection(root string) (string, error) {
	every, err := readDemos(filepath.Join(root, demoFile))
	if err != nil {
		return "", err
	}
	if len(every) == 0 {
		return notRun, nil
	}
	all := every.of(every[len(every)-1])
	origin := fmt.Sprintf("%d of %d demos, %s, on %s, by commit %s.", len(all), demoRuns,
		listed(all, func(r demoRecord) string { return r.Date }), all[0].Host, listed(all, func(r demoRecord) string { return "`" + r.Commit + "`" }))
	parts := []string{origin}
	for _, grid := range [][][]string{all.properties(), all.grid(), all.costs()} {
		if len(grid) > 1 {
			parts = append(parts, strings.TrimSpace(papers.Markdown(grid)))
		}
	}
	return strings.Join(parts, "\n\n"), nil
}

// properties returns the headings and a line for each row.
func (all demoRecords) properties() [][]string {
	lines := [][]string{{"property", "measured", "compared with", "ratio", "aim", "met"}}
	for _, row := range all.rows() {
		line := []string{strings.TrimPrefix(row.Name, "demo/"), row.Reason, "", "", row.Aim, row.holds()}
		if row.Ratio != nil {
			line[1], line[2], line[3] = row.figures()
		}
		lines = append(lines, line)
	}
	return lines
}

// grid returns the headings and a line for each demo.
func (all demoRecords) grid() [][]string {
	lines := [][]string{{"demo began (UTC)", "seconds", "best size, and why", "capacities, calls/s"}}
	for _, r := range all {
		var sizes []string
		for _, z := range r.Sizes {
			sizes = append(sizes, z.text())
		}
		lines = append(lines, []string{
			r.Began.Format(time.DateTime), fmt.Sprintf("%.0f", r.Seconds), fmt.Sprintf("`%s`: %s", r.Best, r.Why), strings.Join(sizes, "; "),
		})
	}
	return lines
}

// text returns the size with its capacity, interval and relation.
func (z demoSize) text() string {
	capacity := "from " + vitrine.Digits(z.Low) + " up"
	if low, high := z.Bounds(); !math.IsInf(high, 1) {
		capacity = fmt.Sprintf("%s [%s, %s]", vitrine.Digits(z.Rate), vitrine.Digits(low), vitrine.Digits(high))
	}
	return fmt.Sprintf("`%s` %s, %s", z.Sizing, capacity, z.Relation)
}

// costs returns the headings and a line for each component of each size: the medians over the demos
// whose report shows its CPU per call, with the lowest and the highest.
func (all demoRecords) costs() [][]string {
	lines := [][]string{{"size", "component", "demos", "CPU per call, ms", "idle CPUs"}}
	type place struct{ sizing, component string }
	var order []place
	found := map[place][]report.CallCost{}
	for _, r := range all {
		for _, c := range r.CPU {
			at := place{c.Sizing, c.Component}
			if found[at] == nil {
				order = append(order, at)
			}
			found[at] = append(found[at], c)
		}
	}
	text := func(figures []float64) string {
		return fmt.Sprintf("%.3g (%.3g to %.3g)", median(figures), slices.Min(figures), slices.Max(figures))
	}
	for _, at := range order {
		lines = append(lines, []string{
			"`" + at.sizing + "`", at.component, fmt.Sprint(len(found[at])),
			text(values(found[at], func(c report.CallCost) float64 { return 1000 * c.PerCall })),
			text(values(found[at], func(c report.CallCost) float64 { return c.Idle })),
		})
	}
	return lines
}
