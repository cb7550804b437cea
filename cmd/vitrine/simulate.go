package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/report"
	"vitrine/search/rate"
	"vitrine/search/sim"
)

// simulateFlags are the flags of simulate.
type simulateFlags struct {
	searches  []string
	functions int
	seed      uint64
	shape     string
	noise     float64
	luck      float64
	drift     float64
	memory    bool
	trace     string
	rates     []float64
	increase  float64
	duration  time.Duration
	overhead  time.Duration
	restart   time.Duration
	repeat    int
	precision float64
	threshold float64
	stateful  bool
	json      bool
	figure    string
}

// maxFunctions limits --functions, so that a typing error does not start a simulation that takes a
// day.
const maxFunctions = 100_000

func (a *app) simulateCommand() *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Compare rate searches on simulated functions, in simulated time",
		Long: "Simulate runs rate searches on functions with known capacities, in simulated time.\n" +
			"It reports the cost and the error of each search. The functions are drawn at random,\n" +
			"or replayed from the recorded trials of a run (--trace).\n\n" +
			"Shapes: saturating (beyond capacity the goodput stays), collapsing (it falls as 1/rate),\n" +
			"rounded (calls arrive at random, so success falls before the CPU is saturated),\n" +
			"slow-to-fill (a queue of seconds hides the overload), slow-to-heal (an overload lingers).",
		Example: "  vitrine simulate\n" +
			"  vitrine simulate --search adaptive,mlr --shape collapsing --functions 2000 --overhead 5s\n" +
			"  vitrine simulate --trace runs/ims --figure searches.svg",
		Args: args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return a.simulate(c.Context(), f) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.searches, "search", rate.Names(), "searches to try")
	flags.IntVar(&f.functions, "functions", 200, "number of functions")
	flags.Uint64Var(&f.seed, "seed", 1, "random seed of the functions and their noise")
	flags.StringVar(&f.shape, "shape", sim.Saturating, "shape of the functions: "+strings.Join(sim.Shapes(), ", "))
	flags.Float64Var(&f.noise, "noise", 0.02, "standard deviation of the capacity between seconds, as a share of the capacity")
	flags.Float64Var(&f.luck, "luck", 0, "standard deviation of the capacity between deployments, as a share of the capacity")
	flags.Float64Var(&f.drift, "drift", 0, "growth of the capacity per hour, as a share of the capacity")
	flags.BoolVar(&f.memory, "memory", true, "an overload lingers for seconds, and calls queue")
	flags.StringVar(&f.trace, "trace", "", "replay the recorded trials of this run folder instead")
	flags.Float64SliceVar(&f.rates, "range", nil, "lowest and highest rate offered")
	flags.Lookup("range").DefValue = "100,11500; with --trace those recorded"
	flags.Float64Var(&f.increase, "increase", 0, "step of the ramp (default 1% of the highest rate)")
	flags.DurationVar(&f.duration, "duration", 10*time.Second, "length of a trial's window; mlr also uses shorter ones, adaptive up to 16 times longer ones")
	flags.DurationVar(&f.overhead, "overhead", 5*time.Second, "time to start a trial, during which the function rests")
	flags.DurationVar(&f.restart, "restart", 0, "time of a fresh deployment")
	flags.IntVar(&f.repeat, "repeat", 1, "fresh deployments; the ramp's repeats")
	flags.Float64Var(&f.precision, "precision", 0.05, "largest width of the interval, as a share of the capacity")
	flags.Float64Var(&f.threshold, "threshold", 0.9, "success ratio that defines the capacity")
	flags.BoolVar(&f.stateful, "stateful", false, "do not begin at the highest rate, and deploy afresh after an overload")
	flags.BoolVar(&f.json, "json", false, "print as JSON")
	flags.StringVar(&f.figure, "figure", "", "also draw the distributions of error and time into this file, .svg or .png")
	completeFlag(c, "search", rate.Names())
	completeFlag(c, "shape", sim.Shapes())
	_ = c.MarkFlagDirname("trace")
	_ = c.MarkFlagFilename("figure", "svg", "png")
	return c
}

