package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// The functions on which rate searches are compared. Capacities are log-uniform over 100:1, inside
// a range that contains all of them. Slow seconds come in clusters, and overloads linger. The
// functions are the same for every search.
const (
	rateFunctions = 2000
	rateRounds    = 10 // with equally many functions each
	rateLowest    = 100.0
	rateHighest   = 10000.0
	rateTop       = 11500.0 // upper end of the range
	rateNoise     = 0.02
	ratePrecision = 0.05
	rateCoarse    = 0.1 // precision at which our errors are about as large as MLRsearch's
	rateThreshold = 0.9
	rateOverhead  = 5 * time.Second // per trial, on grounds with overhead
)

// A ground is a set of functions of one shape, with the overhead of starting a trial.
type ground struct {
	shape    string
	overhead time.Duration
}

func grounds() []ground {
	return []ground{{sim.Saturating, 0}, {sim.Collapsing, 0}, {sim.Saturating, rateOverhead}, {sim.Collapsing, rateOverhead}}
}

func (g ground) population() sim.Population {
	return sim.Population{Shape: g.shape, Low: rateLowest, High: rateHighest, Noise: rateNoise, Remember: true, Seed: 1}
}

func (g ground) config() rate.Config {
	return rate.Config{Min: rateLowest, Max: rateTop, Duration: 10 * time.Second, Repeat: 1,
		Thresholds: []float64{rateThreshold}, Precision: ratePrecision, Overhead: g.overhead, Seed: 1}
}

// The compared searches.
const (
	ourSearch    = "adaptive"
	coarseSearch = "adaptive, asked for 0.1"
	mlrSearch    = "mlr"
	rampSearch   = "ramp in steps of 1% of the top rate, 10 s, three repeats"
	stoppedRamp  = "the same ramp, each repeat stopped below a success ratio of 0.8"
	bisectSearch = "bisect, 10 s"
	peerSearch   = "MLRsearch " + mlrsearchVersion + ", 1 to 10 s"
)

// ownSearch returns one of our searches and its configuration.
func ownSearch(name string, cfg rate.Config) (rate.Search, rate.Config) {
	switch name {
	case ourSearch:
		return rate.NewAdaptive(cfg), cfg
	case coarseSearch:
		cfg.Precision = rateCoarse
		return rate.NewAdaptive(cfg), cfg
	case mlrSearch:
		return rate.NewMLR(cfg), cfg
	case bisectSearch:
		return rate.NewBisect(cfg), cfg
	case stoppedRamp:
		cfg.Stop = func(o vitrine.Outcome) bool { return o.SuccessRatio() < 0.8 }
	}
	cfg.Increase, cfg.Repeat = rateTop/100, 3
	return rate.NewRamp(cfg), cfg
}

// compared holds the scores by search, then by ground.
type compared map[string]map[ground]sim.Scores

// searchRate compares how much load and time rate searches need. Everything is simulated, so each
// run gives the same result.
//
// MLRsearch is configured to be quick: one trial of the full duration decides on a rate, and it
// skips its warm-up trial at the highest rate. Its estimate is the midpoint of its bounds, and its
// width goal is the precision of our search. Its errors are then larger than ours. A second row
// asks our search for less precision, so that the errors are about equal. The ramp tries every
// rate, as the paper's does; a second row stops it where success is below 0.8.
func searchRate(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	peer, unsupported := mlrsearchPeer().install(ctx, dir)
	if unsupported != nil && !vitrine.IsUnsupported(unsupported) {
		return nil, unsupported
	}
	all := compared{}
	for _, name := range []string{ourSearch, coarseSearch, mlrSearch, rampSearch, stoppedRamp, bisectSearch, peerSearch} {
		if name == peerSearch && unsupported != nil {
			continue
		}
		all[name] = map[ground]sim.Scores{}
		for _, g := range grounds() {
			scores, err := scored(ctx, name, g, func() (scorer, func() error, error) {
				if name == peerSearch {
					return peerScorer(ctx, g, peer)
				}
				return ownScorer(name, g), func() error { return nil }, nil
			})
			if err != nil {
				return nil, err
			}
			all[name][g] = scores
			describe(progress, name, g, scores)
		}
	}
	rows, err = all.rows()
	return rows, errors.Join(err, unsupported)
}

// A scorer scores one search on the i-th function of a ground.
type scorer func(i int) (sim.Score, error)

// scored scores a search on all functions of a ground, in parallel on all CPUs. Each goroutine
// calls begin for a scorer of its own, and ends it.
func scored(ctx context.Context, name string, g ground, begin func() (scorer, func() error, error)) (sim.Scores, error) {
	scores := make(sim.Scores, rateFunctions)
	workers := runtime.GOMAXPROCS(0)
	group, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		group.Go(func() (err error) {
			score, end, err := begin()
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, end()) }()
			for i := w; i < rateFunctions; i += workers {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if scores[i], err = score(i); err != nil {
					return fmt.Errorf("%s on function %d, %s: %w", name, i, g.shape, err)
				}
			}
			return nil
		})
	}
	return scores, group.Wait()
}

