package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/search/rate"
	"vitrine/search/sim"
	"vitrine/search/sim/queue"
)

const (
	truthRuns   = 1000 // runs per family and precision, unless RUNS is set: 2,000 a family
	truthPeered = 10   // MLRsearch runs on one of this many runs per server
)

// truthPrecisions returns the precisions that truth and truth-stateful ask for. The version of their
// records depends on them.
func truthPrecisions() []float64 { return []float64{0.1, 0.05} }

// coarsePrecisions returns the precisions of searches that must be short.
func coarsePrecisions() []float64 { return []float64{0.3} }

// defaultPeerSearch is MLRsearch with only our range and loss ratio.
const defaultPeerSearch = "MLRsearch " + mlrsearchVersion + " by its defaults"

// truthSearches returns the searches that are compared, ours first.
func truthSearches() []string {
	return []string{ourSearch, mlrSearch, peerSearch, defaultPeerSearch}
}

// A truthRun is one search on one server. All its numbers are finite.
type truthRun struct {
	Version       string // of the search and the servers
	Family        string
	Precision     float64
	Run           int
	Search        string
	Truth         float64
	Rate          float64
	Low, High     float64
	Covered       bool
	Trials        int
	Deployments   int
	Load, Wall    float64 // seconds
	Oracle        float64 // width of the oracle's interval with the same load and number of deployments; 0: not computed
	Contradiction string
	Why           string
}

func (r truthRun) error() float64 {
	if r.Rate <= 0 {
		return math.Inf(1)
	}
	return math.Abs(math.Log(r.Rate / r.Truth))
}

func (r truthRun) width() float64 {
	if r.Rate <= 0 {
		return math.Inf(1)
	}
	return (r.High - r.Low) / r.Rate
}

// A truthKind is a way to search the servers.
type truthKind struct {
	name       string // of its benches, before the family
	stateful   bool   // every overload needs a fresh deployment
	precisions []float64
}

// truthKinds returns the ways in which servers are searched.
func truthKinds() []truthKind {
	return []truthKind{
		{name: "truth", precisions: truthPrecisions()},
		{name: "truth-stateful", precisions: truthPrecisions(), stateful: true},
		{name: "truth-coarse", precisions: coarsePrecisions()},
		{name: "truth-coarse-stateful", precisions: coarsePrecisions(), stateful: true},
	}
}

// runsFile returns the file of the runs, so that a stopped bench can resume. Runs of another version
// of the search or the servers do not count.
func (k truthKind) runsFile() string { return k.name + ".jsonl" }

// recordFile returns the committed file of the figures. Tables in docs/ are generated from it.
func (k truthKind) recordFile() string { return "bench/results/" + k.name + ".json" }

// config returns the configuration of a search at the precision.
func (k truthKind) config(precision float64) rate.Config {
	cfg := queue.Config(precision)
	cfg.Stateful = k.stateful
	return cfg
}

// truthBenches returns one bench per family and kind. Each measures how often our intervals contain
// the true capacity of servers on which the search was not tuned.
func truthBenches() (all []bench) {
	for _, kind := range truthKinds() {
		all = append(all, kind.benches()...)
	}
	return all
}

func (k truthKind) benches() (all []bench) {
	for _, family := range queue.Families() {
		all = append(all, bench{k.name + "/" + family, inFolder(func(ctx context.Context, dir string, progress io.Writer) ([]Row, error) {
			runs := truthRuns
			if text := os.Getenv("RUNS"); text != "" {
				var err error
				if runs, err = strconv.Atoi(text); err != nil || runs < 1 {
					return nil, fmt.Errorf("RUNS %q: want a positive number", text)
				}
			}
			return k.bench(ctx, dir, family, runs, progress)
		})})
	}
	return all
}

// bench runs the missing searches of one family, writes its record and returns
// the rows of all its runs.
func (k truthKind) bench(ctx context.Context, dir, family string, runs int, progress io.Writer) (rows []Row, _ error) {
	oracle := sync.OnceValue(func() *queue.Oracle { return queue.NewOracle(family, queue.Config(0).Thresholds[0]) })
	t := &truthBench{kind: k, family: family, runs: runs, version: k.version(family), progress: progress}
	t.oracle = func(s *queue.Server) width { return oracle().On(s).Width }
	if !k.stateful {
		peer, err := mlrsearchPeer().install(ctx, dir)
		switch {
		case err == nil:
			t.peer = &peer
		case vitrine.IsUnsupported(err):
			fmt.Fprintf(progress, "  %s: without MLRsearch: %v\n", family, err)
		default:
			return nil, err
		}
	}
	if err := t.open(k.runsFile()); err != nil {
		return nil, err
	}
	if err := t.all(ctx); err != nil {
		return nil, err
	}
	kept := t.summarize()
	kept.source = sourceAt(ctx, time.Now())
	if err := keepTruth(k.recordFile(), kept); err != nil {
		return nil, err
	}
	for _, precision := range k.precisions {
		rows = append(rows, t.rows(precision)...)
	}
	return rows, nil
}

