// Package e2e tests the program `vitrine store` end to end.
package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"vitrine/internal/hosttest"
)

// TestMain builds the program.
func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "store-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := hosttest.Build(ctx, filepath.Join(dir, "vitrine"), hosttest.Product); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// A running is a store process.
type running struct {
	cmd     *exec.Cmd
	address string // listen address
	log     *os.File
}

// start runs a store and waits until it answers. The test kills it at its end.
func start(t *testing.T, arguments ...string) *running {
	t.Helper()
	r := &running{cmd: exec.CommandContext(context.WithoutCancel(t.Context()), "vitrine", append([]string{"store", "run"}, arguments...)...)}
	var err error
	if r.log, err = os.CreateTemp(t.TempDir(), "log"); err != nil {
		t.Fatal(err)
	}
	r.cmd.Stderr = r.log
	stdout, err := r.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.kill(t) })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, is := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !is {
		t.Fatalf("the store printed %q, %v: %s", line, err, r.logText(t))
	}
	r.address = address
	return r
}

// logText returns the store's log.
func (r *running) logText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(r.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kill ends the store with SIGKILL and waits for its end. The store may have ended before.
func (r *running) kill(t *testing.T) { r.end(t, syscall.SIGKILL) }

// end sends the signal, waits for the end, and returns the exit code; -1 if a signal ended the
// process.
func (r *running) end(t *testing.T, signal os.Signal) int {
	t.Helper()
	if r.cmd.ProcessState == nil {
		if err := r.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		_ = r.cmd.Wait() // the exit code says how the process ended
	}
	return r.cmd.ProcessState.ExitCode()
}
