package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/document"
	"vitrine/flex"
	"vitrine/flex/config"
	"vitrine/flex/decide"
	"vitrine/flex/simulate"
	"vitrine/internal/durable"
	"vitrine/report/replay"
)

// flexSimulateFlags are the flags of flex simulate.
type flexSimulateFlags struct {
	kind    string
	load    string
	peak    float64
	against []string
	boot    time.Duration
	truth   float64
	seed    uint64
	loads   int
	curve   int
	page    string
	json    bool
}

// randomLoads is the name for randomly drawn loads.
const randomLoads = "random"

func (a *app) flexSimulate() *cobra.Command {
	var f flexSimulateFlags
	c := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Replay a load against a type of a file, beside other autoscalers",
		Long: "Replay a load against a type of a file, second by second: the orchestrator's decisions beside\n" +
			"a fixed size, the Kubernetes HorizontalPodAutoscaler and the Knative Pod Autoscaler, with the\n" +
			"defaults of their documentation. docs/flex.md has the model and its limits. Nothing runs.",
		Example: "  vitrine flex simulate flex.yaml --load day\n" +
			"  vitrine flex simulate flex.yaml --load yesterday.csv --against hpa=0.6,knative --json\n" +
			"  vitrine flex simulate flex.yaml --load day --page day.html\n" +
			"  vitrine flex simulate flex.yaml --load random --loads 300",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, given []string) error { return a.simulateFlex(given[0], f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.kind, "type", "", "the type; optional if the file has only one")
	flags.StringVar(&f.load, "load", "day", "day, steps, ramps, steady, random, or a CSV file of seconds,transactions/s")
	flags.Float64Var(&f.peak, "peak", 0, "highest rate of a built-in load (default: the capacity of 80% of the type's max)")
	flags.StringSliceVar(&f.against, "against", []string{"fixed", "hpa", "knative"}, "other scalers: fixed[=N], hpa[=UTILIZATION], knative[=UTILIZATION]")
	flags.DurationVar(&f.boot, "boot", 0, "median time from a start to ready (default: the type's)")
	flags.Float64Var(&f.truth, "truth", 1, "true capacity of instances, as a share of the profile's; below 1, the profile is too high")
	flags.Uint64Var(&f.seed, "seed", 0, "random seed of arrivals and start times")
	flags.IntVar(&f.loads, "loads", 100, "number of random loads")
	flags.IntVar(&f.curve, "curve", 0, "with --json: seconds between two points of a curve; 0: no curve")
	flags.StringVar(&f.page, "page", "", "file for a page with all policies beside each other, which opens offline")
	_ = c.RegisterFlagCompletionFunc("load", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return append(simulate.Shapes(), randomLoads), cobra.ShellCompDirectiveDefault
	})
	return jsonFlag(c, &f.json)
}

func (a *app) simulateFlex(path string, f flexSimulateFlags) error {
	file, err := config.Load(path, knownBackends())
	if err != nil {
		return err
	}
	types, err := flex.Types(file, capacityOf(file))
	if err != nil {
		return err
	}
	kind, err := chooseType(path, types, f.kind)
	if err != nil {
		return err
	}
	if f.peak == 0 {
		f.peak = 0.8 * float64(kind.Max) * slices.MaxFunc(kind.Flavors, func(a, b decide.Flavor) int { return cmp.Compare(a.Capacity, b.Capacity) }).Capacity
	}
	if err := f.check(); err != nil {
		return err
	}
	c := simulate.Case{Type: kind, Limits: flex.LimitsOf(file, file.Limits.VCPUs), Boot: f.boot, Truth: f.truth, Seed: f.seed}
	if f.boot > 0 {
		c.Boot += file.Type(kind.Name).Warm // as flex.Types does
	}
	if f.load == randomLoads {
		totals, err := simulate.Sweep(c, f.loads, f.peak, f.against)
		if err != nil {
			return &vitrine.BadInput{File: "--against", Found: err.Error(), Want: "see vitrine flex simulate --help"}
		}
		return a.printSweep(totals, f)
	}
	if c.Load, err = loadOf(f.load, f.peak); err != nil {
		return err
	}
	if f.page != "" {
		replay.Prepare(&c)
	}
	if f.json && f.curve > 0 {
		c.Every = f.curve
	}
	all, err := simulate.Compare(c, f.against)
	if err != nil {
		return &vitrine.BadInput{File: "--against", Found: err.Error(), Want: "see vitrine flex simulate --help"}
	}
	if f.page != "" {
		if err := writeReplay(f, c, all); err != nil {
			return err
		}
	}
	return a.printComparison(kind, c, all, f)
}

