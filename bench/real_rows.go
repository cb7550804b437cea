package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"vitrine"
	"vitrine/search/rate"
)

// A judged is a run with the capacity that its neighbouring blocks measured.
type judged struct {
	realRecord
	beside  reference // from the blocks before and after the run in its session, pooled
	between bool      // the session has blocks before and after the run; otherwise only on one side
}

// covered reports whether the run's interval contains the capacity of the neighbouring blocks.
func (j judged) covered() bool {
	return j.Capacity.Low <= j.beside.Rate && j.beside.Rate <= j.Capacity.High
}

const normal95 = 1.96 // half width of a 95% interval, in standard deviations

// agrees is like covered but allows for the error of the blocks, which is independent of the run's
// error. It reports whether the two errors together explain the difference.
func (j judged) agrees() bool {
	if !j.found() {
		return false
	}
	half := math.Log(j.Capacity.High / j.Capacity.Rate)
	if j.beside.Rate < j.Capacity.Rate {
		half = math.Log(j.Capacity.Rate / j.Capacity.Low)
	}
	return math.Abs(j.difference()) <= math.Hypot(half, normal95*j.beside.SD)
}

// found reports whether the run found a capacity.
func (j judged) found() bool { return j.Capacity.Rate > 0 }

// withCapacity returns the runs that found a capacity.
func withCapacity(runs []judged) []judged {
	return slices.DeleteFunc(slices.Clone(runs), func(j judged) bool { return !j.found() })
}

// excludes reports whether the intervals of the two runs have no rate in common.
func (j judged) excludes(o judged) bool {
	return j.Capacity.High < o.Capacity.Low || o.Capacity.High < j.Capacity.Low
}

// disjoint reports for each pair of runs of one plan on one host whether their intervals exclude each
// other. The second list has only the pairs of successive runs.
func disjoint(runs []judged) (all, successive []bool) {
	place := func(j judged) string { return j.Plan + " " + j.host() }
	for _, at := range distinct(runs, place) {
		own := slices.DeleteFunc(withCapacity(runs), func(j judged) bool { return place(j) != at })
		for i, j := range own {
			for k, later := range own[i+1:] {
				all = append(all, j.excludes(later))
				if k == 0 {
					successive = append(successive, j.excludes(later))
				}
			}
		}
	}
	return all, successive
}

// difference returns the logarithm of the run's estimate over that of the blocks.
func (j judged) difference() float64 { return math.Log(j.Capacity.Rate / j.beside.Rate) }

func (j judged) error() float64 { return math.Abs(j.difference()) }
func (j judged) load() float64  { return j.Load }
func (j judged) wall() float64  { return j.Wall }

// statedSD returns the standard deviation that the run's interval states, as a share of its
// estimate.
func (j judged) statedSD() float64 {
	return (j.Capacity.High - j.Capacity.Low) / j.Capacity.Rate / 2 / normal95
}

// runToRun returns the standard deviation between the estimates of runs on one host, as a share of the
// estimate; NaN: no host has two runs. Hosts differ by much more than runs do.
func runToRun(runs []judged) float64 {
	squares, free := 0.0, 0.0
	for _, host := range hostsOf(runs) {
		own := onHost(runs, host)
		if n := float64(len(own)); n > 1 {
			squares += (n - 1) * stat.Variance(values(own, func(j judged) float64 { return math.Log(j.Capacity.Rate) }), nil)
			free += n - 1
		}
	}
	return math.Sqrt(squares / free)
}

// hostsOf returns the hosts of runs, in the order of the runs.
func hostsOf(runs []judged) []string { return distinct(runs, judged.host) }

func onHost(runs []judged, host string) []judged {
	return slices.DeleteFunc(slices.Clone(runs), func(j judged) bool { return j.host() != host })
}

// judge pairs the runs of a search with their neighbouring blocks. without is the number of runs
// that have no blocks, or whose blocks do not enclose the capacity.
func (b *realBench) judge(search string) (runs []judged, without int) {
	for i, r := range b.all {
		if r.Kind != realRun || r.Search != search || r.Number > b.counts.Runs {
			continue
		}
		before, after := b.nearest(r.Session, i, -1), b.nearest(r.Session, i, 1)
		ref, ok := newReference(slices.Concat(before, after))
		if !ok || r.Capacity == nil {
			without++
			continue
		}
		runs = append(runs, judged{r, ref, len(before) > 0 && len(after) > 0})
	}
	return runs, without
}

