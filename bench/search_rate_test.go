package main

import (
	"math"
	"testing"

	"vitrine/internal/hosttest"
	"vitrine/search/sim"
)

// TestMLRsearchAgrees compares our mlr with the MLRsearch package on the same
// functions. Load and errors must be about the same.
func TestMLRsearchAgrees(t *testing.T) {
	dir := t.TempDir()
	from, err := mlrsearchPeer().install(t.Context(), dir)
	hosttest.Need(t, err)
	const functions = 40
	for _, g := range grounds() {
		theirs, end, err := peerScorer(t.Context(), g, from)
		if err != nil {
			t.Fatal(err)
		}
		ours := ownScorer(mlrSearch, g)
		var a, b sim.Scores
		for i := range functions {
			x, err := ours(i)
			if err != nil {
				t.Fatal(err)
			}
			y, err := theirs(i)
			if err != nil {
				t.Fatal(err)
			}
			if y.Trials == 0 || y.Load < 10 || y.Wall < y.Load {
				t.Fatalf("%s: MLRsearch took %d trials, %g s of load, %g s in all", g.shape, y.Trials, y.Load, y.Wall)
			}
			a, b = append(a, x), append(b, y)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		if ratio := a.Mean(sim.Load) / b.Mean(sim.Load); ratio < 0.8 || ratio > 1.25 {
			t.Errorf("%s, overhead %s: our load is %.2f of MLRsearch's", g.shape, g.overhead, ratio)
		}
		if own, other := a.Quantile(0.9, sim.Error), b.Quantile(0.9, sim.Error); own > 1.5*other+0.005 {
			t.Errorf("%s, overhead %s: 90%% of errors below %.3f, MLRsearch's below %.3f", g.shape, g.overhead, own, other)
		}
	}
}

// TestRowNeedsNoWorseError checks that a search with lower cost but larger errors misses the aim.
func TestRowNeedsNoWorseError(t *testing.T) {
	g := grounds()[0]
	scores := func(load, miss float64) map[ground]sim.Scores {
		all := make(sim.Scores, rateFunctions)
		for i := range all {
			all[i] = sim.Score{Load: load, Error: miss}
		}
		return map[ground]sim.Scores{g: all}
	}
	for miss, holds := range map[float64]bool{0.01: true, 0.02: true, 0.021: false, math.Inf(1): false} {
		c := compared{ourSearch: scores(5, miss), rampSearch: scores(100, 0.02)}
		row, err := c.against("x", ourSearch, rampSearch, []ground{g}, "load-s", "<= 0.1", sim.Load)
		if err != nil || *row.Ratio != 0.05 || row.Rounds != rateRounds || *row.Holds != holds {
			t.Errorf("error %g: %s, %v", miss, encode(t, row), err)
		}
	}
}
