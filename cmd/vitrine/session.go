package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"vitrine"
	"vitrine/internal/runstate"
	"vitrine/measure"
	"vitrine/report"
	"vitrine/result"
	"vitrine/testbed"
)

// A session describes a run before it begins, whatever the run measures.
type session struct {
	dir     string // run folder
	resume  bool
	cpus    testbed.CPUs
	kernel  []int // additional CPUs, for the kernel's receive work
	options *options
	planned bool                     // a paper's plan names the fabrics, not the user
	onBegin func(resumed bool) error // called before the first measurement, when the run has its CPUs and its folder; may be nil
	cpuSharing
}

// runFolder returns the run folder: out, or a default if --out is not given.
func runFolder(out, name string) string {
	if out != "" {
		return out
	}
	return filepath.Join("runs", name+"-"+time.Now().Format("20060102-150405"))
}

// A recording is a run in progress, which writes into its folder.
type recording struct {
	session
	app      *app
	label    *runstate.Run
	backends *backends
	results  *result.Run
	locks    *runstate.CPULocks // nil: the CPUs are shared
	back     func() error       // undoes KeepOff; nil: this process uses all its CPUs
}

// begin begins a run. With resume, it continues the run in the folder if the manifests of both
// have the same specifications and the same place.
func (a *app) begin(ctx context.Context, s session, manifest func(*backends) (result.Manifest, error)) (_ *recording, err error) {
	outliveReaders()
	if err := checkFolder(s.dir, s.resume); err != nil { // before a wait for the CPUs
		return nil, err
	}
	r := &recording{session: s, app: a}
	if r.label, err = runstate.New(runstate.DefaultRoot()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.release(ctx, err))
		}
	}()
	if r.locks, err = a.lockCPUs(ctx, s, r.label.ID); err != nil {
		return nil, err
	}
	if err := a.cleanUp(ctx, r.label, a.stderr); err != nil { // removes what killed runs left behind
		a.log().Warn("cleaning up after earlier runs", "error", err)
	}
	if r.backends, err = newBackends(r.label, s.options.folder, a.log()); err == nil {
		err = r.backends.unchanged() // before the run has a folder
	}
	if err != nil {
		return nil, err
	}
	r.backends.impair, r.backends.planned, r.backends.images = s.options.impair, s.planned, new(sync.Map)
	r.backends.cpus = slices.Sorted(slices.Values(slices.Concat(s.cpus.Generator, s.cpus.Function)))
	m, err := manifest(r.backends)
	if err != nil {
		return nil, err
	}
	if s.shared {
		m.NotIsolated = append(m.NotIsolated, notChecked)
	} else {
		m.Slowdown = float64(s.slowdown)
	}
	if r.back, err = s.cpus.KeepOff(); err != nil {
		return nil, err
	}
	if r.results, err = s.openResults(m, a.stderr); err != nil {
		return nil, err
	}
	r.results.Guard = r.backends.unchanged
	return r, nil
}

// end ends the run and writes the report of the available results. failed is the
// error of a failed run. A result.ErrDiverged leaves the report and the manifest as they were.
func (r *recording) end(ctx context.Context, failed error) error {
	if failed == nil {
		m := r.results.Manifest()
		m.Finished = time.Now().UTC()
		failed = r.results.SaveManifest(m)
	}
	err := failed
	if errors.Is(failed, result.ErrDiverged) {
		err = errors.Join(err, r.results.RestoreManifest())
	} else {
		// The report comes first: after a long run Close takes minutes, and a second interrupt ends the process.
		err = errors.Join(err, r.app.writeReport(r.dir))
		if failed != nil {
			if columns(r.app.stderr) != nil {
				fmt.Fprintln(r.app.stderr) // ends the line of the progress
			}
			fmt.Fprintf(r.app.stderr, "what was measured is in %s; continue it with --resume and --out\n", r.dir)
		}
	}
	slow := time.AfterFunc(10*time.Second, func() {
		fmt.Fprintln(r.app.stderr, "still writing usage.parquet; the trials and the report are on disk already")
	})
	err = errors.Join(err, r.results.Close())
	slow.Stop()
	return errors.Join(err, r.release(ctx, err))
}

// release gives back what begin took from the host and from this process. failed is the error of a
// failed run.
func (r *recording) release(ctx context.Context, failed error) error {
	err := r.app.leave(ctx, r.label, failed)
	if r.back != nil {
		err = errors.Join(err, r.back())
	}
	return errors.Join(err, r.locks.Close())
}

// leave ends a run. A failed run may have left something on the host, so leave cleans up after it.
// What leave cannot remove now is left to a later `vitrine clean`, as after a killed run.
func (a *app) leave(ctx context.Context, label *runstate.Run, failed error) error {
	if failed == nil {
		return label.Close()
	}
	err := label.Abandon()
	if err := a.cleanUp(context.WithoutCancel(ctx), label, a.stderr); err != nil {
		a.log().Warn("cleaning up after this run, which `vitrine clean` tries again", "error", err)
	}
	return err
}

// stage returns the stage for a measurement of packets. It reads the idle host.
func (r *recording) stage(ctx context.Context) (s measure.Stage, err error) {
	s = measure.Stage{Testbed: r.backends.testbed(r.options.parts), CPUs: r.cpus, Results: r.results, Observe: r.app.packetProgress()}
	s.Watch, err = r.watcher(ctx)
	return s, err
}