// version returns a hash that changes with the behaviour of the search on a
// server of the family.
func (k truthKind) version(family string) string {
	h := fnv.New64a()
	for _, precision := range k.precisions {
		cfg := k.config(precision)
		r := queue.Tuning.Run(family, 0).Search(rate.NewAdaptive(cfg), cfg)
		for _, o := range r.History {
			o.Use = nil // pointers print as addresses, which differ between processes
			fmt.Fprintf(h, "%v", o)
		}
		r.Found.States = nil // a pointer, too
		fmt.Fprintf(h, "%v", r.Score)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// A truthKey identifies a run.
type truthKey struct {
	precision float64
	run       int
	search    string
}

// A width returns the width of the oracle's interval on a server, as a share of the
// capacity.
type width func(deployments int, load float64) float64

// A truthBench holds the runs of one family.
type truthBench struct {
	kind     truthKind
	family   string
	runs     int
	version  string
	oracle   func(*queue.Server) width // prepares the oracle for a server, which takes seconds
	peer     *venv                     // nil: this host has no MLRsearch
	progress io.Writer

	lock sync.Mutex
	done map[truthKey]truthRun
	file string // of the runs
}

// open reads the stored runs of this family and version.
func (t *truthBench) open(file string) error {
	t.done, t.file = map[truthKey]truthRun{}, file
	all, err := readLines[truthRun](file)
	for _, r := range all {
		if r.Version == t.version && r.Family == t.family {
			t.done[truthKey{r.Precision, r.Run, r.Search}] = r
		}
	}
	if len(t.done) > 0 {
		fmt.Fprintf(t.progress, "  %s: %d runs are in %s\n", t.family, len(t.done), file)
	}
	return err
}

// keep stores a run. Several goroutines may call it.
func (t *truthBench) keep(r truthRun) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.done[truthKey{r.Precision, r.Run, r.Search}] = r
	return appendLine(t.file, r)
}

// missing reports whether a run is still to be done.
func (t *truthBench) missing(precision float64, run int, search string) bool {
	t.lock.Lock()
	defer t.lock.Unlock()
	_, done := t.done[truthKey{precision, run, search}]
	return !done
}

// all does every missing run, in parallel on all CPUs.
func (t *truthBench) all(ctx context.Context) error {
	workers := runtime.GOMAXPROCS(0)
	for _, precision := range t.kind.precisions {
		group, ctx := errgroup.WithContext(ctx)
		for w := range workers {
			group.Go(func() error { return t.work(ctx, precision, w, workers) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		t.describe(precision)
	}
	return nil
}

// work does all runs on the servers whose number is remainder modulo of. It goes server by server,
// because preparing the oracle for a server takes seconds.
func (t *truthBench) work(ctx context.Context, precision float64, remainder, of int) (err error) {
	var theirs *peer
	if t.peer != nil {
		d, failed := t.peer.start(ctx)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, d.close()) }()
		theirs = &peer{d}
	}
	for server := remainder; server < queue.Size; server += of {
		var oracle width
		for run := server; run < t.runs; run += queue.Size {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if t.missing(precision, run, ourSearch) {
				if oracle == nil {
					oracle = t.oracle(queue.HeldOut.Server(t.family, server))
				}
				if err := t.ours(precision, run, oracle); err != nil {
					return err
				}
			}
			if !t.kind.stateful && run/queue.Size%truthPeered == 0 {
				if err := t.peers(precision, run, theirs); err != nil {
					return err
				}
			}
		}
		fmt.Fprintf(t.progress, "  %s, precision %g: server %d of %d\n", t.family, precision, server+1, queue.Size)
	}
	return nil
}

// ours runs our search once.
func (t *truthBench) ours(precision float64, run int, oracle width) error {
	cfg := t.kind.config(precision)
	result := queue.HeldOut.Run(t.family, run).Search(rate.NewAdaptive(cfg), cfg)
	r := t.record(precision, run, ourSearch, result.Score)
	r.Oracle = oracle(r.Deployments, r.Load)
	r.Contradiction = result.Contradiction
	return t.keep(r)
}

// peers runs the missing searches of our mlr and of MLRsearch, which claim no confidence.
func (t *truthBench) peers(precision float64, run int, theirs *peer) error {
	cfg := t.kind.config(precision)
	server := queue.HeldOut.Run(t.family, run)
	if t.missing(precision, run, mlrSearch) {
		result := server.Search(rate.NewMLR(cfg), cfg)
		if err := t.keep(t.record(precision, run, mlrSearch, result.Score)); err != nil {
			return err
		}
	}
	if theirs == nil {
		return nil
	}
	for _, search := range []string{peerSearch, defaultPeerSearch} {
		if !t.missing(precision, run, search) {
			continue
		}
		cfg := cfg
		if search == defaultPeerSearch {
			cfg.Precision = 0
		}
		score, err := theirs.search(server, queue.Sizing(), cfg)
		if err != nil {
			return err
		}
		score.Truth = server.CapacityOver(cfg.Thresholds[0], time.Duration(score.Wall*float64(time.Second)))
		score.Restarts = 1
		if err := t.keep(t.record(precision, run, search, score)); err != nil {
			return err
		}
	}
	return nil
}

func (t *truthBench) record(precision float64, run int, search string, s sim.Score) truthRun {
	return truthRun{
		Version: t.version, Family: t.family, Precision: precision, Run: run, Search: search,
		Truth: s.Truth, Rate: s.Found.Rate, Low: s.Found.Low, High: s.Found.High,
		Covered: s.Found.Low <= s.Truth && s.Truth <= s.Found.High,
		Trials:  s.Trials, Deployments: s.Restarts, Load: s.Load, Wall: s.Wall, Why: s.Why,
	}
}
