package deploy_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/fabric/fabrictest"
	"vitrine/internal/hosttest"
	"vitrine/spec"
	"vitrine/testbed"
	"vitrine/testbed/deploy"
	"vitrine/testbed/testbedtest"
)

// place places one instance with an install script that makes the file "ran" in the scratch folder.
func place(t *testing.T) *deploy.Deployment {
	t.Helper()
	return placeWith(t, `: >"$VITRINE_DIR/ran"`, time.Minute, "")
}

// placeWith places one instance with an install script, as on machines with the accelerator.
func placeWith(t *testing.T, text string, limit time.Duration, accelerator string) *deploy.Deployment {
	t.Helper()
	script := filepath.Join(t.TempDir(), "install.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := fabrictest.NewRun(t, t.TempDir())
	site, err := testbed.Open(t.Context(), testbedtest.Local(run), spec.Choice{Substrate: "process"})
	hosttest.Need(t, err)
	hosttest.AtEnd(t, func() error { return site.Close(context.WithoutCancel(t.Context())) })
	site.Accelerator = accelerator
	f := deploy.Function{Deployment: &spec.Deployment{
		Components: []spec.Component{{Name: "front", Short: "fr", Command: spec.Args{"sleep", "600"}}},
		Install:    []spec.Install{{Component: "front", Script: script, TimeLimit: limit}},
	}}
	d, err := deploy.Place(t.Context(), site, t.TempDir(), "vitrine", f, f.Plan())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestInstallIsPatientWithEmulation has an endless install script. On an emulated machine it gets four times
// its time limit.
func TestInstallIsPatientWithEmulation(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	d := placeWith(t, "exec sleep 600", limit, vitrine.Emulation)
	began := time.Now()
	_, err := d.Boot(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "time_limit of 50ms, 4 times") {
		t.Errorf("got error %v", err)
	}
	if took := time.Since(began); took < 4*limit {
		t.Errorf("the script was ended after %v", took)
	}
}

// TestInstallReplacesALink has a link in place of an install script, which another component of the same
// user may put there. The script must run, and nothing may be written where the link points to.
func TestInstallReplacesALink(t *testing.T) {
	t.Parallel()
	d := place(t)
	scratch, target := d.Instances[0].Scratch(), filepath.Join(t.TempDir(), "target")
	if err := errors.Join(os.WriteFile(target, []byte("before"), 0o600), os.Symlink(target, filepath.Join(scratch, "install.sh"))); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Boot(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "before" {
		t.Errorf("the target of the link holds %q, error %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(scratch, "ran")); err != nil {
		t.Errorf("the script did not run: %v", err)
	}
}

// TestInstallRefusesALinkedFolder has a link in place of the scratch folder, which root in a container can
// put there.
func TestInstallRefusesALinkedFolder(t *testing.T) {
	t.Parallel()
	d := place(t)
	scratch, other := d.Instances[0].Scratch(), t.TempDir()
	if err := errors.Join(os.Remove(scratch), os.Symlink(other, scratch)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Boot(t.Context(), nil); err == nil {
		t.Error("Boot follows the link")
	}
	if files, err := os.ReadDir(other); err != nil || len(files) > 0 {
		t.Errorf("%v were written through the link, error %v", files, err)
	}
}