// check returns the first error in the flags, or nil.
func (f simulateFlags) check() error {
	bad := func(flag string, found any, want string) error {
		return &vitrine.BadInput{File: "--" + flag, Found: fmt.Sprint(found), Want: want}
	}
	if len(f.searches) == 0 {
		return bad("search", "none", "want one of "+strings.Join(rate.Names(), ", "))
	}
	for _, name := range f.searches {
		if err := oneOf("--search", name, rate.Names()); err != nil {
			return err
		}
	}
	if err := oneOf("--shape", f.shape, sim.Shapes()); err != nil {
		return err
	}
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 1) }
	switch {
	case f.functions < 1 || f.functions > maxFunctions:
		return bad("functions", f.functions, fmt.Sprintf("want 1 to %d", maxFunctions))
	case !(f.noise >= 0 && f.noise < 1):
		return bad("noise", f.noise, "want a share from 0 to below 1")
	case !(f.luck >= 0 && f.luck < 1):
		return bad("luck", f.luck, "want a share from 0 to below 1")
	case !(f.drift > -1 && f.drift < 1):
		return bad("drift", f.drift, "want a share between -1 and 1")
	case f.rates != nil && (len(f.rates) != 2 || !positive(f.rates[0]) || !positive(f.rates[1]) || f.rates[0] >= f.rates[1]):
		return bad("range", f.rates, "want two rates, the lower one first: 100,11500")
	case !(f.increase >= 0) || math.IsInf(f.increase, 1):
		return bad("increase", f.increase, "want a positive rate")
	case f.duration < 100*time.Millisecond || f.duration > 24*time.Hour:
		return bad("duration", f.duration, "want 100ms to 24h")
	case f.overhead < 0:
		return bad("overhead", f.overhead, "want a time from 0")
	case f.restart < 0:
		return bad("restart", f.restart, "want a time from 0")
	case f.repeat < 1 || f.repeat > 1000:
		return bad("repeat", f.repeat, "want 1 to 1000")
	case !(f.precision > 0 && f.precision < 1):
		return bad("precision", f.precision, "want a share between 0 and 1")
	case !(f.threshold > 0 && f.threshold <= 1):
		return bad("threshold", f.threshold, "want a success ratio above 0 and at most 1")
	}
	switch strings.ToLower(filepath.Ext(f.figure)) {
	case ".svg", ".png":
	default:
		if f.figure != "" {
			return bad("figure", f.figure, "want a file that ends in .svg or .png")
		}
	}
	return nil
}

// config returns the configuration of the search on one stage.
func (f simulateFlags) config(name string, on stage) rate.Config {
	cfg := rate.Config{Min: on.low, Max: on.high, Duration: f.duration, Repeat: f.repeat, Thresholds: []float64{f.threshold},
		Precision: f.precision, Overhead: f.overhead, Stateful: f.stateful, Seed: f.seed}
	if name == rate.Ramp {
		cfg.Increase = f.increase
		if cfg.Increase == 0 {
			cfg.Increase = on.high / 100
		}
	}
	return cfg
}

// A stage is one function on which searches are tried.
type stage struct {
	name      string
	subject   sim.Subject
	sizing    vitrine.Sizing
	low, high float64 // of the rates offered
}

// A simulation is the result of the command.
type simulation struct {
	Functions string      `json:"functions"` // description of the functions
	Unit      string      `json:"unit"`
	Count     int         `json:"count"`
	Threshold float64     `json:"threshold"`
	Precision float64     `json:"precision"`
	Overhead  float64     `json:"overhead_s"`
	Searches  []contender `json:"searches"`
}

// A contender is the result of one search over all functions. Means are per
// function. Errors are |ln(estimate/truth)|. They are null if too many searches
// found no capacity.
type contender struct {
	Search   string   `json:"search"`
	Trials   float64  `json:"trials"`
	Restarts float64  `json:"restarts"`
	Load     float64  `json:"load_s"`
	Wall     float64  `json:"wall_s"`
	Error    *float64 `json:"error_median"`
	Error90  *float64 `json:"error_p90"`
	Coverage float64  `json:"coverage"`
	Width    *float64 `json:"width_median"` // of the interval, as a share of the estimate
	scores   sim.Scores
}

func (a *app) simulate(ctx context.Context, f simulateFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	stages, s, err := a.stages(f)
	if err != nil {
		return err
	}
	for _, name := range f.searches {
		scores, err := f.runSearch(ctx, name, stages)
		if err != nil {
			return err
		}
		s.Searches = append(s.Searches, newContender(name, scores))
	}
	if f.figure != "" {
		if err := s.draw(f.figure); err != nil {
			return err
		}
	}
	if f.json {
		return json.NewEncoder(a.stdout).Encode(s)
	}
	return a.printSimulation(s, f)
}

