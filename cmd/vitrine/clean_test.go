package main

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"vitrine/image"
	"vitrine/internal/runstate"
)

// TestRunsStayOnRecordUntilCleaned checks that a failed run that left nothing is removed from the
// record. A run that cannot be undone completely stays on record, and must not stop the cleaning
// of others, whose remains the output names.
func TestRunsStayOnRecordUntilCleaned(t *testing.T) {
	root := filepath.Join(t.TempDir(), "runs")
	var all [3]*runstate.Run
	for i := range all {
		var err error
		if all[i], err = runstate.New(root); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	a := &app{stdout: &out, stderr: &out}
	clean, stuck, failed := all[0], all[1], all[2]
	specs := t.TempDir()
	if err := errors.Join(stuck.Record("interface", "eno1", []byte("cut o")), clean.Record(specsKind, "folder", []byte(specs)), clean.Abandon(), stuck.Close()); err != nil {
		t.Fatal(err)
	}
	if err := a.leave(t.Context(), failed, errors.New("no such generator")); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.String(), "removed "+specs+"\n") {
		t.Errorf("the output does not name %s:\n%s", specs, &out)
	}
	if dead, err := runstate.Dead(root); err != nil || !slices.Equal(dead, []string{stuck.ID}) {
		t.Errorf("dead runs: got %q, error %v, want %q\n%s", dead, err, stuck.ID, &out)
	}
	if err := stuck.Erase("interface", "eno1"); err != nil {
		t.Fatal(err)
	}
	if err := a.cleanUp(t.Context(), failed, &out); err != nil {
		t.Error(err)
	}
	if dead, err := runstate.Dead(root); err != nil || len(dead) > 0 {
		t.Errorf("dead runs: got %q, error %v, want none\n%s", dead, err, &out)
	}
}

// TestCleanLooksIntoEveryRoot checks that clean removes the remains of dead runs below all roots, and that it
// names the roots if nothing is left.
func TestCleanLooksIntoEveryRoot(t *testing.T) {
	roots := []string{filepath.Join(t.TempDir(), "session"), filepath.Join(t.TempDir(), "cron")}
	var out, errs bytes.Buffer
	a := &app{stdout: &out, stderr: &errs}
	for _, root := range roots {
		killed, err := runstate.New(root)
		if err == nil {
			err = errors.Join(killed.Record(specsKind, "folder", []byte(t.TempDir())), killed.Abandon())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := a.clean(t.Context(), roots); err != nil || strings.Count(out.String(), "removed ") != len(roots) || strings.Contains(errs.String(), "nothing to remove") {
		t.Errorf("got error %v, output %q and %q", err, &out, &errs)
	}
	out.Reset()
	if err := a.clean(t.Context(), roots); err != nil || out.Len() > 0 || !strings.Contains(errs.String(), roots[0]+" or "+roots[1]) {
		t.Errorf("cleaned again: got error %v, output %q and %q", err, &out, &errs)
	}
}

// TestCleaningNeedsNoHome cleans up as a service of systemd does, which has no HOME.
func TestCleaningNeedsNoHome(t *testing.T) {
	for _, name := range []string{"HOME", "XDG_CACHE_HOME", image.CacheEnv} {
		t.Setenv(name, "")
	}
	root := filepath.Join(t.TempDir(), "runs")
	killed, err := runstate.New(root)
	if err == nil {
		err = killed.Abandon()
	}
	if err != nil {
		t.Fatal(err)
	}
	own, err := runstate.New(root)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := (&app{stdout: &out, stderr: &out}).cleanUp(t.Context(), own, &out); err != nil {
		t.Error(err)
	}
	if dead, err := runstate.Dead(root); err != nil || len(dead) > 0 {
		t.Errorf("dead runs: got %q, error %v, want none\n%s", dead, err, &out)
	}
	if err := own.Close(); err != nil {
		t.Error(err)
	}
}
