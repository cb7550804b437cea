package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/cgroup"
	"vitrine/internal/runstate"
	"vitrine/load"
	"vitrine/result"
	"vitrine/spec"
	"vitrine/testbed"
	"vitrine/testbed/testbedtest"
	"vitrine/trial"
)

// The redeployed function is the reference IMS, one instance of each component.
// All have one flavor, the largest that fits one CPU. Smaller instances start
// more slowly on both sides, which would flatter the ratio.
const (
	imsFile   = "catalog/ims-reference/deployment.yaml"
	imsVCPUs  = 0.24
	imsMemory = 256 << 20
	imsSizing = "bn1e-sp1e-hs1e"
)

// redeployments is the number of redeployments in one measurement. The measurement is their median.
const redeployments = 9

// answerCommand is the first argument of this program when it runs as the
// generator.
const answerCommand = "answer"

// timesParam is the generator's parameter for the file of its times.
const timesParam = "times"

// trialBench compares the wall time between two trials, each on a fresh deployment, with a bare
// stop and start of the same programs. Both times run from the last action of one generator to the
// first action of the next.
//
// Ours is a campaign of package trial on process substrate and bridge fabric, without settling.
// Between two generators it notes the exit of the first, stops the monitor, reads the report, and
// writes usage, outcome and table to disk. It ends all instances with their child processes,
// empties their folders, starts them again and waits until each is ready. Then it starts the next
// monitor and generator.
//
// Theirs uses places that exist (see bare) and does the minimum. It reaps the generator, sends
// SIGTERM to all instances and reaps them. It starts them in the same order with the same
// arguments, waits for each with the same check, and starts the next generator.
func trialBench(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
	f, err := newIMS(ctx, dir)
	if err != nil {
		return nil, err
	}
	// Both sides stay off the function's CPUs, as the product does.
	back, err := f.cpus.KeepOff()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, back()) }()
	b, err := newBare(ctx, f)
	defer func() { err = errors.Join(err, b.remove()) }()
	if err != nil {
		return nil, err
	}
	return compareSides(ctx, minRounds, "trial", "ms between trials", "bare stop and start of the same processes", "<= 1.3", f.campaign, b.redeploy, progress)
}

// An ims is the function that both sides run.
type ims struct {
	dir        string // for all files
	vitrine    string // the product's program
	deployment *spec.Deployment
	workload   *spec.Workload
	cpus       testbed.CPUs
	flavor     string // of the components without a fixed flavor
}

// newIMS builds the product and reads the function from its catalog.
func newIMS(ctx context.Context, dir string) (*ims, error) {
	f := &ims{dir: dir}
	err := f.load(ctx)
	if err != nil {
		return nil, err
	}
	f.flavor = "even"
	f.deployment.Flavors = []spec.Flavor{{Name: "even", VCPUs: imsVCPUs, Memory: imsMemory}}
	f.deployment.Component("homer").Flavor = "even"
	f.deployment.Mode = spec.Mode{Name: spec.Custom, Sizes: []string{imsSizing}}
	workload := fmt.Sprintf("{generator: %s, unit: calls/s, range: [1, 1], increase: 1, duration: 1s, settle: 0s, repeat: %d, parameters: {%s: %q}}",
		answerCommand, redeployments+1, timesParam, f.times())
	known := spec.Known{Generators: map[string]any{answerCommand: map[string]string{}}}
	if f.workload, err = spec.ParseWorkload("workload.yaml", []byte(workload), known); err != nil {
		return nil, err
	}
	return f, nil
}

// load builds the product, reads the function from its catalog and assigns the
// CPUs.
func (f *ims) load(ctx context.Context) (err error) {
	if f.vitrine, err = product(ctx, f.dir); err != nil {
		return err
	}
	if f.deployment, err = spec.LoadDeployment(imsFile, spec.Known{}); err != nil {
		return err
	}
	f.cpus, err = testbed.ShareCPUs(nil, nil)
	return err
}

// limits returns the limits of the component's flavor.
func (f *ims) limits(c *spec.Component) cgroup.Limits {
	name := cmp.Or(c.Flavor, f.flavor)
	limits := cgroup.Limits{Period: spec.DefaultCFSPeriod, CPUs: f.cpus.Function}
	for _, flavor := range f.deployment.Flavors {
		if flavor.Name == name {
			limits.VCPUs, limits.Memory = flavor.VCPUs, int64(flavor.Memory)
		}
	}
	return limits
}

// times returns the path of the file that generators write their times to.
func (f *ims) times() string { return filepath.Join(f.dir, "times") }

// campaign measures package trial. It returns the median time between two trials, in ms.
func (f *ims) campaign(ctx context.Context) (ms float64, err error) {
	run, err := runstate.New(runstate.DefaultRoot())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	dir := filepath.Join(f.dir, "campaign")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	results, err := result.Create(dir, result.Manifest{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, results.Close()) }()
	bed := testbedtest.Local(run)
	bed.Self = f.vitrine
	campaign, err := trial.New(trial.Config{
		Deployment: f.deployment, Workload: f.workload, Testbed: bed, CPUs: f.cpus,
		Generator: func(name string) ([]string, error) { return []string{self(), name}, nil },
		Results:   results, Seed: 1, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return 0, err
	}
	summary, err := campaign.Run(ctx)
	if err != nil {
		return 0, err
	}
	if summary.InvalidTrials > 0 {
		return 0, fmt.Errorf("%d trials are invalid: %+v", summary.InvalidTrials, results.Outcomes())
	}
	return f.between()
}

// between reads and removes the file of times. It returns the median over all
// redeployments, in ms.
func (f *ims) between() (float64, error) {
	file, err := os.Open(f.times())
	if err != nil {
		return 0, err
	}
	defer file.Close()
	all, err := gaps(file)
	if err != nil {
		return 0, err
	}
	if len(all) != redeployments {
		return 0, fmt.Errorf("%d redeployments, want %d", len(all), redeployments)
	}
	return median(all), os.Remove(f.times())
}

// gaps returns the times between the end of one line's generator and the start
// of the next line's, in ms. A line holds start and end in ns.
func gaps(times io.Reader) ([]float64, error) {
	var all []float64
	var last int64
	lines := bufio.NewScanner(times)
	for n := 1; lines.Scan(); n++ {
		var start, end int64
		if _, err := fmt.Sscanf(lines.Text(), "%d %d", &start, &end); err != nil {
			return nil, fmt.Errorf("times, line %d: %q: %w", n, lines.Text(), err)
		}
		if end < start || start < last {
			return nil, fmt.Errorf("times, line %d: from %d to %d after %d: want them in order", n, start, end, last)
		}
		if n > 1 {
			all = append(all, float64(start-last)/1e6)
		}
		last = end
	}
	return all, lines.Err()
}

// answer is the generator. It reports at once that its only call has succeeded, and records its own
// start and end times.
func answer(args, environ []string, out io.Writer) error {
	start, err := monotonic()
	if err != nil {
		return err
	}
	t, err := load.ReadTrial(args, environ)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(t.Params[timesParam], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	recorder := load.NewRecorder(t.Duration)
	recorder.Scheduled(0)
	recorder.Offered(0, 0)
	recorder.Succeeded(0, time.Millisecond)
	report, err := recorder.Report(time.Now())
	if err != nil {
		return err
	}
	if err := report.Print(out); err != nil {
		return err
	}
	end, err := monotonic()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, start, end)
	return errors.Join(err, file.Close())
}

// monotonic returns the time, in ns, of a clock that all processes share.
func monotonic() (int64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return now.Nano(), nil
}
