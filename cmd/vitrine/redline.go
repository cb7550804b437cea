package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/internal/durable"
	"vitrine/monitor"
	"vitrine/redline"
)

// A redlineOptions holds the flags of vitrine redline.
type redlineOptions struct {
	directorControl
	redline.Options
	urls       []string
	percentile float64
	out        string
	pid        int
	cgroup     string
}

func (a *app) redlineCommand() *cobra.Command {
	o := &redlineOptions{directorControl: directorControl{app: a}, Options: redline.Defaults()}
	c := &cobra.Command{
		Use:   "redline TYPE",
		Short: "Measure the capacity of one instance on live traffic",
		Long: "Redline shifts weight onto one active instance in steps, by a lease at all directors in\n" +
			"front of it. It stops when the objective breaks, restores the weights, and prints the\n" +
			"highest rate that met the objective. See docs/redline.md.",
		Args: args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, given []string) error {
			o.Type = given[0]
			return o.run(c.Context())
		},
	}
	o.flags(c)
	return c
}

func (o *redlineOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&o.urls, "director", nil, "control address of a director (beyond loopback: https://ADDRESS:PORT), or unix:SOCKET; repeat it for all\ndirectors side by side; without it, the one director that this user runs here, or else "+defaultControl)
	o.credentials(f)
	f.StringVar(&o.Instance, "instance", "", "the instance to measure (default: the one with the most weight)")
	f.StringVar(&o.Flavor, "flavor", "", "the instance's flavor, for the result file")
	f.StringSliceVar(&o.Beside, "beside", nil, "types whose instances are all on the instance's host, TYPE,...; their rate is recorded as the neighbours'")
	f.DurationVar(&o.Objective.Latency, "latency", o.Objective.Latency, "objective: the latency that the percentile must not exceed")
	f.Float64Var(&o.percentile, "percentile", 100*o.Objective.Quantile, "objective: the percentile of the latency, below 100")
	f.Float64Var(&o.Objective.Success, "success", o.Objective.Success, "objective: least share of transactions that do not fail, below 1")
	f.IntVar(&o.Min, "min", o.Min, "other instances of the type that must be healthy")
	f.Float64Var(&o.MaxRate, "max-rate", 0, "highest rate to try, in transactions per second; 0: as high as the traffic allows")
	f.Float64Var(&o.Increase, "increase", 0, "difference between two steps, in transactions per second; 0: a tenth of the present rate")
	f.Float64Var(&o.Share, "share", o.Share, "largest share of the type's traffic to put on the instance, below 1")
	f.DurationVar(&o.Step, "step", o.Step, "shortest measurement of a step")
	f.DurationVar(&o.MaxStep, "max-step", o.MaxStep, "longest measurement of a step; a step needs three mean holding times")
	f.Float64Var(&o.Precision, "precision", o.Precision, "largest growth of a step's backlog, as a share of the rate")
	f.DurationVar(&o.Holding, "holding", 0, "mean time that a call holds the instance; 0: measure it")
	f.IntVar(&o.pid, "pid", 0, "process of the instance on this host, to watch its CPU")
	f.StringVar(&o.cgroup, "cgroup", "", "cgroup v2 folder of the instance on this host, to watch its CPU")
	f.Float64Var(&o.CPULimit, "cpus", 0, "number of CPUs that the instance may use; the measurement stops at 95% of it")
	f.StringVar(&o.out, "out", "", "file for the result, in JSON")
	f.BoolVar(&o.DryRun, "dry-run", false, "watch for one step and print the plan; change nothing")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	c.MarkFlagsMutuallyExclusive("pid", "cgroup")
}

func (o *redlineOptions) run(ctx context.Context) error {
	if folder := filepath.Dir(o.out); o.out != "" && !isFolder(folder) {
		return &vitrine.BadInput{File: "--out", Found: "no folder " + folder, Want: "want a file in a folder that exists"}
	}
	if err := checkTarget("--out", o.out); err != nil {
		return err
	}
	if err := o.connect(ctx); err != nil {
		return err
	}
	stop, err := o.watchCPU(ctx)
	if err != nil {
		return err
	}
	defer stop()
	outliveReaders()
	o.Objective.Quantile = o.percentile / 100
	host, err := os.Hostname()
	if err != nil {
		host = "a host"
	}
	o.Holder = fmt.Sprintf("redline on %.40s, pid %d", host, os.Getpid())
	o.Progress = func(text string) { fmt.Fprintln(o.stderr, text) }
	result, err := redline.Run(ctx, o.Options)
	if err != nil && result.Version == 0 {
		return err
	}
	result.Tool = "vitrine " + toolVersion()
	published := o.publish(&result)
	if err != nil {
		return err
	}
	return published
}

// connect makes a client for each director.
func (o *redlineOptions) connect(ctx context.Context) error {
	urls := o.urls
	if len(urls) == 0 {
		found, err := o.find(ctx)
		if err != nil {
			return err
		}
		urls = []string{found}
	}
	seen := map[string]bool{}
	for _, url := range urls {
		if seen[url] {
			return &vitrine.BadInput{File: "--director", Found: url + " twice", Want: "want each director once"}
		}
		seen[url] = true
		one := o.directorControl
		one.access.URL = url
		c, err := one.client(ctx)
		if err != nil {
			return err
		}
		o.Directors, o.Names = append(o.Directors, c), append(o.Names, url)
	}
	return nil
}

// watchCPU watches the instance's process or cgroup, if the user named one.
func (o *redlineOptions) watchCPU(ctx context.Context) (stop func(), err error) {
	if o.pid == 0 && o.cgroup == "" {
		if o.CPULimit > 0 {
			return nil, &vitrine.BadInput{File: "--cpus", Found: "no process to watch", Want: "give --pid or --cgroup too"}
		}
		return func() {}, nil
	}
	file, flag := fmt.Sprintf("/proc/%d/stat", o.pid), "--pid"
	if o.cgroup != "" {
		file, flag = filepath.Join(o.cgroup, "cpu.stat"), "--cgroup"
	}
	if _, err := os.Stat(file); err != nil {
		return nil, &vitrine.BadInput{File: flag, Found: err.Error(), Want: "want a process or a cgroup v2 of this host"}
	}
	const name = "instance"
	m, err := monitor.Start(ctx, monitor.Config{}, []vitrine.Vantage{{Instance: name, Component: name, PID: o.pid, CgroupV2: o.cgroup, VCPUs: o.CPULimit}}, io.Discard)
	if err != nil {
		return nil, err
	}
	o.CPU = func(from, to time.Time) (float64, bool) {
		use := m.Use(from, to)[name]
		if use.CPU == nil {
			return 0, false
		}
		return *use.CPU, true
	}
	return func() { _ = m.Stop() }, nil // the monitor's output is discarded
}

// publish prints and writes the result. A verdict without a capacity is a failure.
func (o *redlineOptions) publish(result *redline.Result) error {
	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if o.json {
		_, err = o.stdout.Write(text)
	} else {
		_, err = fmt.Fprintln(o.stdout, result)
	}
	if o.out != "" {
		if failed := durable.Replace(o.out, text, 0o644); failed != nil {
			err = errors.Join(err, fmt.Errorf("write the result: %w", failed))
		}
	}
	if err != nil {
		return err
	}
	switch result.Verdict {
	case redline.Within, redline.AtLeast, redline.Planned:
		return nil
	}
	return exitStatus(exitFailed)
}
