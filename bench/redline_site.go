package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/director/client"
	"vitrine/flex/burst"
	"vitrine/load"
	"vitrine/redline"
)

// agreeWorkload gives characterize the objective of redline. A call fails if one of its
// transactions takes longer than the objective's bound. The threshold is callSuccess.
const agreeWorkload = `generator: sipp
parameters: {scenario: reg-dereg, timeout: %s}
unit: calls/s
range: [10, 1000]
duration: 3s
warmup: 1s
settle: 1s
repeat: 2
thresholds: [%.4f]
precision: %g
`

// callSuccess returns the success ratio of calls at which transactions have that of the objective.
func callSuccess() float64 { return math.Pow(burst.Success, burst.PerCall) }

// An agreeSite runs a fixed number of instances behind a director. They are idle while characterize
// measures another instance, which uses the same store and shared functions.
type agreeSite struct {
	system   *burst.System
	director *client.Client
	dir      string
	workload string // file
	progress io.Writer
	runs     int     // number of characterize runs
	loads    int     // number of SIPp loads
	expected float64 // capacity of an instance by the pilot, in transactions/s
}

func newAgreeSite(ctx context.Context, dir string, progress io.Writer) (s *agreeSite, err error) {
	s = &agreeSite{dir: dir, workload: filepath.Join(dir, "workload.yaml"), progress: progress}
	program, err := product(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(s.workload, fmt.Appendf(nil, agreeWorkload, burst.Bound, callSuccess(), agreePrecision), 0o600); err != nil {
		return nil, err
	}
	folder := filepath.Join(dir, "system")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	// Overload control is off, because a refused call would count as lost.
	s.system, err = burst.Start(ctx, burst.SystemPlan{Program: program, Folder: folder, Policy: fmt.Sprint("fixed=", agreeInstances), Max: agreeInstances, Rate: 1, VCPUs: agreeVCPUs, Overload: "off"})
	if err != nil {
		return nil, err
	}
	if err = s.system.Await(ctx); err == nil {
		s.director, err = client.New(client.Access{URL: s.system.Control()})
	}
	if err != nil {
		return nil, errors.Join(err, s.system.End(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// characterize characterizes a deployment of one instance.
func (s *agreeSite) characterize(ctx context.Context) (capacityFound, error) {
	s.runs++
	return characterize(ctx, s.system, s.workload, filepath.Join(s.dir, fmt.Sprint("characterized-", s.runs)))
}

// characterize runs `vitrine characterize` on a deployment of one instance of a running system, and
// keeps its results in the folder out. It fails if the capacity has no interval.
func characterize(ctx context.Context, s *burst.System, workload, out string) (f capacityFound, err error) {
	c := interruptible(ctx, s.Program, "characterize", s.Deployment(), workload, "--out", out, "--shared-cpus", "--json")
	var log bytes.Buffer
	c.Stderr = &log
	text, err := c.Output()
	if err != nil {
		return f, fmt.Errorf("characterize: %w: %s", err, log.Bytes())
	}
	var summary struct {
		Sizings []struct {
			Capacities []vitrine.Capacity `json:"capacities"`
		} `json:"sizings"`
	}
	if err := json.Unmarshal(text, &summary); err != nil {
		return f, fmt.Errorf("characterize: %w", err)
	}
	if len(summary.Sizings) != 1 || len(summary.Sizings[0].Capacities) != 1 || summary.Sizings[0].Capacities[0].Censored != vitrine.CensoredNone {
		return f, fmt.Errorf("characterize found no capacity with an interval: %s", text)
	}
	capacity := summary.Sizings[0].Capacities[0]
	return capacityFound{burst.PerCall * capacity.Rate, burst.PerCall * capacity.Low, burst.PerCall * capacity.High}, nil
}

// redline measures an instance under load and stores its capacity in the round. It makes up to
// agreeTries attempts to find an interval.
func (s *agreeSite) redline(ctx context.Context, r *agreeRound) error {
	for try := 1; ; try++ {
		found, err := s.measure(ctx, r)
		if err != nil {
			return err
		}
		if found.Verdict == redline.Within {
			r.redline = capacityFound{found.Rate, found.Low, found.High}
			return nil
		}
		if try == agreeTries {
			return fmt.Errorf("redline found no interval in %d tries: %s", agreeTries, &found)
		}
		fmt.Fprintf(s.progress, "  repeated: %s\n", &found)
	}
}

// measure runs redline once. It adds the calls, the lost calls and the time of a broken objective
// to the round.
func (s *agreeSite) measure(ctx context.Context, r *agreeRound) (found redline.Result, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	report, err := s.offer(ctx)
	if err != nil {
		return found, err
	}
	options, err := s.options(ctx)
	if err != nil {
		return found, err
	}
	watching, end := context.WithCancel(ctx)
	longest := make(chan time.Duration, 1)
	go func() { longest <- s.watchObjective(watching, options.Instance) }()
	found, err = redline.Run(ctx, options)
	end()
	r.broken = max(r.broken, (<-longest).Seconds())
	if err != nil {
		return found, err
	}
	got, err := report()
	r.calls += got.Offered
	r.lost += got.Offered - got.Succeeded
	return found, err
}

// offer starts a steady load by SIPp and returns when its rate has reached the director. report
// waits for the end of the load.
func (s *agreeSite) offer(ctx context.Context) (report func() (load.Report, error), err error) {
	s.loads++
	rate := agreeInstances * agreeBase * s.expected
	trial := load.Trial{Rate: rate / burst.PerCall, Duration: agreeSeconds, Seed: uint64(s.loads), Params: map[string]string{"timeout": "30s"}}
	var got load.Report
	var group errgroup.Group
	group.Go(func() (err error) {
		got, err = s.system.Generate(ctx, "sipp", trial)
		return err
	})
	report = func() (load.Report, error) { return got, group.Wait() }
	const arrived, within = 0.9, 20 * time.Second
	var before client.Reading
	for began := time.Now(); ; {
		all, err := s.director.Instances(ctx)
		if err != nil {
			return nil, err
		}
		now := client.Read(time.Now(), all...)
		if !before.At.IsZero() && now.Since(before).Rate() > arrived*rate {
			return report, nil
		}
		if time.Since(began) > within {
			return nil, fmt.Errorf("the load did not reach %.0f/s within %s", rate, within)
		}
		before = now
		if err := pause(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// pause waits for d. If ctx ends before, it returns the cause.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// options returns redline's options for the first active instance.
func (s *agreeSite) options(ctx context.Context) (o redline.Options, err error) {
	all, err := s.director.Instances(ctx)
	if err != nil {
		return o, err
	}
	i := slices.IndexFunc(all, func(in client.Instance) bool { return in.State == vitrine.Active })
	if i < 0 {
		return o, errors.New("no instance is active")
	}
	o = redline.Defaults()
	o.Directors, o.Names = []redline.Director{s.director}, []string{s.system.Control()}
	o.Type, o.Instance, o.Holder = burst.Type, all[i].Name, "the bench"
	o.Objective.Latency, o.Objective.Success = burst.Bound, burst.Success
	o.Increase, o.Precision = agreeIncrease*s.expected, agreePrecision
	o.Step, o.MaxStep = agreeStep, agreeMaxStep
	o.Progress = func(text string) { fmt.Fprintln(s.progress, "   ", text) }
	return o, nil
}

// watchObjective watches an instance until ctx ends. It returns the longest time for which the
// instance broke the objective. Every 250 ms it judges the last second.
func (s *agreeSite) watchObjective(ctx context.Context, instance string) (longest time.Duration) {
	const every = 250 * time.Millisecond
	const span = 4 // readings
	var readings []client.Reading
	var since time.Time // start of the present violation; zero: the objective holds
	for pause(ctx, every) == nil {
		in, err := s.director.Instance(ctx, instance)
		if err != nil {
			continue // a failed reading changes nothing
		}
		now := client.Read(time.Now(), in)
		readings = append(readings, now)
		if len(readings) <= span {
			continue
		}
		readings = readings[1:]
		if !breaks(now.Since(readings[0])) {
			since = time.Time{}
			continue
		}
		if since.IsZero() {
			since = now.At
		}
		longest = max(longest, now.At.Sub(since)+every)
	}
	return longest
}

// breaks reports whether a span of transactions breaks the objective. A span in which none
// completes breaks it if some are in flight.
func breaks(s client.Span) bool {
	const quantile = 0.99
	return s.Quantile(quantile) > burst.Bound || s.Success() < burst.Success || s.Completed() == 0 && s.InFlight > 0
}

// fault stops the members of an instance while redline measures the instance. It returns the
// seconds until the instance got no more new work.
func (s *agreeSite) fault(ctx context.Context) (seconds float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := s.offer(ctx); err != nil {
		return 0, err
	}
	options, err := s.options(ctx)
	if err != nil {
		return 0, err
	}
	var found redline.Result
	done := make(chan error, 1)
	go func() {
		var err error
		found, err = redline.Run(ctx, options)
		done <- err
	}()
	shifted := func(in client.Instance) (bool, error) { return in.Leased != nil && *in.Leased > in.Weight, nil }
	if err := s.awaitWeight(ctx, done, options.Instance, shifted); err != nil {
		return 0, err
	}
	if err := s.signal(ctx, options.Instance, syscall.SIGSTOP); err != nil {
		return 0, err
	}
	stopped := time.Now()
	err = s.awaitWeight(ctx, nil, options.Instance, func(in client.Instance) (bool, error) {
		now, err := s.director.Status(ctx) // after the reading of the instance
		return getsNoNewWork(in, now), err
	})
	seconds = time.Since(stopped).Seconds()
	// Ctrl-C must not leave the members stopped, because a stopped process cannot end in order.
	err = errors.Join(err, <-done, s.signal(context.WithoutCancel(ctx), options.Instance, syscall.SIGCONT))
	if err == nil && found.Verdict != redline.Aborted {
		err = fmt.Errorf("redline did not abort when its instance stopped: %s", &found)
	}
	fmt.Fprintf(s.progress, "  a stopped instance got new work for %.2g s: %s\n", seconds, &found)
	return seconds, err
}

// getsNoNewWork reports whether a director steers no new work to an instance: the lease gives the
// instance the weight 0, and the table in force has that weight. now was read after the instance. A
// lease that has ended does not count, because the instance then has its own weight again.
func getsNoNewWork(in client.Instance, now client.Status) bool {
	return in.Leased != nil && *in.Leased <= 0 && !now.Pending
}

// awaitWeight waits until the instance satisfies is. It fails if redline ends before that.
func (s *agreeSite) awaitWeight(ctx context.Context, done <-chan error, instance string, is func(client.Instance) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		in, err := s.director.Instance(ctx, instance)
		if err != nil {
			return err
		}
		if ok, err := is(in); ok || err != nil {
			return err
		}
		select {
		case err := <-done:
			return errors.Join(errors.New("redline ended before it changed the weight"), err)
		case <-ctx.Done():
			return fmt.Errorf("the weight of %s did not change: %w", instance, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// signal sends a signal to all members of an instance.
func (s *agreeSite) signal(ctx context.Context, instance string, signal syscall.Signal) error {
	now, err := s.system.Status(ctx)
	if err != nil {
		return err
	}
	for _, in := range now.Instances {
		for _, m := range in.Members {
			if in.Name == instance && m.PID > 0 {
				err = errors.Join(err, syscall.Kill(m.PID, signal))
			}
		}
	}
	return err
}
