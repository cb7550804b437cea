package hosttest

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// An Output collects what a program prints or logs. It can be read meanwhile.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// Count returns how often the output so far has the text.
func (o *Output) Count(text string) int { return strings.Count(o.String(), text) }

// Logger returns a logger that writes lines of text to the output.
func (o *Output) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(o, nil)) }

// Ready reports whether the program has printed that it serves.
func (o *Output) Ready() bool { return strings.Contains(o.String(), "ready on") }

// Run calls run in the background. When the test ends or stop is called, it ends run's context and
// waits. The test fails if run returns an error, or does not return within the limit.
func Run(t testing.TB, limit time.Duration, name string, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s ended with %v", name, err)
			}
		case <-time.After(limit):
			t.Errorf("%s did not end", name)
		}
	})
	t.Cleanup(stop)
	return stop
}

// A Program runs until ctx ends. It prints a line with "ready on" to stdout when it serves.
type Program func(ctx context.Context, args []string, stdout, stderr io.Writer) error

// Start runs a program in this process until the test ends or stop is called, and waits until it
// is ready. The limit applies twice: to the start of the program, and to its end. A program that
// fails, or does not end, fails the test.
func Start(t testing.TB, limit time.Duration, name string, run Program, args ...string) (stop func()) {
	t.Helper()
	var out, errs Output
	ended := make(chan struct{})
	end := Run(t, limit, name, func(ctx context.Context) error {
		defer close(ended)
		return run(ctx, args, &out, &errs)
	})
	stop = sync.OnceFunc(func() {
		end()
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, strings.Join(args, " "), errs.String())
		}
	})
	t.Cleanup(stop)
	Until(t, limit, name+" is ready", func() bool {
		select {
		case <-ended:
			t.Fatalf("%s ended at once", name)
		default:
		}
		return out.Ready()
	})
	return stop
}

// NoRace fails the test if the output of a process reports a data race. The exit code of a process that is
// killed does not tell.
func NoRace(t testing.TB, name, output string) {
	t.Helper()
	if _, report, found := strings.Cut(output, "WARNING: DATA RACE"); found {
		t.Errorf("%s has a data race:\n%.8000s", name, report)
	}
}

// Spawn runs a command, which is a Program, until the test ends, and waits until it is ready. A data race
// of the command fails the test.
func Spawn(t testing.TB, limit time.Duration, name string, cmd *exec.Cmd) {
	t.Helper()
	var out Output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // the process may have ended
		_ = cmd.Wait()
		NoRace(t, name, out.String())
		if t.Failed() {
			t.Logf("%s:\n%s", name, out.String())
		}
	})
	Until(t, limit, name+" is ready", out.Ready)
}
