package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"vitrine"
	"vitrine/internal/cgroup"
	"vitrine/load"
	"vitrine/monitor"
	"vitrine/testbed/quiet"
)

// A window is one load on one fresh deployment, with its results. It is one line of the windows
// file.
type window struct {
	source
	overloadRules
	Build  string  `json:"build"`           // hash of the program
	Flavor string  `json:"flavor"`          // of Bono, Sprout and Homestead
	Quota  float64 `json:"quota"`           // of each component, relative to the flavor's quota
	Mode   string  `json:"mode"`            // value of --overload
	Rate   float64 `json:"rate"`            // calls/s
	Round  string  `json:"round,omitempty"` // windows of a round are compared with its capacity

	Speed float64 `json:"speed"` // of the slowest CPU during the window, as a share of its best; 0: not known

	Seconds   float64            `json:"seconds"`
	Success   float64            `json:"success"`
	Goodput   float64            `json:"goodput"` // calls/s that succeeded
	Growth    float64            `json:"growth"`  // growth of the calls in flight per second, relative to the rate
	Quotas    map[string]float64 `json:"quotas"`  // share of its quota that each component used
	Failed    map[string]int64   `json:"failed"`  // by cause
	Throttled map[string]float64 `json:"throttled"`
}

// An overloadSite runs the reference IMS with one instance of each component.
type overloadSite struct {
	bare      *bare
	from      source
	build     string
	guard     *quiet.Guard
	disturbed quiet.Row
	progress  io.Writer
}

// onOverloadSite wraps a bench that needs a site.
func onOverloadSite(flavor string, of func(ctx context.Context, s *overloadSite, progress io.Writer) ([]Row, error)) measurement {
	return inFolder(func(ctx context.Context, dir string, progress io.Writer) (rows []Row, err error) {
		f := &ims{dir: dir, flavor: flavor}
		if err := f.load(ctx); err != nil {
			return nil, err
		}
		back, err := f.cpus.KeepOff()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, back()) }()
		s := &overloadSite{from: sourceAt(ctx, time.Now()), progress: progress}
		if s.build, err = buildID(f.vitrine); err != nil {
			return nil, err
		}
		awake, err := quiet.KeepAwake()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, awake.Close()) }()
		if s.guard, err = quiet.New(ctx, slices.Concat(f.cpus.Generator, f.cpus.Function)...); err != nil {
			return nil, err
		}
		s.guard.Slowdown = overloadNow.Slowdown
		s.bare, err = newBare(ctx, f)
		defer func() { err = errors.Join(err, s.bare.remove()) }()
		if err != nil {
			return nil, err
		}
		return of(ctx, s, progress)
	})
}

// drive deploys the IMS afresh for the window, drives it and fills in the
// results. It repeats a window that something else on the host disturbed.
func (s *overloadSite) drive(ctx context.Context, w window) (window, error) {
	for {
		got, seen, err := s.try(ctx, w)
		if err != nil {
			return got, err
		}
		if err := s.disturbed.Add(seen, "windows", fmt.Sprintf("at %g calls/s", w.Rate)); err != nil || !seen.Disturbed {
			return got, err
		}
		fmt.Fprintf(s.progress, "  repeated: %s\n", seen.Reason)
	}
}

// try drives the window once. seen says whether another process disturbed the window.
func (s *overloadSite) try(ctx context.Context, w window) (_ window, seen vitrine.Outcome, err error) {
	if err := s.deploy(ctx, w); err != nil {
		return w, seen, err
	}
	defer func() { err = errors.Join(err, s.bare.stop()) }()
	watch, err := s.guard.Watch(ctx)
	if err != nil {
		return w, seen, err
	}
	report, m, began, err := s.generate(ctx, w)
	if err != nil {
		_, _, failed := watch.End(ctx)
		return w, seen, errors.Join(err, failed)
	}
	from, to, err := watch.End(ctx)
	if err := errors.Join(err, m.Stop()); err != nil {
		return w, seen, err
	}
	host, why := watch.Judge(quiet.CPUs(m.Use(from, to)))
	quiet.Mark(&seen, host, why)
	if err := checkOffered(report); err != nil && !seen.Disturbed {
		return w, seen, fmt.Errorf("at %g calls/s: %w", w.Rate, err)
	}
	uses := m.Use(began, began.Add(time.Duration(w.Seconds*float64(time.Second))))
	delete(uses, vitrine.Generator)
	w.source, w.Build = s.from, s.build
	w.Speed = host.During
	w.Success = float64(report.Succeeded) / float64(report.Scheduled)
	w.Goodput = float64(report.Succeeded) / w.Seconds
	w.Growth = inFlightGrowth(report.InFlight) / w.Rate
	w.Failed = report.Failed
	w.Quotas, w.Throttled = map[string]float64{}, map[string]float64{}
	for _, u := range uses {
		if u.CPU == nil || u.Throttled == nil {
			return w, seen, fmt.Errorf("the use of %s cannot be read: %v", u.Component, u.Missing)
		}
		w.Quotas[u.Component], w.Throttled[u.Component] = *u.CPU/u.VCPUs, *u.Throttled
	}
	return w, seen, nil
}

