package main

import (
	"fmt"
	"math"

	"vitrine/search/sim/queue"
)

const (
	truthConfidence = 0.95
	truthAim        = ">= 0.01" // of the probability that so few intervals contain the truth
	truthWidth      = "<= 1.5"  // relative to the oracle's width
)

// of returns the runs of a search, in order.
func (t *truthBench) of(precision float64, search string) (all []truthRun) {
	for run := range t.runs {
		if r, done := t.done[truthKey{precision, run, search}]; done {
			all = append(all, r)
		}
	}
	return all
}

func covered(r truthRun) bool      { return r.Covered }
func contradicted(r truthRun) bool { return r.Contradiction != "" }

// coverageRow tests the share of intervals that hold the truth.
func coverageRow[T any](name string, runs []T, holds func(T) bool, aim string) Row {
	held := countRuns(runs, holds)
	p := queue.TooFew(held, len(runs), truthConfidence)
	return newRow(name, "share of runs", "0.95; the ratio is the probability of so few, by the exact binomial test", aim,
		float64(held)/float64(len(runs)), truthConfidence, p, nil, len(runs))
}

// rows returns the figures of one precision.
func (t *truthBench) rows(precision float64) []Row {
	name := func(what string) string { return fmt.Sprintf("%s/%s/%g/%s", t.kind.name, t.family, precision, what) }
	ours := t.of(precision, ourSearch)
	n := float64(countRuns(ours, contradicted))
	rows := []Row{
		coverageRow(name("coverage"), ours, covered, truthAim),
		newRow(name("contradictions"), "intervals", "none that excludes the bracket of its trials", "<= 0", n, 0, n, nil, len(ours)),
		ratioOf(name("width"), "of the capacity", "median of an oracle that knows the family, with as much load and as many deployments", truthWidth,
			values(ours, truthRun.width), values(ours, func(r truthRun) float64 { return r.Oracle })),
		ratioOf(name("width/asked"), "of the capacity", "the precision asked for", "",
			values(ours, truthRun.width), values(ours, func(r truthRun) float64 { return r.Precision })),
	}
	return append(rows, t.peerRows(precision)...)
}

// peerRows returns rows that compare cost and error of our search with those of searches that claim
// no confidence.
func (t *truthBench) peerRows(precision float64) (rows []Row) {
	for i, search := range []string{mlrSearch, peerSearch, defaultPeerSearch} {
		theirs := t.of(precision, search)
		if len(theirs) == 0 {
			continue
		}
		var ours []truthRun // on the same servers, with the same random numbers
		for _, r := range theirs {
			ours = append(ours, t.done[truthKey{precision, r.Run, ourSearch}])
		}
		for _, f := range []struct {
			name, unit string
			of         func(truthRun) float64
		}{
			{"load", "load-s", func(r truthRun) float64 { return r.Load }},
			{"wall", "wall-s", func(r truthRun) float64 { return r.Wall }},
			{"error", "|ln(estimate/truth)|", truthRun.error},
		} {
			name := fmt.Sprintf("%s/%s/%g/%s/%s", t.kind.name, t.family, precision, []string{"mlr", "mlrsearch", "mlrsearch-defaults"}[i], f.name)
			rows = append(rows, ratioOf(name, f.unit, search, "", values(ours, f.of), values(theirs, f.of)))
		}
	}
	return rows
}

// ratioOf returns a row with the ratio of the medians, where Pairs.row has the median of the rounds'
// ratios. Row.Rounds is the number of runs. The spread is over up to ten rounds of equally many runs.
// Searches that found nothing have an infinite error. If a median or the ratio is not finite, the row
// has a reason in place of figures.
func ratioOf(name, unit, against, aim string, ours, theirs []float64) Row {
	rounds := min(10, len(ours))
	ratio := func(a, b []float64) (r float64, finite bool) {
		r = median(a) / median(b)
		return r, !math.IsNaN(r) && !math.IsInf(r, 0) && !math.IsInf(median(b), 0)
	}
	all, finite := ratio(ours, theirs)
	if !finite {
		return Row{Name: name, Unit: unit, Aim: aim, Reason: fmt.Sprintf("median %g against %g", median(ours), median(theirs))}
	}
	var ratios []float64
	for k := range rounds {
		from, to := k*len(ours)/rounds, (k+1)*len(ours)/rounds
		if r, finite := ratio(ours[from:to], theirs[from:to]); finite {
			ratios = append(ratios, r)
		}
	}
	return newRow(name, unit, against, aim, median(ours), median(theirs), all, ratios, len(ours))
}

// describe prints a summary of the runs at a precision.
func (t *truthBench) describe(precision float64) {
	for _, search := range truthSearches() {
		runs := t.of(precision, search)
		if len(runs) == 0 {
			continue
		}
		middle := func(figure func(truthRun) float64) float64 { return median(values(runs, figure)) }
		mean := 0.0
		for _, r := range runs {
			mean += math.Log(r.Rate/r.Truth) / float64(len(runs))
		}
		held := countRuns(runs, covered)
		fmt.Fprintf(t.progress, "  %s, precision %g: %s: %d of %d intervals hold the truth (p %.2g), %d contradict their trials; medians: width %.3f, oracle's %.3f, error %.4f, %.0f trials, %.0f deployments, %.0f s of load, %.0f s in all; bias %+.4f\n",
			t.family, precision, search, held, len(runs), queue.TooFew(held, len(runs), truthConfidence), countRuns(runs, contradicted),
			middle(truthRun.width), middle(func(r truthRun) float64 { return r.Oracle }), middle(truthRun.error),
			middle(func(r truthRun) float64 { return float64(r.Trials) }), middle(func(r truthRun) float64 { return float64(r.Deployments) }),
			middle(func(r truthRun) float64 { return r.Load }), middle(func(r truthRun) float64 { return r.Wall }), mean)
	}
}
