package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

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
	After  float64 `json:"after,omitempty"` // calls/s of the overload that the window follows at once; 0: none
	Round  string  `json:"round,omitempty"` // windows of a round are compared with its capacity

	Speed float64 `json:"speed"` // of the slowest CPU during the window, as a share of its best; 0: not known

	Seconds   float64            `json:"seconds"`
	Success   float64            `json:"success"`
	Goodput   float64            `json:"goodput"` // calls/s that succeeded
	Growth    float64            `json:"growth"`  // growth of the calls in flight per second, relative to the rate
	Quotas    map[string]float64 `json:"quotas"`  // share of its quota that each component used
	Failed    map[string]int64   `json:"failed"`  // by cause
	Throttled map[string]float64 `json:"throttled"`
	Each      []float64          `json:"each,omitempty"`     // success of the calls due in each second
	Admission admission          `json:"admission,omitzero"` // zero: not read
}

// An admission counts requests of calls that Bono admitted, over the life of a deployment. An answer
// 503 of Sprout counts also to the first request of a call, because Bono has admitted that call.
type admission struct {
	Requests float64 `json:"requests"`
	Refused  float64 `json:"refused"` // of these, with 503
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
func (s *overloadSite) try(ctx context.Context, w window) (got window, seen vitrine.Outcome, err error) {
	if err := s.deploy(ctx, w); err != nil {
		return w, seen, err
	}
	defer func() {
		if err = errors.Join(err, s.bare.stop()); err == nil {
			got.Admission, err = s.admission()
		}
	}()
	watch, err := s.guard.Watch(ctx)
	if err != nil {
		return w, seen, err
	}
	reports, m, began, err := s.generate(ctx, w)
	if err != nil {
		_, _, failed := watch.End(ctx)
		return w, seen, errors.Join(err, failed)
	}
	from, to, err := watch.End(ctx)
	if err := errors.Join(err, m.Stop()); err != nil {
		return w, seen, err
	}
	host, why := watch.Judge(quiet.CPUs(m.Use(from, to)))
	quiet.Mark(&seen, host, cmp.Or(why, lateChange(reports)))
	for _, r := range reports {
		if err := checkOffered(r); err != nil && !seen.Disturbed {
			return w, seen, fmt.Errorf("at %g calls/s: %w", w.Rate, err)
		}
	}
	uses := m.Use(began, began.Add(time.Duration(w.Seconds*float64(time.Second))))
	delete(uses, vitrine.Generator)
	w.source, w.Build, w.Speed = s.from, s.build, host.During
	w.count(reports[len(reports)-1])
	w.Quotas, w.Throttled = map[string]float64{}, map[string]float64{}
	for _, u := range uses {
		if u.CPU == nil || u.Throttled == nil {
			return w, seen, fmt.Errorf("the use of %s cannot be read: %v", u.Component, u.Missing)
		}
		w.Quotas[u.Component], w.Throttled[u.Component] = *u.CPU/u.VCPUs, *u.Throttled
	}
	return w, seen, nil
}

// count fills in what the generator reports.
func (w *window) count(r load.Report) {
	w.Success = float64(r.Succeeded) / float64(r.Scheduled)
	w.Goodput = float64(r.Succeeded) / w.Seconds
	w.Growth = inFlightGrowth(r.InFlight) / w.Rate
	w.Failed = r.Failed
	for i, scheduled := range r.Seconds.Scheduled {
		w.Each = append(w.Each, float64(r.Seconds.Succeeded[i])/float64(max(scheduled, 1)))
	}
}

// lateChange returns why the window did not follow the overload at once, or "".
func lateChange(reports []load.Report) string {
	if len(reports) < 2 {
		return ""
	}
	gap := reports[1].WindowStart - reports[0].WindowStart - reports[0].Duration
	if math.Abs(gap) <= recoveryGap {
		return ""
	}
	return fmt.Sprintf("the window began %.2f s after the end of the overload: want at most %g", gap, recoveryGap)
}

// admission reads the counters that Bono printed at its end.
func (s *overloadSite) admission() (admission, error) {
	for _, in := range s.bare.functions {
		if in.component.Name == "bono" {
			log, err := os.ReadFile(filepath.Join(in.dir, bareLog))
			if err != nil {
				return admission{}, err
			}
			return readAdmission(string(log))
		}
	}
	return admission{}, errors.New("the deployment has no Bono")
}

// readAdmission returns the counts at the end of a Bono's log.
func readAdmission(log string) (a admission, err error) {
	var read [3]float64
	for i, name := range []string{"bono_forwarded_total", "bono_sprout_503_total", "bono_rejected_admitted_total"} {
		_, rest, _ := strings.Cut(log, "\n"+name+" ")
		line, _, _ := strings.Cut(rest, "\n")
		if read[i], err = strconv.ParseFloat(line, 64); err != nil {
			return a, fmt.Errorf("read the counter %s in Bono's log: %w", name, err)
		}
	}
	forwarded, bySprout, byBono := read[0], read[1], read[2]
	a = admission{Requests: forwarded + byBono, Refused: bySprout + byBono}
	if a.Requests == 0 {
		return a, errors.New("no request was admitted, by the counters in Bono's log")
	}
	return a, nil
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
		switch in.component.Name {
		case "bono":
			in.args = append(in.args, "--overload", w.Mode, "--print-counters")
			if err := os.Remove(filepath.Join(in.dir, bareLog)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err // admission would read the counters of an earlier window
			}
		case "sprout":
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

const (
	overloadWarmup = 2      // s; the generator's warm-up, half of it at the full rate
	overloadUsers  = 200000 // subscribers of one generator
)

// generate drives the deployment and monitors it. began is the start of the window, after the warm-up
// and the overload. The last report is the window's. Without an error, the caller must stop the
// monitor.
func (s *overloadSite) generate(ctx context.Context, w window) (reports []load.Report, m *monitor.Monitor, began time.Time, err error) {
	began = time.Now().Add(overloadWarmup * time.Second)
	if w.After > 0 {
		began = began.Add(overloadSeconds * time.Second)
	}
	m, err = monitor.Start(ctx, monitor.Config{Origin: began}, s.bare.vantages(), io.Discard)
	if err != nil {
		return nil, nil, began, err
	}
	if w.After > 0 {
		reports, err = s.playBoth(ctx, w, time.Until(began))
	} else {
		reports = make([]load.Report, 1)
		reports[0], err = s.play(ctx, "report", load.Trial{Rate: w.Rate, Duration: w.Seconds, Warmup: overloadWarmup}, 1)
	}
	if err != nil {
		err = errors.Join(err, m.Stop())
	}
	return reports, m, began, err
}

// playBoth drives the overload and then, without a pause, the window. A generator waits for its last
// answers, so another one drives the window. It starts after wait, for other subscribers.
func (s *overloadSite) playBoth(ctx context.Context, w window, wait time.Duration) ([]load.Report, error) {
	reports := make([]load.Report, 2)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		reports[0], err = s.play(ctx, "before", load.Trial{Rate: w.After, Duration: overloadSeconds, Warmup: overloadWarmup}, 1)
		return err
	})
	group.Go(func() (err error) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		reports[1], err = s.play(ctx, "report", load.Trial{Rate: w.Rate, Duration: w.Seconds}, 1+overloadUsers)
		return err
	})
	return reports, group.Wait()
}

// play runs a generator until it exits, and returns its report. Its output goes to a file of its
// place. Its subscribers begin at user.
func (s *overloadSite) play(ctx context.Context, output string, t load.Trial, user int) (report load.Report, err error) {
	b := s.bare
	generator := *b.generator // a copy, because two generators may run at a time
	entry, _ := b.ims.deployment.Entry()
	t.Targets, t.Scratch = []string{b.at(entry.Name, entry.Entry)}, generator.dir
	t.Params = map[string]string{"users": strconv.Itoa(overloadUsers), "first_user": strconv.Itoa(user)}
	command := load.Command([]string{b.ims.vitrine, "generate", "sip"}, t)
	generator.args, generator.env = command.Args, command.Env
	out := filepath.Join(generator.dir, output)
	if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return report, err
	}
	if err := generator.start(ctx, output); err != nil {
		return report, err
	}
	if err := errors.Join(generator.command.Wait(), ctx.Err()); err != nil {
		return report, err
	}
	return readOverloadReport(out)
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
