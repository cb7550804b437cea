package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vitrine"
	"vitrine/load"
	"vitrine/monitor"
)

// defaultGrace is the time after the end of a trial's last calls at which a generator that still
// runs counts as hung.
const defaultGrace = 60 * time.Second

const stopGrace = 2 * time.Second

// runTrial runs one trial on the deployed sizing. A fault of the generator or the function makes the
// outcome invalid. An error ends the campaign.
func (s *site) runTrial(ctx context.Context, key vitrine.Key, window time.Duration) (out vitrine.Outcome, err error) {
	scratch := filepath.Join(s.generator.Dir, fmt.Sprintf("%d-%d", key.Seq, key.Attempt))
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return out, err
	}
	usage, _, err := s.Results.CreateUsage(key)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, usage.Close()) }()
	host, err := s.lookOut(ctx)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, host.end(context.WithoutCancel(ctx))) }()
	warmup, started := s.Workload.Warmup, time.Now()
	expected := started.Add(warmup)
	watch, err := monitor.Start(ctx, monitor.Config{Origin: expected}, s.vantages(), usage)
	if err != nil {
		return out, fmt.Errorf("monitor: %w", err)
	}
	command, err := s.command(key, window, scratch)
	if err == nil {
		err = s.generator.Start(ctx, command)
	}
	if err != nil {
		return out, errors.Join(err, watch.Stop())
	}
	report, trialErr := s.drive(ctx, command, warmup+2*window+s.Grace)
	ended := time.Now()
	took := ended.Sub(started)
	// Without the fabric, no later trial can succeed. This trial is not recorded, because a search
	// avoids the rate of an invalid trial.
	if err := cmp.Or(context.Cause(ctx), s.bed.FabricEnded()); err != nil {
		return out, errors.Join(err, watch.Stop())
	}
	begin, startErr := windowStart(report, expected, started, ended)
	if err := errors.Join(host.end(ctx), watch.Stop(), usage.MoveOrigin(begin.Sub(expected))); err != nil {
		return out, err
	}
	out = outcomeOf(report, key, window, cmp.Or(trialErr, startErr))
	judgeUnsent(&out, s.Workload.Thresholds)
	out.InstanceEnded = !out.Valid && s.deployment.Ended() != nil
	out.Accelerator = s.bed.Accelerator
	out.Overhead = max(took-out.Duration, 0)
	out.Use, out.Sampling = readUse(watch, begin, begin.Add(out.Duration), ended)
	host.judge(&out, s.generator, s.deployment.Vantages(), watch.Use(host.from, host.to))
	judgeClock(&out, ended.Round(0).Sub(started), took)
	noteKilled(&out, watch.Killed())
	return out, nil
}

// readUse returns the mean use in the window from begin to end, and how regularly it was sampled until
// the trial ended, at the time ended. A generator may end before its window, because its last call did.
// If that is before half of the window, the sampling is nil: most of the window was not watched.
func readUse(watch *monitor.Monitor, begin, end, ended time.Time) (map[string]vitrine.Use, *vitrine.Sampling) {
	uses := watch.Use(begin, end)
	if ended.Sub(begin) >= end.Sub(begin)/2 {
		if ended.Before(end) {
			end = ended
		}
		return uses, new(watch.Sampling(begin, end))
	}
	for _, u := range uses {
		for metric := range u.Missing {
			u.Missing[metric] = "the trial ended before half of its window: it failed, its generator simulates, or window_start_unix_s is wrong"
		}
	}
	return uses, nil
}

// noteKilled adds to the reason how many processes of each instance the kernel killed for lack of
// memory. The trial may be valid, because the memory limit belongs to the size.
func noteKilled(out *vitrine.Outcome, killed map[string]int) {
	for _, name := range slices.Sorted(maps.Keys(killed)) {
		addNote(out, fmt.Sprintf("the kernel killed %d of %s's processes for lack of memory", killed[name], name))
	}
}

// addNote adds a note to the reason.
func addNote(out *vitrine.Outcome, note string) {
	if out.Reason != "" {
		note = out.Reason + "; " + note
	}
	out.Reason = note
}