// nearest returns the trials of the session's next blocks before or after the record, up to another
// run. They are several if a block missed the capacity and another one followed.
func (b *realBench) nearest(session string, from, step int) (trials []realTrial) {
	for i := from + step; i >= 0 && i < len(b.all); i += step {
		switch r := b.all[i]; {
		case r.Session != session:
		case r.Kind == realBlock:
			trials = append(trials, r.Trials...)
		case len(trials) > 0:
			return trials
		}
	}
	return trials
}

// blocks returns the trials of the blocks on a host that runs are compared with, and the estimate of each
// of these blocks.
func (b *realBench) blocks(host string) (trials []realTrial, each []reference) {
	hasRun := func(r realRecord) bool {
		return slices.ContainsFunc(b.all, func(o realRecord) bool { return o.Kind == realRun && o.Session == r.Session })
	}
	for _, r := range b.all {
		if r.Kind != realBlock || r.host() != host || !hasRun(r) {
			continue
		}
		trials = append(trials, r.Trials...)
		if ref, ok := newReference(r.Trials); ok {
			each = append(each, ref)
		}
	}
	return trials, each
}

// rows returns the function's figures.
func (b *realBench) rows() []Row {
	name := func(what string) string { return "real/" + b.function.Name + "/" + what }
	ours, without := b.judge(rate.Adaptive)
	if len(ours) == 0 {
		return []Row{{Name: name("coverage"), Unit: "share of runs", Aim: truthAim,
			Reason: fmt.Sprintf("no run between blocks is in %s (%d without blocks that enclose the capacity)", b.file, without)}}
	}
	b.summarize(rate.Adaptive, ours, without)
	rows := []Row{
		coverageRow(name("coverage"), ours, judged.covered, truthAim),
		coverageRow(name("coverage/with-error-of-blocks"), ours, judged.agrees, ""),
	}
	ours = withCapacity(ours)
	if len(ours) == 0 {
		return rows
	}
	return slices.Concat(rows, b.estimateRows(name, ours), b.costRows(name, ours), b.peerRows(name, ours))
}

// estimateRows returns rows about the estimates: their error, their differences from the blocks on each
// host, their spread, and the drift of the blocks.
func (b *realBench) estimateRows(name func(string) string, ours []judged) (rows []Row) {
	for i, host := range hostsOf(ours) {
		of := name
		if i > 0 {
			of = func(what string) string { return name(fmt.Sprintf("host-%d/%s", i+1, what)) }
		}
		rows = append(rows, b.hostRows(of, host, onHost(ours, host))...)
	}
	asked := b.counts.Precision
	errs := values(ours, judged.error)
	rows = append(rows, newRow(name("error"), "|ln(estimate/blocks)|", "the precision asked for", "", median(errs), asked, median(errs)/asked,
		values(errs, func(e float64) float64 { return e / asked }), len(ours)))
	if sd := runToRun(ours); !math.IsNaN(sd) {
		stated := median(values(ours, judged.statedSD))
		rows = append(rows, newRow(name("run-to-run"), "of the capacity", "the standard deviation that the runs' intervals state", "", sd, stated, sd/stated, nil, len(ours)))
	}
	return rows
}

// hostRows returns the mean of the runs on a host against its blocks, and the drift of these blocks.
func (b *realBench) hostRows(name func(string) string, host string, ours []judged) []Row {
	trials, each := b.blocks(host)
	whole, _ := newReference(trials)
	ratios := values(ours, func(j judged) float64 { return j.Capacity.Rate / whole.Rate })
	mean := stat.Mean(ratios, nil)
	rows := []Row{newRow(name("mean"), b.workload.Unit,
		fmt.Sprintf("all blocks together, [%.4g, %.4g] with %d deployments", whole.Low, whole.High, whole.Deployments), "",
		mean*whole.Rate, whole.Rate, mean, ratios, len(ours))}
	if len(each) > 1 {
		rows = append(rows, driftRow(name("drift"), b.workload.Unit, each))
	}
	return rows
}

// costRows returns rows that compare the cost of a run with the cost of a block.
func (b *realBench) costRows(name func(string) string, ours []judged) (rows []Row) {
	for _, cost := range []struct {
		name, unit string
		of         func(judged) float64
	}{{"load", "load-s", judged.load}, {"wall", "wall-s", judged.wall}} {
		block := median(b.costs(cost.unit))
		rows = append(rows, ratioOf(name(cost.name), cost.unit, "a block", "", values(ours, cost.of), slices.Repeat([]float64{block}, len(ours))))
	}
	return rows
}

// costs returns the cost of each block in the unit: load-s or wall-s.
func (b *realBench) costs(unit string) (all []float64) {
	for _, r := range b.all {
		if r.Kind == realBlock {
			all = append(all, map[string]float64{"load-s": r.Load, "wall-s": r.Wall}[unit])
		}
	}
	return all
}

