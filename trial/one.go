package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"vitrine"
	"vitrine/load"
	"vitrine/monitor"
)

// A generator that has not ended this long after its trial's time is hung.
const defaultGrace = 60 * time.Second

// one runs one trial on a deployment. What the generator or the function did
// wrong makes the outcome invalid; an error is the end of the campaign.
func (c *campaign) one(ctx context.Context, d *deployment, key vitrine.Key, window time.Duration) (out vitrine.Outcome, err error) {
	scratch := filepath.Join(d.site.gen.dir, fmt.Sprintf("%d-%d", key.Seq, key.Attempt))
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return out, err
	}
	usage, _, err := c.Results.CreateUsage(key)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, usage.Close()) }()
	warmup, started := c.Workload.Warmup, time.Now()
	begin := started.Add(warmup)
	watch, err := monitor.Start(ctx, monitor.Config{Origin: begin}, d.site.vantages(d), usage)
	if err != nil {
		return out, fmt.Errorf("monitor: %w", err)
	}
	command, err := c.command(d, key, window, scratch)
	if err == nil {
		err = d.site.gen.start(ctx, command)
	}
	if err != nil {
		return out, errors.Join(err, watch.Stop())
	}
	laps := d.site.laps()
	report, trialErr := d.drive(ctx, command, warmup+2*window+cmp.Or(c.Grace, defaultGrace))
	took := time.Since(started)
	if ctx.Err() != nil {
		return out, errors.Join(context.Cause(ctx), watch.Stop())
	}
	if report.WindowStart > 0 {
		begin = time.UnixMicro(int64(report.WindowStart * 1e6))
	}
	if err := watch.Stop(); err != nil {
		return out, fmt.Errorf("monitor: %w", err)
	}
	if trialErr == nil {
		out, trialErr = report.Outcome(key)
	}
	if trialErr == nil && out.Valid {
		if err := d.site.undisturbed(laps); err != nil {
			out.Valid, out.Reason = false, err.Error()
		}
	}
	if trialErr != nil {
		out = vitrine.Outcome{Key: key, Duration: window, Reason: trialErr.Error()}
	}
	out.Accelerator = d.site.accelerator
	out.Overhead = max(took-out.Duration, 0)
	out.Use = watch.Use(begin, begin.Add(out.Duration))
	return out, nil
}

// command is what the generator is asked to do.
func (c *campaign) command(d *deployment, key vitrine.Key, window time.Duration, scratch string) (vitrine.Command, error) {
	command := load.Command(c.program, load.Trial{
		Rate: key.Rate, Duration: window.Seconds(), Warmup: c.Workload.Warmup.Seconds(),
		Targets: d.targets(), Scratch: scratch, Seed: c.Seed + uint64(key.Seq), Params: c.params,
	})
	command.Dir = scratch
	command.Stdout = filepath.Join(scratch, "report.json")
	return command, os.RemoveAll(command.Stdout)
}

// drive waits for the generator's report. The error says why there is none, or
// why it is no verdict.
func (d *deployment) drive(ctx context.Context, command vitrine.Command, limit time.Duration) (load.Report, error) {
	tctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	gen := d.site.gen
	dead := d.wait(tctx, gen.process.Done())
	if err := gen.place.Stop(context.WithoutCancel(ctx), stopGrace); err != nil {
		return load.Report{}, fmt.Errorf("stop the generator: %w", err)
	}
	switch {
	case ctx.Err() != nil:
		return load.Report{}, context.Cause(ctx)
	case dead != nil:
		return load.Report{}, oneLine(dead)
	case tctx.Err() != nil:
		return load.Report{}, fmt.Errorf("the generator had not ended after %s", limit)
	case gen.process.Err() != nil:
		return load.Report{}, oneLine(fmt.Errorf("the %w", gen.ended()))
	}
	return readReport(command.Stdout)
}

// wait returns once the generator has ended or the context is over; at once,
// with the reason, when an instance dies before.
func (d *deployment) wait(ctx context.Context, generator <-chan struct{}) error {
	over, stop := context.WithCancel(ctx)
	defer stop()
	var watchers sync.WaitGroup
	for _, in := range d.instances {
		watchers.Go(func() {
			select {
			case <-in.process.Done():
				stop()
			case <-over.Done():
			}
		})
	}
	select {
	case <-generator:
	case <-over.Done():
	}
	stop()
	watchers.Wait()
	return d.died()
}

func readReport(path string) (load.Report, error) {
	f, err := os.Open(path)
	if err != nil {
		return load.Report{}, fmt.Errorf("the generator's report: %w", err)
	}
	defer f.Close()
	report, err := load.ParseReport(f)
	if err != nil {
		return report, fmt.Errorf("the generator's report: %w", err)
	}
	return report, nil
}

// oneLine keeps a reason within one line of trials.csv.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
