package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vitrine/internal/runstate"
	"vitrine/load/http"
	"vitrine/load/sip"
	"vitrine/load/sipp"
	"vitrine/result"
	"vitrine/search/rate"
	"vitrine/spec"
	"vitrine/substrate/docker"
	"vitrine/substrate/process"
	"vitrine/testbed"
	"vitrine/testbed/quiet"
	"vitrine/testbed/testbedtest"
	"vitrine/trial"
)

// realKnown returns the back ends that the functions' files may use.
func realKnown() spec.Known {
	return spec.Known{
		Substrates: map[string]any{"process": process.Config{}, "docker": docker.Config{}},
		Generators: map[string]any{"http": http.Params{}, "sip": sip.Params{}, "sipp": sipp.Params{}},
	}
}

// workload returns the workload of the catalog, with one threshold, the precision of the bench and
// the function's duration.
func (f realFunction) workload(c realCounts) (*spec.Workload, error) {
	w, err := spec.LoadWorkload(filepath.Join(f.Folder, f.Workload), realKnown())
	if err != nil {
		return nil, err
	}
	if f.Duration > 0 {
		w.Duration = f.Duration
	}
	w.Search, w.Increase, w.Precision, w.Thresholds = rate.Adaptive, 0, c.Precision, []float64{realThreshold}
	return w, nil
}

// A realSite deploys one function at one size and drives it with package trial. As in `vitrine
// characterize`, the CPUs are locked and each trial is checked for disturbance. The site opens with
// its first campaign.
type realSite struct {
	function realFunction
	counts   realCounts
	dir      string
	progress io.Writer

	vitrine    string // path of the product's program; empty before prepare
	deployment *spec.Deployment
	workload   *spec.Workload
	cpus       testbed.CPUs
	locks      *runstate.CPULocks
	back       func() error  // undoes KeepOff; nil: this process uses all its CPUs
	awake      io.Closer     // nil unless the CPUs are kept awake
	watch      quiet.Watcher // nil before the site is open
	campaigns  int
	pending    *pendingCampaign // nil: the last campaign has ended
}

// A pendingCampaign is a campaign that the next drive with the same request continues.
type pendingCampaign struct {
	key  string // of its request
	dir  string
	seed uint64
	wall time.Duration // spent on it
}

// key returns a text that differs if the campaigns differ.
func (r campaignRequest) key() string {
	key := fmt.Sprint(r.search, r.precision)
	if r.block != nil {
		key += fmt.Sprint(r.block.rates)
	}
	return key
}

// open prepares the site and occupies the CPUs. If the host is not idle, the next call tries again.
func (s *realSite) open(ctx context.Context) error {
	if s.watch != nil {
		return nil
	}
	if s.vitrine == "" {
		if err := s.prepare(ctx); err != nil {
			return err
		}
	}
	if err := s.occupy(ctx); err != nil {
		return errors.Join(err, s.close()) // or the next call would wait for this one
	}
	back, err := s.cpus.KeepOff()
	s.back = back
	return err
}

// occupy locks the CPUs, keeps them awake and reads the idle host.
func (s *realSite) occupy(ctx context.Context) (err error) {
	all := slices.Concat(s.cpus.Function, s.cpus.Generator)
	if s.locks, err = runstate.WaitForCPUs(ctx, runstate.CPULockDir, all, runstate.Owner{Run: "bench", PID: os.Getpid(), Command: os.Args},
		func(busy *runstate.CPUBusyError) { fmt.Fprintln(s.progress, "  waiting:", busy) }); err != nil {
		return err
	}
	if s.counts.Awake {
		if s.awake, err = quiet.KeepAwake(); err != nil {
			return err
		}
	}
	guard, err := quiet.New(ctx, all...)
	if err != nil {
		return err
	}
	guard.Slowdown = s.counts.Slowdown
	s.watch = guard.Watch
	return nil
}