// outcomeOf converts the report to the outcome of a trial. If there is a fault, which says why the
// report cannot be used, the outcome is invalid.
func outcomeOf(report load.Report, key vitrine.Key, window time.Duration, fault error) vitrine.Outcome {
	out, err := report.Outcome(key, window)
	if fault = cmp.Or(fault, err); fault != nil {
		return vitrine.Outcome{Key: key, Duration: window, Reason: fault.Error()}
	}
	return out
}

// windowStart returns the start of the window: the report's or, without one, the expected one. A start
// outside the trial is an error, because the use of the instances would be that of another window.
// Clock steps that judgeClock accepts may move the start.
func windowStart(report load.Report, expected, started, ended time.Time) (time.Time, error) {
	if report.Error != "" || report.WindowStart == 0 {
		return expected, nil
	}
	begin := time.UnixMicro(int64(report.WindowStart * 1e6))
	if begin.Before(started.Add(-mostClockStep)) || begin.After(ended.Add(mostClockStep)) {
		return expected, fmt.Errorf("%s: window_start_unix_s is %.3f, but the trial ran from %.3f to %.3f by this host's time of day",
			load.ReasonGenerator, report.WindowStart, unixSeconds(started), unixSeconds(ended))
	}
	return begin, nil
}

func unixSeconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// judgeUnsent makes a valid trial invalid if the calls that the generator did not send decide whether
// the trial meets a threshold. The success ratio counts them as failures. They matter only if they
// are more than half of the failures that the threshold allows: a valid trial has at most 1% of them
// (load.MinOffered), so the threshold is above 0.98.
func judgeUnsent(out *vitrine.Outcome, thresholds []float64) {
	unsent := out.Scheduled - out.Offered
	best := vitrine.Outcome{Scheduled: out.Scheduled, Succeeded: out.Succeeded + unsent} // if all had succeeded
	for _, threshold := range thresholds {
		allowed := (1 - threshold) * float64(out.Scheduled)
		decide := out.SuccessRatio() < threshold && best.SuccessRatio() >= threshold
		if out.Valid && decide && float64(unsent) > allowed/2 {
			out.Valid = false
			out.Reason = fmt.Sprintf("%s: %d of %d calls were not sent: they decide whether the success ratio meets %g",
				load.ReasonGenerator, unsent, out.Scheduled, threshold)
		}
	}
}

// command returns the generator's command for the trial, and removes an older report.
func (s *site) command(key vitrine.Key, window time.Duration, scratch string) (vitrine.Command, error) {
	command := load.Command(s.program, load.Trial{
		Rate: key.Rate, Duration: window.Seconds(), Warmup: s.Workload.Warmup.Seconds(),
		Targets: s.deployment.Targets(), Scratch: scratch, Seed: s.Seed + uint64(key.Seq), Params: s.params,
	})
	command.Dir = scratch
	command.Stdout = filepath.Join(scratch, "report.json")
	return command, os.RemoveAll(command.Stdout)
}

// drive waits for the generator's report. The error is the reason why there is no report, or why
// the report has no verdict.
func (s *site) drive(ctx context.Context, command vitrine.Command, limit time.Duration) (load.Report, error) {
	tctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	dead := s.deployment.Await(tctx, s.generator.Done())
	if err := s.generator.Stop(context.WithoutCancel(ctx), stopGrace); err != nil {
		return load.Report{}, err
	}
	switch {
	case ctx.Err() != nil:
		return load.Report{}, context.Cause(ctx)
	case dead != nil:
		return load.Report{}, oneLine(dead)
	case tctx.Err() != nil:
		return load.Report{}, fmt.Errorf("the generator had not ended after %s", limit)
	case s.generator.Err() != nil:
		return load.Report{}, oneLine(fmt.Errorf("the %w", s.generator.Ended()))
	}
	return readReport(command.Stdout)
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

// oneLine puts a reason on one line, for trials.csv.
func oneLine(err error) error {
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