// checkOffered returns an error if the generator offered too little of its schedule. The function then
// had less load than the window states.
func checkOffered(r load.Report) error {
	if r.Scheduled > 0 && !r.IsLate() {
		return nil
	}
	return fmt.Errorf("the generator offered %d of %d calls: want at least %g of them; run the bench on a host with a faster CPU for the generator",
		r.Offered, r.Scheduled, load.MinOffered)
}

// deploy starts fresh processes. They have no CPU quota until they are ready,
// which saves seconds per window.
func (s *overloadSite) deploy(ctx context.Context, w window) error {
	for _, in := range s.bare.functions {
		in.limits = s.bare.ims.limits(in.component)
		if in.component.Flavor == "" {
			in.limits.VCPUs *= w.Quota
		}
		if err := in.group.SetQuota(cgroup.Limits{}); err != nil {
			return err
		}
		s.bare.equip(in)
		if name := in.component.Name; name == "bono" || name == "sprout" {
			in.args = append(in.args, "--overload", w.Mode)
		}
	}
	if err := s.bare.start(ctx); err != nil {
		return err
	}
	for _, in := range s.bare.functions {
		if err := in.group.SetQuota(in.limits); err != nil {
			return err
		}
	}
	return nil
}

// overloadWarmup is the generator's warm-up in seconds: half of it at the full
// rate.
const overloadWarmup = 2

// generate drives the deployment and monitors it. began is the start of the window, after the
// warm-up. Without an error, the caller must stop the monitor.
func (s *overloadSite) generate(ctx context.Context, w window) (report load.Report, m *monitor.Monitor, began time.Time, err error) {
	b := s.bare
	entry, _ := b.ims.deployment.Entry()
	command := load.Command([]string{b.ims.vitrine, "generate", "sip"}, load.Trial{
		Rate: w.Rate, Duration: w.Seconds, Warmup: overloadWarmup, Targets: []string{b.at(entry.Name, entry.Entry)}, Scratch: b.generator.dir,
		Params: map[string]string{"users": "200000"},
	})
	b.generator.args, b.generator.env = command.Args, command.Env
	out := filepath.Join(b.generator.dir, "report")
	if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return report, nil, began, err
	}
	if err := b.generator.start(ctx, "report"); err != nil {
		return report, nil, began, err
	}
	began = time.Now().Add(overloadWarmup * time.Second)
	m, err = monitor.Start(ctx, monitor.Config{Origin: began}, b.vantages(), io.Discard)
	if err != nil {
		return report, nil, began, errors.Join(err, b.generator.command.Process.Kill(), b.generator.command.Wait())
	}
	err = errors.Join(b.generator.command.Wait(), ctx.Err())
	b.generator.command = nil
	if err == nil {
		report, err = readOverloadReport(out)
	}
	if err != nil {
		err = errors.Join(err, m.Stop())
	}
	return report, m, began, err
}

func readOverloadReport(path string) (report load.Report, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return report, err
	}
	return readReport(bytes.NewReader(text))
}

// inFlightGrowth returns the growth of the calls in flight, in calls per
// second, from the first second of the window to the last.
func inFlightGrowth(each100ms []int64) float64 {
	const second = 10
	if len(each100ms) < 3*second {
		return 0
	}
	var first, last int64
	for i := range second {
		first += each100ms[i]
		last += each100ms[len(each100ms)-1-i]
	}
	return float64(last-first) / second / (float64(len(each100ms)-second) / second)
}

// vantages returns the vantages of the generator and of all instances of the function.
func (b *bare) vantages() []vitrine.Vantage {
	generator := vitrine.Vantage{Instance: b.generator.name, Component: b.generator.name}
	b.generator.group.Vantage(&generator)
	all := []vitrine.Vantage{generator}
	for _, in := range b.functions {
		v := vitrine.Vantage{Instance: in.name, Component: in.component.Name, VCPUs: in.limits.VCPUs, Memory: in.limits.Memory}
		in.group.Vantage(&v)
		all = append(all, v)
	}
	return all
}