// writeReplay writes the page.
func writeReplay(f flexSimulateFlags, c simulate.Case, all []simulate.Result) error {
	html, err := replay.Page(f.load, c, all)
	if err == nil {
		err = durable.Replace(f.page, html, 0o644)
	}
	if err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

func (f flexSimulateFlags) check() error {
	for _, x := range []struct {
		flag  string
		found any
		want  string
		ok    bool
	}{
		{"--peak", f.peak, "want a rate above 0, at most 1e9", f.peak > 0 && f.peak <= 1e9},
		{"--truth", f.truth, "want a share above 0, at most 10", f.truth > 0 && f.truth <= 10},
		{"--loads", f.loads, "want 1 to 10000", f.loads >= 1 && f.loads <= 10_000},
		{"--boot", f.boot, "want 0s to 1h", f.boot >= 0 && f.boot <= time.Hour},
		{"--page", f.page, "want a load that is not random: a page shows one", f.page == "" || f.load != randomLoads},
		{"--curve", f.curve, "want seconds, from 0", f.curve >= 0},
	} {
		if !x.ok {
			return &vitrine.BadInput{File: x.flag, Found: fmt.Sprint(x.found), Want: x.want}
		}
	}
	return checkTarget("--page", f.page)
}

func chooseType(path string, types []decide.Type, name string) (decide.Type, error) {
	if name == "" && len(types) == 1 {
		return types[0], nil
	}
	var names []string
	for _, t := range types {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return decide.Type{}, &vitrine.BadInput{File: path, Found: "--type " + document.Word(name), Want: document.Choose(name, names)}
}

// loadOf returns a built-in load or reads a file.
func loadOf(name string, peak float64) (simulate.Load, error) {
	if l, ok := simulate.Shape(name, peak); ok {
		return l, nil
	}
	file, err := os.Open(name)
	if err != nil {
		want := "want day, steps, ramps, steady, random, or a CSV file"
		if !errors.Is(err, fs.ErrNotExist) {
			want = "want a CSV file that can be read"
		}
		return nil, &vitrine.BadInput{File: "--load", Found: err.Error(), Want: want}
	}
	defer func() { _ = file.Close() }() // opened for reading
	l, err := simulate.ReadLoad(file)
	if err != nil {
		return nil, &vitrine.BadInput{File: name, Found: err.Error(), Want: "want lines of seconds,transactions/s"}
	}
	return l, nil
}

func (a *app) printComparison(kind decide.Type, c simulate.Case, all []simulate.Result, f flexSimulateFlags) error {
	if f.json {
		if f.curve == 0 { // the curves are only for the page
			for i := range all {
				all[i].Curve = nil
			}
		}
		for i := range all {
			all[i].Acts = nil
		}
		return printJSON(a.stdout, struct {
			Type    string            `json:"type"`
			Load    string            `json:"load"`
			Peak    float64           `json:"peak"`
			Results []simulate.Result `json:"results"`
		}{kind.Name, f.load, c.Load.Peak(), all})
	}
	fmt.Fprintf(a.stdout, "%s: %s, %d s, at most %s/s\n", kind.Name, f.load, len(c.Load), vitrine.Digits(c.Load.Peak()))
	t := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SCALER\tINSTANCE-S\tOVER\tLOST\tSTARTS\tDRAINS\tUNDONE\tMOST")
	for _, r := range all {
		fmt.Fprintf(t, "%s\t%.0f\t%d s\t%.0f\t%d\t%d\t%d\t%d\n", r.Scaler, r.InstanceSeconds, r.Broken, r.Lost, r.Starts, r.Drains, r.Undone, r.Most)
	}
	return t.Flush()
}

func (a *app) printSweep(totals []simulate.Total, f flexSimulateFlags) error {
	if f.json {
		return printJSON(a.stdout, totals)
	}
	fmt.Fprintf(a.stdout, "%d random loads of an hour, at most %s/s\n", f.loads, vitrine.Digits(f.peak))
	t := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SCALER\tINSTANCE-S\tOVER\tLOST\tSTARTS\tUNDONE\tFEWER OVER\tFEWER INSTANCE-S\tBOTH")
	for _, r := range totals {
		fmt.Fprintf(t, "%s\t%.0f\t%d s\t%.0f\t%d\t%d\t%d\t%d\t%d\n", r.Scaler, r.InstanceSeconds, r.Broken, r.Lost, r.Starts, r.Undone, r.Fewer, r.Less, r.Both)
	}
	return t.Flush()
}