// prepare builds the product, reads the function's files and chooses the CPUs.
func (s *realSite) prepare(ctx context.Context) (err error) {
	program, err := product(ctx, s.dir)
	if err != nil {
		return err
	}
	if s.deployment, err = spec.LoadDeployment(filepath.Join(s.function.Folder, "deployment.yaml"), realKnown()); err != nil {
		return err
	}
	s.deployment.Mode = spec.Mode{Name: spec.Custom, Sizes: []string{s.function.Sizing}, ScaleOn: s.deployment.Mode.ScaleOn}
	if s.workload, err = s.function.workload(s.counts); err != nil {
		return err
	}
	if s.cpus, err = testbed.ShareCPUs(s.deployment.Servers.CPUs, s.deployment.Servers.GeneratorCPUs); err != nil {
		return err
	}
	s.vitrine = program
	return nil
}

// close releases the CPUs. It may be called on a site that never opened.
func (s *realSite) close() (err error) {
	if s.back != nil {
		err = s.back()
		s.back = nil
	}
	if s.locks != nil {
		err = errors.Join(err, s.locks.Close())
		s.locks = nil
	}
	if s.awake != nil {
		err = errors.Join(err, s.awake.Close())
		s.awake = nil
	}
	return err
}

// drive runs one campaign. If the host is too noisy, the next call with the same request continues
// the campaign.
func (s *realSite) drive(ctx context.Context, asked campaignRequest) (got campaignResult, err error) {
	if err := s.open(ctx); err != nil {
		return got, err
	}
	began := time.Now()
	run, err := runstate.New(runstate.DefaultRoot())
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, run.Close()) }()
	results, err := s.begin(asked)
	if err != nil {
		return got, err
	}
	defer func() {
		if err = errors.Join(err, results.Close()); !errors.Is(err, quiet.ErrTooNoisy) {
			err = errors.Join(err, os.RemoveAll(s.pending.dir))
			s.pending = nil
		}
	}()
	campaign, err := trial.New(s.config(asked, testbedtest.Local(run), results, &got.why))
	if err != nil {
		return got, err
	}
	summary, err := campaign.Run(ctx)
	s.pending.wall += time.Since(began)
	if err != nil {
		return got, err
	}
	got.outcomes, got.wall = results.Outcomes(), s.pending.wall
	if asked.block == nil {
		got.capacity = &summary.Sizings[0].Capacities[0]
	}
	return got, nil
}

// begin returns the results of the pending campaign if that is the one asked for, or else those of a
// new campaign, which is then pending. Each campaign has another seed.
func (s *realSite) begin(asked campaignRequest) (*result.Run, error) {
	if s.pending != nil && s.pending.key == asked.key() {
		return result.Open(s.pending.dir)
	}
	s.campaigns++
	s.pending = &pendingCampaign{key: asked.key(), dir: filepath.Join(s.dir, fmt.Sprint("campaign-", s.campaigns)), seed: uint64(time.Now().UnixNano())}
	return result.Create(s.pending.dir, result.Manifest{})
}

// config returns the configuration of the pending campaign, which sets why to the reason for which
// its search ended.
func (s *realSite) config(asked campaignRequest, bed testbed.Config, results *result.Run, why *string) trial.Config {
	bed.Self = s.vitrine
	workload := *s.workload
	cfg := trial.Config{
		Deployment: s.deployment, Workload: &workload, Testbed: bed, CPUs: s.cpus, Results: results,
		Seed: s.pending.seed, Log: slog.New(slog.DiscardHandler),
		Generator: func(name string) ([]string, error) { return []string{s.vitrine, "generate", name}, nil },
		Watch:     s.watch,
		Observe: func(e trial.Event) {
			if e.Kind == trial.RateDone {
				*why = e.Why
			}
		},
	}
	if asked.block != nil {
		cfg.Rates = func(rate.Config) (rate.Search, error) { return asked.block, nil }
		return cfg
	}
	workload.Search, workload.Precision = asked.search, asked.precision
	return cfg
}