// endStreams is like end, for a run that measured streams. Without a valid stream, the run failed.
func (r *recording) endStreams(ctx context.Context, failed error) error {
	if err := r.end(ctx, failed); err != nil {
		return err
	}
	return anyStream(r.results.Outcomes(), r.dir)
}

// anyStream returns an error if no stream was valid. Streams of the instrument's floor do not count.
func anyStream(outcomes []vitrine.Outcome, dir string) error {
	for _, o := range outcomes {
		if o.Valid && !measure.IsFloor(o) {
			return nil
		}
	}
	return fmt.Errorf("no stream was valid, so nothing was measured: %s says why", filepath.Join(dir, "trials.csv"))
}

// openResults opens the session's run folder, and then calls onBegin. It prints what it repaired.
func (s session) openResults(m result.Manifest, out io.Writer) (*result.Run, error) {
	results, err := openResults(s.dir, s.resume, m, out)
	if err != nil || s.onBegin == nil {
		return results, err
	}
	if err := s.onBegin(s.resume); err != nil {
		return nil, errors.Join(err, results.Close())
	}
	return results, nil
}

// manifestPath returns the path of the manifest, the file that makes a folder a run.
func manifestPath(dir string) string { return filepath.Join(dir, "manifest.json") }

// checkFolder returns an error if no run can begin in the folder or, with resume, if the folder has
// no run.
func checkFolder(dir string, resume bool) error {
	if !resume {
		return result.CheckVacant(dir)
	}
	if _, err := os.Stat(manifestPath(dir)); errors.Is(err, os.ErrNotExist) {
		return &vitrine.BadInput{File: dir, Found: "no run in this folder", Want: "name the folder of a run with --out, or begin a run without --resume"}
	}
	return nil // result.Open reports other errors
}

// openResults creates a run folder, or continues a run that began with the same specifications and in
// the same place. It prints what it repaired.
func openResults(dir string, resume bool, m result.Manifest, out io.Writer) (*result.Run, error) {
	dir, err := filepath.Abs(dir) // instances and the generator run in folders below it and need absolute paths
	if err != nil {
		return nil, err
	}
	if err := checkFolder(dir, resume); err != nil {
		return nil, err
	}
	if !resume {
		return result.Create(dir, m)
	}
	r, err := result.Open(dir)
	if err != nil {
		return nil, err
	}
	for _, repair := range r.Repairs() {
		fmt.Fprintln(out, "repaired:", repair)
	}
	old := r.Manifest()
	if err := old.SameSpecs(m); err != nil {
		return nil, errors.Join(&vitrine.BadInput{File: dir, Found: err.Error(), Want: "resume with the files with which the run began, or choose another --out"}, r.Close())
	}
	if err := old.SamePlace(m); err != nil {
		return nil, errors.Join(&vitrine.BadInput{File: dir, Found: err.Error(), Want: "resume as the run began, or choose another --out"}, r.Close())
	}
	old.Slowdown = cmp.Or(old.Slowdown, m.Slowdown)
	old.Resumed, old.Finished = append(old.Resumed, m.Started), time.Time{}
	for _, note := range resumptionNotes(old, m) {
		if !slices.Contains(old.NotIsolated, note) {
			old.NotIsolated = append(old.NotIsolated, note)
		}
	}
	if err := r.SaveManifest(old); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// resumptionNotes returns notes for readers of a resumed run: what is not isolated from its later
// trials, and what they do not share with the manifest old, with which the run began.
func resumptionNotes(old, m result.Manifest) []string {
	notes := slices.Clone(m.NotIsolated)
	if build := "vitrine " + unknownRelease; old.Tool == build && m.Tool == build {
		notes = append(notes, "the run began and was resumed with "+build+", which may be two builds: neither knows its version")
	}
	for _, d := range old.Differences(m) {
		notes = append(notes, fmt.Sprintf("the run began with %s, but was resumed with %s", d.Then, d.Now))
	}
	return notes
}

// measureAndPresent measures in the session and prints the results, as presentAs does. If a part of
// the measurement fails, it prints the other results too and returns the error.
func measureAndPresent[T any](ctx context.Context, a *app, in session, asJSON bool, read func(*result.Data) (T, error), measure func(session) error) error {
	began := false
	in.onBegin = func(bool) error {
		began = true
		return nil
	}
	err := measure(in)
	if err != nil && (!began || vitrine.IsBadInput(err) || context.Cause(ctx) != nil) {
		return err
	}
	shown := presentAs(a, in.dir, asJSON, read)
	if err != nil {
		return err // a failed run may have left nothing to show, which is not a second error
	}
	return shown
}

// presentAs prints the results of the run: as text, or as JSON of the value that read returns. It
// prints nothing if read refuses the run, because the run ended before it had anything to show.
func presentAs[T any](a *app, dir string, asJSON bool, read func(*result.Data) (T, error)) error {
	data, err := loadRun(dir)
	if err != nil {
		return err
	}
	found, err := read(data)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(found)
	}
	return report.Text(a.stdout, data)
}
