package e2e

import (
	"context"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"vitrine/flex/burst"
	"vitrine/flex/simulate"
	"vitrine/internal/cgroup"
	"vitrine/internal/hosttest"
)

// TestEachPolicyScalesForABurst runs our policy and the rules of other autoscalers at the same
// time, each with a system of its own, under a burst to five times the load. Package flex/burst
// runs a whole day.
func TestEachPolicyScalesForABurst(t *testing.T) {
	_, err := cgroup.Detect()
	hosttest.Need(t, err)
	const rate = 16.0
	var load simulate.Load
	for second := range 35 { // hpa decides every 15 s, and an instance takes some seconds to start
		offered := 0.3 * rate
		if second >= 5 {
			offered *= 5
		}
		load = append(load, offered)
	}
	vitrine := program(t)
	policies := []string{"flex", "fixed=2", "hpa", "knative"}
	results := make([]burst.Result, len(policies))
	var group errgroup.Group
	for i, policy := range policies {
		plan := burst.Plan{Program: vitrine, Folder: t.TempDir(), Policy: policy, Load: load, Rate: rate, Max: 2}
		group.Go(func() (err error) {
			results[i], err = burst.Run(t.Context(), plan)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range results {
		r := &results[i]
		t.Logf("%+v", *r)
		if r.Starts < 2 || r.Most < 2 || r.InstanceSeconds < float64(len(load)) {
			t.Errorf("%s: %d starts, at most %d instances, %.0f instance-seconds: want 2 instances for the burst", r.Policy, r.Starts, r.Most, r.InstanceSeconds)
		}
		if due := load.Sum() / burst.PerCall; float64(r.Calls) < due/2 || r.Boot <= 0 {
			t.Errorf("%s: made %d of about %.0f calls, boot time %.1f s", r.Policy, r.Calls, due, r.Boot)
		}
		if r.Lost > 0 {
			t.Errorf("%s: lost %.0f transactions by scaling", r.Policy, r.Lost)
		}
		switch last := r.Slices[len(r.Slices)-1]; {
		case r.Policy == "fixed=2" && (r.Lag > 0 || last.Capacity != 2*rate):
			t.Errorf("a fixed size lagged %d s behind and ended with a capacity of %g/s", r.Lag, last.Capacity)
		case r.Policy == "hpa" && r.Lag == 0: // it sees the burst when it begins, and starts an instance then
			t.Error("hpa had enough capacity in the second in which the burst began")
		}
	}
}

// TestInterruptedDayLeavesNothing checks that the system of a day ends with everything that it runs
// when the day is interrupted.
func TestInterruptedDayLeavesNothing(t *testing.T) {
	_, err := cgroup.Detect()
	hosttest.Need(t, err)
	folder := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	s, err := burst.Start(ctx, burst.SystemPlan{Program: program(t), Folder: folder, Policy: "fixed=1", Max: 1, Rate: 1, VCPUs: burst.VCPUs})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Await(ctx); err != nil {
		t.Error(err)
	}
	running := func() []int {
		pids, err := hosttest.Processes(func(arguments string) bool { return strings.Contains(arguments, folder) })
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	if pids := running(); len(pids) < 2 { // the orchestrator and its holder
		t.Errorf("only the processes %d run", pids)
	}
	interrupt()
	if err := s.End(ctx); err != nil {
		t.Error(err)
	}
	if pids := running(); len(pids) > 0 {
		t.Errorf("the processes %d still run", pids)
	}
}