// runSearch runs the search on all stages, in parallel on all CPUs.
func (f simulateFlags) runSearch(ctx context.Context, name string, stages []stage) (sim.Scores, error) {
	scores := make(sim.Scores, len(stages))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, on := range stages {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			const most = 100_000
			cfg := f.config(name, on)
			search, err := rate.New(name, cfg)
			if err != nil {
				return err
			}
			m := sim.Drive(on.subject, on.sizing, search, cfg, sim.Costs{Trial: f.overhead, Restart: f.restart}, most)
			scores[i] = sim.Judge(m, on.subject.Capacity(on.sizing, f.threshold))
			switch {
			case len(m.History) == 0:
				return &vitrine.BadInput{File: "--search " + name, Found: scores[i].Why, Want: "choose other flags"}
			case len(m.History) == most:
				return fmt.Errorf("%s on %s has not ended after %d trials", name, on.name, most)
			}
			return nil
		})
	}
	return scores, group.Wait()
}

func newContender(name string, s sim.Scores) contender {
	number := func(v float64) *float64 {
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return nil
		}
		return &v
	}
	return contender{
		Search: name, Trials: s.Mean(sim.Trials), Restarts: s.Mean(sim.Restarts), Load: s.Mean(sim.Load), Wall: s.Mean(sim.Wall),
		Error: number(s.Quantile(0.5, sim.Error)), Error90: number(s.Quantile(0.9, sim.Error)),
		Coverage: s.Coverage(), Width: number(s.Quantile(0.5, sim.Width)), scores: s,
	}
}

func (a *app) printSimulation(s simulation, f simulateFlags) error {
	fmt.Fprintf(a.stdout, "%d %s; capacity at success ratio %g to %g%%; trials of %s, mlr also shorter, adaptive up to 16 times as long; %s to start one\n\n",
		s.Count, s.Functions, s.Threshold, 100*s.Precision, f.duration, f.overhead)
	percent := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f%%", 100**v)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "search\ttrials\tdeployments\tload\tin all\terror\t90% below\tintervals hold\tmedian width")
	for _, c := range s.Searches {
		fmt.Fprintf(w, "%s\t%.1f\t%.1f\t%.0f s\t%.0f s\t%s\t%s\t%.1f%%\t%s\n", c.Search, c.Trials, c.Restarts, c.Load, c.Wall,
			percent(c.Error), percent(c.Error90), 100*c.Coverage, percent(c.Width))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.stdout, "\nmeans of a function; error is |ln(estimate/truth)|, its median and 90th percentile")
	return err
}

// draw writes the figure of the distributions of errors and times over the
// functions.
func (s simulation) draw(file string) error {
	figures := []struct {
		axis  string
		log   bool
		value func(sim.Score) float64
	}{
		{"error, |ln(estimate/truth)|, %", false, func(s sim.Score) float64 { return 100 * s.Error }},
		{"time in all, s", true, sim.Wall},
		{"time under load, s", true, sim.Load},
	}
	var panels []report.Distribution
	for _, f := range figures {
		panel := report.Distribution{Axis: f.axis, Log: f.log}
		for _, c := range s.Searches {
			var values []float64
			for _, score := range c.scores {
				values = append(values, f.value(score))
			}
			panel.Values = append(panel.Values, values)
		}
		panels = append(panels, panel)
	}
	var names []string
	for _, c := range s.Searches {
		names = append(names, c.Search)
	}
	title := fmt.Sprintf("Searches on %d %s", s.Count, s.Functions)
	text, err := report.Distributions(strings.TrimPrefix(filepath.Ext(file), "."), title, names, panels)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

// stages returns the functions that the flags ask for.
func (a *app) stages(f simulateFlags) ([]stage, simulation, error) {
	s := simulation{Unit: "calls/s", Count: f.functions, Threshold: f.threshold, Precision: f.precision, Overhead: f.overhead.Seconds()}
	if f.trace != "" {
		return a.recordedStages(f, s)
	}
	low, high := 100.0, 11500.0
	if f.rates != nil {
		low, high = f.rates[0], f.rates[1]
	}
	// Capacities are inside the range, with a margin at the top, because rates
	// above saturation must be in the range too.
	p := sim.Population{Shape: f.shape, Low: low * 1.05, High: max(low*1.05, high*f.threshold*0.95), Noise: f.noise,
		Luck: f.luck, Drift: f.drift, Remember: f.memory, Seed: f.seed}
	s.Functions = fmt.Sprintf("%s functions of %g to %g %s, noise %g%%", f.shape, low, high, s.Unit, 100*f.noise)
	var stages []stage
	for i := range f.functions {
		stages = append(stages, stage{fmt.Sprintf("function %d", i+1), p.Function(i), p.Sizing(), low, high})
	}
	return stages, s, nil
}
