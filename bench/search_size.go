package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
	"vitrine/search/size"
)

const (
	sizeFunctions = 50
	sizeWithin    = 0.03 // share of the best true capacity
	sizeMost      = 100  // most deployments for Bayesian optimisation
	sizeThreshold = 0.9
)

// A sizeResult is the result on one function.
type sizeResult struct {
	sizings     int     // of the function; an exhaustive search deploys all of them
	deployments int     // of the model search, until it ended
	reached     float64 // true capacity of the chosen size, as a share of the best
	bayes       int     // deployments of Bayesian optimisation until the first size within sizeWithin
	errors      []float64
}

// searchSize evaluates the model search for the best size: how close it comes to the best size, how
// many deployments it needs, and how well it predicts sizes that it did not try.
func searchSize(ctx context.Context, dir string, progress io.Writer) (_ []Row, err error) {
	peer, peerless := bayesPeer().install(ctx, dir)
	if peerless != nil && !vitrine.IsUnsupported(peerless) {
		return nil, peerless
	}
	var theirs *bayes
	if peerless == nil {
		theirs = &bayes{}
		if theirs.dialogue, err = peer.start(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, theirs.close()) }()
	}
	var all []sizeResult
	for seed := range uint64(sizeFunctions) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s, err := sizeOne(seed, theirs)
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", seed, err)
		}
		fmt.Fprintf(progress, "  function %d: %d sizings, %d deployments to %.3f of the best, predictions off by %.3f; Bayesian optimisation %d\n",
			seed+1, s.sizings, s.deployments, s.reached, median(s.errors), s.bayes)
		all = append(all, s)
	}
	rows, err := sizeRows(all, theirs != nil)
	if peerless != nil {
		rows = append(rows, Row{Name: "search/size/bayes", Reason: peerless.Error()})
	}
	return rows, err
}

// sizeOne searches one function with the model, and with the peer unless it is nil.
func sizeOne(seed uint64, peer *bayes) (s sizeResult, err error) {
	c := sim.DrawCluster(seed)
	sizings := c.Sizings()
	s.sizings = len(sizings)
	truth := func(z vitrine.Sizing) float64 { return c.Capacity(z, sizeThreshold) }
	best := 0.0
	for _, z := range sizings {
		best = max(best, truth(z))
	}
	search, err := size.NewModel(c.Space, size.ModelConfig{Objective: size.MostCapacity, Seed: 1})
	if err != nil {
		return s, err
	}
	var history []vitrine.Measured
	for step := search.Next(nil); !step.Done; step = search.Next(history) {
		if len(history) > s.sizings {
			return s, errors.New("the search did not end")
		}
		m := measureSize(c, step.Sizing, step.Again)
		m.Again = step.Again
		history = append(history, m)
	}
	s.deployments = len(history)
	chosen, why := search.(size.Chooser).Choose(history)
	if chosen < 0 {
		return s, errors.New(why)
	}
	s.reached = truth(history[chosen].Sizing) / best
	if s.errors, err = predictionErrors(c.Space, history, truth); err != nil || peer == nil {
		return s, err
	}
	s.bayes, err = peer.search(c, sizings, seed,
		func(z vitrine.Sizing) float64 { return measureSize(c, z, false).Capacities[0].Rate },
		func(z vitrine.Sizing) bool { return truth(z) >= (1-sizeWithin)*best }, min(sizeMost, s.sizings))
	return s, err
}

// measureSize measures the capacity of one sizing by bisection, as one deployment would. again
// selects another random seed.
func measureSize(c sim.Cluster, z vitrine.Sizing, again bool) vitrine.Measured {
	cfg := rate.Config{Min: 5, Max: 20_000, Duration: 10 * time.Second, Repeat: 3, Thresholds: []float64{sizeThreshold}, Seed: 1}
	f := *c.Function
	if again {
		f.Seed++
	}
	m, _ := f.Measure(z, rate.NewBisect(cfg), cfg)
	return m
}

// predictionErrors returns the relative errors of the predictions for sizings that were not
// measured.
func predictionErrors(space size.Space, history []vitrine.Measured, truth func(vitrine.Sizing) float64) ([]float64, error) {
	fit, err := size.NewFit(space, history, 0, 1)
	if err != nil {
		return nil, err
	}
	var errs []float64
	for _, z := range fit.Sizings() {
		tried := slices.ContainsFunc(history, func(m vitrine.Measured) bool { return m.Sizing.String() == z.String() })
		if p, ok := fit.Predict(z); ok && !tried {
			errs = append(errs, math.Abs(p.Rate/truth(z)-1))
		}
	}
	return errs, nil
}

func sizeRows(all []sizeResult, compared bool) (rows []Row, err error) {
	var within float64
	var exhaustive, peer Pairs
	var errs, middles []float64
	for _, s := range all {
		if s.reached >= 1-sizeWithin {
			within++
		}
		exhaustive.Ours, exhaustive.Theirs = append(exhaustive.Ours, float64(s.deployments)), append(exhaustive.Theirs, float64(s.sizings))
		peer.Ours, peer.Theirs = append(peer.Ours, float64(s.deployments)), append(peer.Theirs, float64(s.bayes))
		errs, middles = append(errs, s.errors...), append(middles, median(s.errors))
	}
	few, err := exhaustive.row("search/size/deployments", "deployments", "exhaustive search", "<= 0.1")
	if err != nil {
		return nil, err
	}
	functions := float64(len(all))
	rows = []Row{
		newRow("search/size/within", "functions", "all functions", ">= 0.95", within, functions, within/functions, nil, len(all)),
		few,
		newRow("search/size/prediction", "median error", "the true capacity", "<= 0.10", median(errs), 1, median(errs), middles, len(all)),
	}
	if !compared {
		return rows, nil
	}
	fewer, err := peer.row("search/size/bayes", "deployments",
		"Gaussian process and expected improvement (scikit-learn "+scikitVersion+"), stopped by an oracle", "<= 0.99")
	return append(rows, fewer), err
}