func ownScorer(name string, g ground) scorer {
	p := g.population()
	return func(i int) (sim.Score, error) {
		const most = 10_000
		f := p.Function(i)
		search, cfg := ownSearch(name, g.config())
		m := sim.Drive(f, p.Sizing(), search, cfg, sim.Costs{Trial: g.overhead}, most)
		if len(m.History) == most {
			return sim.Score{}, errors.New("the search did not end")
		}
		return sim.Judge(m, f.Capacity(p.Sizing(), rateThreshold)), nil
	}
}

func peerScorer(ctx context.Context, g ground, from venv) (scorer, func() error, error) {
	d, err := from.start(ctx)
	if err != nil {
		return nil, nil, err
	}
	population := g.population()
	return func(i int) (sim.Score, error) {
		return peer{d}.search(population.Function(i), population.Sizing(), g.config())
	}, d.close, nil
}

func describe(out io.Writer, name string, g ground, s sim.Scores) {
	fmt.Fprintf(out, "  %s, %s a trial: %s: %.1f trials, %.0f s of load, %.0f s in all; error %.2f%%, 90%% of them below %.2f%%; intervals hold %.1f%%, median width %.1f%%\n",
		g.shape, g.overhead, name, s.Mean(sim.Trials), s.Mean(sim.Load), s.Mean(sim.Wall),
		100*s.Quantile(0.5, sim.Error), 100*s.Quantile(0.9, sim.Error), 100*s.Coverage(), 100*s.Quantile(0.5, sim.Width))
}

// rows returns the figures of our searches against the others.
func (c compared) rows() ([]Row, error) {
	late := func(shape string) []ground { return []ground{{shape, rateOverhead}} }
	var rows []Row
	for _, r := range []struct {
		name, ours, theirs string
		on                 []ground
		unit               string
		figure             func(sim.Score) float64
		aim                string
	}{
		{"ramp", ourSearch, rampSearch, grounds(), "load-s", sim.Load, "<= 0.1"},
		{"ramp-stopped", ourSearch, stoppedRamp, grounds(), "load-s", sim.Load, ""},
		{"bisect", ourSearch, bisectSearch, grounds(), "load-s", sim.Load, ""},
		{"mlrsearch/saturating", coarseSearch, peerSearch, late(sim.Saturating), "wall-s, 5 s a trial", sim.Wall, "<= 0.7"},
		{"mlrsearch/collapsing", coarseSearch, peerSearch, late(sim.Collapsing), "wall-s, 5 s a trial", sim.Wall, "<= 0.7"},
		{"mlrsearch/precise/saturating", ourSearch, peerSearch, late(sim.Saturating), "wall-s, 5 s a trial", sim.Wall, ""},
		{"mlrsearch/precise/collapsing", ourSearch, peerSearch, late(sim.Collapsing), "wall-s, 5 s a trial", sim.Wall, ""},
		{"mlr", mlrSearch, peerSearch, grounds(), "load-s", sim.Load, ""},
	} {
		if c[r.theirs] == nil {
			continue // this host lacks it; another row gives the reason
		}
		row, err := c.against("search/rate/"+r.name, r.ours, r.theirs, r.on, r.unit, r.aim, r.figure)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	width := func(s sim.Scores) float64 { return s.Quantile(0.5, sim.Width) }
	for _, own := range []struct {
		name, search string
		precision    float64
	}{{"", ourSearch, ratePrecision}, {"/coarse", coarseSearch, rateCoarse}} {
		rows = append(rows,
			c.interval("search/rate/coverage"+own.name, own.search, "share of functions", "every interval holds the truth", ">= 0.94", 1, sim.Scores.Coverage),
			c.interval("search/rate/width"+own.name, own.search, "of the capacity", "the precision asked for", "<= 1", own.precision, width))
	}
	return rows, nil
}

// against compares the cost of two searches, as the mean over a round's functions. The aim is
// missed if our 90th-percentile error is larger than theirs.
func (c compared) against(name, ours, theirs string, on []ground, unit, aim string, figure func(sim.Score) float64) (Row, error) {
	var p Pairs
	for round := range rateRounds {
		a, b := c.part(ours, on, round), c.part(theirs, on, round)
		p.Ours, p.Theirs = append(p.Ours, a.Mean(figure)), append(p.Theirs, b.Mean(figure))
	}
	own, other := c.all(ours, on).Quantile(0.9, sim.Error), c.all(theirs, on).Quantile(0.9, sim.Error)
	against := fmt.Sprintf("%s; 90%% of errors below %.2f%%, theirs below %.2f%%", theirs, 100*own, 100*other)
	row, err := p.row(name, unit, against, aim)
	return row.unless(own > other), err
}

// part returns the scores of one round.
func (c compared) part(name string, on []ground, round int) sim.Scores {
	const size = rateFunctions / rateRounds
	var part sim.Scores
	for _, g := range on {
		part = append(part, c[name][g][round*size:(round+1)*size]...)
	}
	return part
}

func (c compared) all(name string, on []ground) sim.Scores {
	var all sim.Scores
	for _, g := range on {
		all = append(all, c[name][g]...)
	}
	return all
}

// interval returns a row about a search's intervals over all functions. The spread is over the
// grounds.
func (c compared) interval(name, search, unit, against, aim string, theirs float64, of func(sim.Scores) float64) Row {
	ours := of(c.all(search, grounds()))
	var ratios []float64
	for _, g := range grounds() {
		ratios = append(ratios, of(c[search][g])/theirs)
	}
	return newRow(name, unit, against, aim, ours, theirs, ours/theirs, ratios, len(ratios))
}