// driftRow returns a row with the ratio of the last block's estimate to the first's. Its spread is
// over the ratios of each block to the one before.
func driftRow(name, unit string, each []reference) Row {
	var steps []float64
	for i, ref := range each[1:] {
		steps = append(steps, ref.Rate/each[i].Rate)
	}
	first, last := each[0].Rate, each[len(each)-1].Rate
	return newRow(name, unit, "the first block; the spread is of each block to the one before", "", last, first, last/first, steps, len(each))
}

// peerRows returns rows that compare cost and error of our mlr with those of the adaptive runs with
// the same numbers.
func (b *realBench) peerRows(name func(string) string, ours []judged) (rows []Row) {
	for i, search := range []string{rate.MLR, mlrDefault} {
		found, without := b.judge(search)
		var same, theirs []judged
		for _, j := range found {
			if k := slices.IndexFunc(ours, func(o judged) bool { return o.Number == j.Number }); k >= 0 && j.found() {
				same, theirs = append(same, ours[k]), append(theirs, j)
			}
		}
		if len(theirs) == 0 {
			continue
		}
		b.summarize(search, theirs, without)
		for _, f := range []struct {
			name, unit string
			of         func(judged) float64
		}{{"load", "load-s", judged.load}, {"wall", "wall-s", judged.wall}, {"error", "|ln(estimate/blocks)|", judged.error}} {
			rows = append(rows, ratioOf(name([]string{"mlr/", "mlr-default/"}[i]+f.name), f.unit, search, "", values(same, f.of), values(theirs, f.of)))
		}
	}
	return rows
}

// summarize prints a summary of a search.
func (b *realBench) summarize(search string, runs []judged, without int) {
	held, agree, disturbed := countRuns(runs, judged.covered), countRuns(runs, judged.agrees), 0
	for _, j := range runs {
		disturbed += j.Disturbed
	}
	middle := func(of func(judged) float64) float64 { return median(values(runs, of)) }
	fmt.Fprintf(b.progress, "  %s: %s: %d of %d intervals contain the capacity of the neighbouring blocks (%d with the blocks' error), %d runs have no such blocks; medians: difference %+.4f, width %.3f, %.0f s of load, %.0f s in all; %d disturbed trials\n",
		b.function.Name, search, held, len(runs), agree, without, middle(judged.difference),
		middle(func(j judged) float64 { return (j.Capacity.High - j.Capacity.Low) / j.Capacity.Rate }), middle(judged.load), middle(judged.wall), disturbed)
}

// describe prints the result of a block or a run.
func (b *realBench) describe(r realRecord) {
	spent := fmt.Sprintf("%d trials, %d disturbed, %.0f s of load, %.0f s in all", len(r.Trials), r.Disturbed, r.Load, r.Wall)
	if r.Kind != realBlock {
		c := r.Capacity
		fmt.Fprintf(b.progress, "  %s %s %d: %.4g [%.4g, %.4g] %s, %s; %s\n", r.Kind, r.Search, r.Number, c.Rate, c.Low, c.High, b.workload.Unit, spent, r.Why)
		return
	}
	ref, ok := newReference(r.Trials)
	if !ok {
		side := "above"
		if ref.Rate < r.Centre {
			side = "below"
		}
		fmt.Fprintf(b.progress, "  block: the capacity is %s %.4g %s, %s\n", side, ref.Rate, b.workload.Unit, spent)
		return
	}
	fmt.Fprintf(b.progress, "  block: %.4g [%.4g, %.4g] %s, %s\n", ref.Rate, ref.Low, ref.High, b.workload.Unit, spent)
}

// realPooled tests the coverage over all functions. It measures nothing and uses the existing
// records.
func realPooled(_ context.Context, progress io.Writer) ([]Row, error) {
	counts, err := readRealCounts(func(string) string { return "" })
	if err != nil {
		return nil, err
	}
	counts.For, counts.Runs = time.Duration(0), math.MaxInt
	version := searchVersion()
	var all []judged
	for _, f := range realFunctions() {
		b, err := newRealBench(f, counts, version, nil, progress)
		if err != nil {
			return nil, err
		}
		runs, _ := b.judge(rate.Adaptive)
		all = append(all, runs...)
	}
	if len(all) == 0 {
		return nil, &vitrine.Unsupported{What: "coverage on real functions", Missing: "no runs are in " + realFolder, Do: "measure them by make bench BENCH=real/ims and so on"}
	}
	return []Row{
		coverageRow("real/pooled/coverage", all, judged.covered, truthAim),
		coverageRow("real/pooled/coverage/with-error-of-blocks", all, judged.agrees, ""),
	}, nil
}
