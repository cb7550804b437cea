package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"vitrine"
	"vitrine/document"
	"vitrine/internal/runstate"
	"vitrine/result"
	"vitrine/testbed/quiet"
)

// notChecked is the note in the manifest and the report of a run with --shared-cpus.
const notChecked = "the CPUs were not locked and nothing checked whether other work disturbed the trials (--shared-cpus)"

// cpuSharing are the flags about other work on the run's CPUs.
type cpuSharing struct {
	wait   bool // for a run that holds the CPUs to end
	shared bool // neither lock the CPUs nor check for disturbance
	// slowdown is the share by which neighbours may slow a trial; see quiet.Guard.
	slowdown share
}

// A share is the value of a flag: a number above 0.
type share float64

func (s *share) String() string { return strconv.FormatFloat(float64(*s), 'g', -1, 64) }
func (s *share) Type() string   { return "share" }

func (s *share) Set(text string) error {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		return errors.New("want a share above 0, such as 0.1")
	}
	*s = share(x)
	return nil
}

// A cpuList is the value of a flag: CPU numbers and ranges, written as in a deployment.
type cpuList []int

func (l *cpuList) String() string { return document.CPUs(*l).String() }
func (l *cpuList) Type() string   { return "list" }

func (l *cpuList) Set(text string) error {
	if len(*l) > 0 { // the flag is given again
		text = l.String() + "," + text
	}
	cpus, err := document.ParseCPUs(text)
	*l = cpuList(cpus)
	return err
}

// lockCPUs locks the CPUs of the session, because two runs on the same CPUs would disturb each
// other.
func (a *app) lockCPUs(ctx context.Context, s session, run string) (*runstate.CPULocks, error) {
	if s.shared {
		return nil, nil
	}
	cpus := slices.Concat(s.cpus.Function, s.cpus.Generator, s.kernel)
	owner := runstate.Owner{Run: run, PID: os.Getpid(), Command: os.Args}
	if s.wait {
		return runstate.WaitForCPUs(ctx, a.cpuLocks, cpus, owner, func(busy *runstate.CPUBusyError) {
			fmt.Fprintln(a.stderr, "waiting:", busy)
		})
	}
	locks, err := runstate.LockCPUs(a.cpuLocks, cpus, owner)
	if busy, ok := errors.AsType[*runstate.CPUBusyError](err); ok {
		return nil, &vitrine.Unsupported{
			What: fmt.Sprintf("a run on CPUs %v", slices.Sorted(slices.Values(cpus))), Missing: busy.Error(),
			Do: "wait for it with --wait, choose other CPUs, or measure at the same time with --shared-cpus",
		}
	}
	return locks, err
}

// watcher reads the idle host and returns a watcher for the trials. It returns nil if
// the CPUs are shared.
func (r *recording) watcher(ctx context.Context) (quiet.Watcher, error) {
	if r.shared {
		return nil, nil
	}
	if advice := quiet.ClockAdvice(result.ReadHost("/").Governor); advice != "" {
		fmt.Fprintln(r.app.stderr, "trials with little load may count as disturbed:", advice)
	}
	fmt.Fprintln(r.app.stderr, "reading the idle host")
	guard, err := quiet.New(ctx, slices.Concat(r.cpus.Function, r.cpus.Generator)...)
	if err != nil {
		return nil, err
	}
	guard.Slowdown = float64(r.slowdown)
	m := r.results.Manifest()
	m.IdleHost = append(m.IdleHost, guard.String())
	if err := r.results.SaveManifest(m); err != nil {
		return nil, err
	}
	return guard.Watch, nil
}
