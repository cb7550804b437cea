package sipp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine/load"
)

// Run plays the trial with SIPp and prints its Report on stdout. If ctx ends
// first, Run prints no report and returns ctx's error. It returns a
// *vitrine.Unsupported on a host without SIPp, and a *vitrine.BadInput for wrong
// parameters.
func Run(ctx context.Context, t load.Trial, stdout, stderr io.Writer) (err error) {
	if err := t.Check(); err != nil {
		return err
	}
	common, p, err := Decode(t.Params)
	if err != nil {
		return err
	}
	path, err := findProgram()
	if err != nil {
		return err
	}
	scratch := t.Scratch
	if scratch == "" {
		if scratch, err = os.MkdirTemp("", "vitrine-sipp-"); err != nil {
			return fmt.Errorf("generator sipp: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	}
	dues := schedule(t, p.Arrivals)
	jobs, err := plan(t, common, len(dues), scratch)
	if err != nil {
		return fmt.Errorf("generator sipp: %w", err)
	}
	var later time.Duration
	if p.Arrivals == load.Poisson {
		later = assignPauses(jobs, dues, t.Rate)
	}
	longest := limit(t, p, later)
	group, running := errgroup.WithContext(ctx)
	for i := range jobs {
		if err := jobs[i].prepare(p); err != nil {
			return fmt.Errorf("generator sipp: %w", err)
		}
	}
	for i := range jobs {
		group.Go(func() error { return jobs[i].run(running, path, t, p, longest) })
	}
	if err := group.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("generator sipp: %w", err)
	}
	report, err := report(t, dues, jobs)
	if err == nil && report.Error == "" {
		err = tidy(jobs)
	}
	if err != nil {
		return fmt.Errorf("generator sipp: %w", err)
	}
	late := time.Duration(report.Late * float64(time.Second)).Round(time.Microsecond)
	fmt.Fprintf(stderr, "sipp: calls begun at most %v late; %d processes, files in %s\n", late, len(jobs), scratch)
	return report.Print(stdout)
}

// limit returns the longest time that a SIPp may run. later is the delay that pauses add to all calls.
// Each message of a call may take the whole timeout, including retransmissions.
func limit(t load.Trial, p Params, later time.Duration) time.Duration {
	calls := time.Duration((t.Warmup+t.Duration)*float64(time.Second)) + later
	return calls + 12*time.Duration(p.Timeout) + time.Duration(p.CallTime) + 10*time.Second
}

// tidy removes the files that grow with the number of calls, and shortens the error log, which grows with
// the number of failures. The files of a whole run may fill a disk.
func tidy(jobs []job) error {
	for i := range jobs {
		if err := jobs[i].remove(shortLog, usersFile, pausesFile); err != nil {
			return err
		}
		if err := jobs[i].shortenErrors(); err != nil {
			return err
		}
	}
	return nil
}

// maxErrors is the size of an error log after a sound trial, in bytes: more than a thousand failures.
const maxErrors = 1 << 20

// shortenErrors keeps only the start of a long error log, because the first failures show the cause.
func (j *job) shortenErrors() error {
	file := filepath.Join(j.folder, errorLog)
	info, err := os.Stat(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && info.Size() > maxErrors {
		err = os.Truncate(file, maxErrors)
	}
	if err != nil {
		return fmt.Errorf("shorten SIPp's error log: %w", err)
	}
	return nil
}

// run waits for the job's turn, and runs its SIPp until that ends. If the job has a callee, run also
// runs the callee's SIPp.
func (j *job) run(ctx context.Context, path string, t load.Trial, p Params, longest time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(j.lag(t.Rate)):
	}
	runtime.LockOSThread() // for Pdeathsig, see start
	defer runtime.UnlockOSThread()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	calleeEnded := make(chan struct{})
	if j.callee.IsValid() {
		callee, err := j.start(ctx, path, calleeLog, j.calleeArguments(p))
		if err != nil {
			return err
		}
		go func() {
			defer close(calleeEnded)
			err := j.wait(callee)
			if err == nil {
				err = errors.New("exit status 0")
			}
			cancel(fmt.Errorf("SIPp as callee on %v ended: %w; see %s", j.callee, err, filepath.Join(j.folder, calleeLog)))
		}()
	} else {
		close(calleeEnded)
	}
	defer func() { cancel(nil); <-calleeEnded }()

	caller, err := j.start(ctx, path, screenLog, j.arguments(t, p, longest))
	if err != nil {
		return err
	}
	err = j.wait(caller)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 { // some calls failed
		return nil
	}
	if err != nil {
		return fmt.Errorf("SIPp to %s: %w: %s", j.target, err, j.outputTail())
	}
	return nil
}

// start starts a SIPp in the job's folder. SIPp is killed when ctx ends and when
// this process dies. The calling goroutine must stay locked to its thread until
// SIPp has ended, because the kernel also kills SIPp when that thread ends.
func (j *job) start(ctx context.Context, path, output string, args []string) (*exec.Cmd, error) {
	f, err := os.Create(filepath.Join(j.folder, output))
	if err != nil {
		return nil, fmt.Errorf("start SIPp: %w", err)
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = j.folder
	cmd.Stdout, cmd.Stderr = f, f
	cmd.Env = append(os.Environ(), "TERM=dumb")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start SIPp: %w", err)
	}
	return cmd, nil
}

// outputTail returns the end of SIPp's output.
func (j *job) outputTail() string {
	for _, name := range []string{errorLog, screenLog} {
		text, err := os.ReadFile(filepath.Join(j.folder, name))
		if err == nil && len(text) > 0 {
			return fmt.Sprintf("%q; see %s", text[max(0, len(text)-300):], filepath.Join(j.folder, name))
		}
	}
	return "no output"
}

// report merges the jobs' calls in the order of the trial's schedule.
func report(t load.Trial, dues []time.Duration, jobs []job) (load.Report, error) {
	all := make([]call, len(dues))
	var lost int64
	for i := range jobs {
		calls, err := jobs[i].readLogs()
		if err != nil {
			return load.Report{}, err
		}
		for n, c := range calls {
			all[n*len(jobs)+jobs[i].turn] = c
		}
		lost += jobs[i].lost.Load()
	}
	starts := windowStarts(all, dues, len(jobs))
	record := load.NewRecorder(t.Duration)
	for i, c := range all {
		due, start := dues[i], starts[i%len(jobs)]
		record.Scheduled(due)
		if c.sent == 0 {
			continue
		}
		record.Begun(due, c.sent-start)
		if record.TooLate(c.sent - start) {
			continue
		}
		record.Offered(due, c.sent-start)
		switch {
		case c.cause != "":
			record.Failed(due, c.failed-start, c.cause)
		case c.answered == 0:
			record.Failed(due, c.sent-start, "unanswered")
		default:
			record.Succeeded(due, c.answered-start-due)
		}
	}
	var first time.Duration
	for _, at := range starts {
		if at > 0 && (first == 0 || at < first) {
			first = at
		}
	}
	report, err := record.Report(time.Unix(0, int64(first)))
	if lost > 0 {
		// Lost messages would count as timeouts of the function.
		report.Error = fmt.Sprintf("%d messages were lost in SIPp's own receive buffers: give the generator more CPU, or raise net.core.rmem_max", lost)
	}
	return report, err
}

// windowStarts returns when the window of each of the SIPps begins, by turn, since 1970. It is the
// latest time for which the SIPp sent no call early, or 0 for a SIPp that sent none. The SIPps differ,
// because some take longer to start than others.
func windowStarts(all []call, dues []time.Duration, sipps int) []time.Duration {
	starts := make([]time.Duration, sipps)
	for i, c := range all {
		own := &starts[i%sipps]
		if at := c.sent - dues[i]; c.sent > 0 && (*own == 0 || at < *own) {
			*own = at
		}
	}
	return starts
}
