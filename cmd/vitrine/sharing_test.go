package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/internal/runstate"
	"vitrine/testbed"
)

const sharedDeployment = `
vnf_name: documents
components:
  - {name: homer, short: hm, command: [sleep, "60"], ports: {http: 80}, entry: http}
flavors: [{name: small, vcpus: 0.2, memory: 64MiB}]
mode: {name: custom, sizes: [hm1s]}
`

const sharedWorkload = `
generator: ./generator
range: [10, 20]
increase: 10
search: ramp
duration: 1s
`

// holdCPUs locks the generator's CPUs in a new lock folder, as another run would do.
func holdCPUs(t *testing.T) (dir string, cpus testbed.CPUs, locks *runstate.CPULocks) {
	t.Helper()
	cpus, err := testbed.ShareCPUs(nil, nil)
	hosttest.Need(t, err)
	dir = t.TempDir()
	locks, err = runstate.LockCPUs(dir, cpus.Generator, runstate.Owner{Run: "firstrun", PID: 4711, Command: []string{"vitrine", "reproduce", "all"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return dir, cpus, locks
}

// TestSecondRunOnCPUs checks that a second run on the same CPUs ends with status 3,
// names the first run and measures nothing.
func TestSecondRunOnCPUs(t *testing.T) {
	dir, _, _ := holdCPUs(t)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	files := t.TempDir()
	for name, text := range map[string]string{"deployment.yaml": sharedDeployment, "workload.yaml": sharedWorkload, "generator": "#!/bin/sh\n"} {
		if err := os.WriteFile(filepath.Join(files, name), []byte(text), 0o700); err != nil { //nolint:gosec // a script
			t.Fatal(err)
		}
	}
	a := &app{stdout: io.Discard, stderr: io.Discard, cpuLocks: dir}
	out := filepath.Join(files, "run")
	characterize, measure, chain := a.characterizeCommand(), a.measureNetworkCommand(), a.measureChainCommand()
	characterize.SetArgs([]string{filepath.Join(files, "deployment.yaml"), filepath.Join(files, "workload.yaml"), "--out", out})
	measure.SetArgs([]string{"--out", out})
	chain.SetArgs([]string{"--out", out})
	histories := filepath.Join(files, "papers", "nfv-vital", "history")
	if err := os.MkdirAll(histories, 0o755); err != nil {
		t.Fatal(err)
	}
	reproduce := a.reproduceCommand()
	reproduce.SetArgs([]string{"papers/nfv-vital/table-2", "--quick", "--papers", filepath.Join(files, "papers"), "--out", out})
	for _, c := range []*cobra.Command{characterize, measure, chain, reproduce} {
		c.SilenceUsage, c.SilenceErrors = true, true
		err := c.ExecuteContext(t.Context())
		if code := exitCode(t.Context(), err); code != exitUnsupported {
			t.Errorf("%s: got exit code %d, want %d: %v", c.Name(), code, exitUnsupported, err)
		}
		for _, want := range []string{"another run measures on CPU", `run "firstrun", pid 4711: ["vitrine" "reproduce" "all"]`, "--wait", "--shared-cpus"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got error %v, want %s", c.Name(), err, want)
			}
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the refused run created its folder")
	}
	if counted, err := os.ReadDir(histories); err != nil || len(counted) > 0 {
		t.Errorf("a refused run was counted: %v, error %v", counted, err)
	}
}

// onWrite calls a function at each write.
type onWrite struct {
	bytes.Buffer
	do func()
}

func (w *onWrite) Write(text []byte) (int, error) {
	w.do()
	return w.Buffer.Write(text)
}

func TestWaitForCPUs(t *testing.T) {
	dir, cpus, first := holdCPUs(t)
	output := &onWrite{do: func() { _ = first.Close() }}
	a := &app{stderr: output, cpuLocks: dir}
	locks, err := a.lockCPUs(t.Context(), session{cpus: cpus, cpuSharing: cpuSharing{wait: true}}, "second")
	if err != nil {
		t.Fatal(err)
	}
	if text := output.String(); !strings.Contains(text, "waiting: another run measures on CPU") || !strings.Contains(text, "firstrun") {
		t.Errorf("got output %q", text)
	}
	if err := locks.Close(); err != nil {
		t.Error(err)
	}
}

// TestFolderIsCheckedBeforeTheWait checks that a run with --wait does not wait for its CPUs if it cannot
// use its folder. A wait would end with the context.
func TestFolderIsCheckedBeforeTheWait(t *testing.T) {
	dir, cpus, _ := holdCPUs(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := &app{stdout: io.Discard, stderr: &onWrite{do: cancel}, cpuLocks: dir}
	full, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	for _, path := range []string{filepath.Join(full, "thesis.doc"), file} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for out, resume := range map[string]bool{full: false, file: false, filepath.Join(full, "none"): true} {
		s := session{dir: out, resume: resume, cpus: cpus, options: new(options), cpuSharing: cpuSharing{wait: true}}
		if _, err := a.begin(ctx, s, nil); !vitrine.IsBadInput(err) {
			t.Errorf("--out %s: got error %v, want bad input", out, err)
		}
	}
}

func TestSharedCPUsAreNotLocked(t *testing.T) {
	dir, cpus, _ := holdCPUs(t)
	a := &app{stderr: io.Discard, cpuLocks: dir}
	locks, err := a.lockCPUs(t.Context(), session{cpus: cpus, cpuSharing: cpuSharing{shared: true}}, "second")
	if locks != nil || err != nil {
		t.Errorf("got locks %v, error %v, want neither", locks, err)
	}
}

// TestRefusedChainInAFolder checks that an empty run folder does not change the exit code.
func TestRefusedChainInAFolder(t *testing.T) {
	dir, _, _ := holdCPUs(t)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	a := &app{stdout: io.Discard, stderr: io.Discard, cpuLocks: dir}
	c := a.measureChainCommand()
	c.SilenceUsage, c.SilenceErrors = true, true
	c.SetArgs([]string{"--out", t.TempDir()})
	err := c.ExecuteContext(t.Context())
	if code := exitCode(t.Context(), err); code != exitUnsupported {
		t.Errorf("got exit code %d, want %d: %v", code, exitUnsupported, err)
	}
}
