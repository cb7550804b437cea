package quiet

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"vitrine/internal/hosttest"
	"vitrine/internal/thread"
)

// TestSpin runs in another process. It computes on a CPU for a minute or until it is killed.
func TestSpin(t *testing.T) {
	if os.Getenv("VITRINE_QUIET_TEST_SPIN") == "" {
		t.Skip("TestBusyProcessIsSeen runs this in a process")
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		runtime.KeepAlive(wide(wideTurns, 1))
	}
}

// TestBusyProcessIsSeen checks that the guard notices and names a process that computes on a CPU
// of the run, and that a survey counts it. No test requires a quiet verdict, because other work may run on the host.
func TestBusyProcessIsSeen(t *testing.T) {
	allowed, err := thread.Allowed()
	hosttest.Need(t, err)
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		t.Fatal(err)
	}
	g := &Guard{Slowdown: DefaultSlowdown, cpus: allowed, fs: fs}
	if _, err := g.readIdle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := g.String(); !strings.Contains(text, "does the fixed work at best in") || !strings.HasSuffix(text, "the independent work may take 0.45 longer than at best") {
		t.Errorf("%q", text)
	}
	g.idle.use.other = 0 // otherwise it would be high on a busy host
	stop := spin(t)
	const trial = 200 * time.Millisecond // long enough, because the kernel counts CPU time in units of 10 ms
	seen := ""
	for range 100 { // the other process may be slow to start
		w, err := g.Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(trial)
		from, to, err := w.End(t.Context())
		if err != nil || to.Sub(from) < trial {
			t.Fatalf("got a trial from %v to %v: %v", from, to, err)
		}
		host, why := w.Judge(0)
		if host.Before <= 0 || host.After <= 0 || host.Other == nil {
			t.Fatalf("%+v", host)
		}
		t.Logf("%+v %s", host, why)
		if seen, g.row = why, 0; strings.Contains(seen, "other processes used") {
			break
		}
	}
	if !strings.Contains(seen, "other processes used") {
		t.Errorf("the guard did not notice a busy process: %q", seen)
	}
	survey, err := g.Survey(t.Context(), time.Millisecond)
	if err != nil || survey.Usual.Windows != 1 || !strings.Contains(survey.String(), "1 of 1 trials of 2s would be disturbed, 1 with --slowdown 0.1, the last one: ") {
		t.Errorf("a survey beside a busy process: got %s, %v", survey, err)
	}
	stop()
}

// spin starts another process that computes on the CPUs that this one may use.
func spin(t *testing.T) (stop func()) {
	t.Helper()
	// The shell in between exits, so the process is not a descendant of this one.
	c := exec.CommandContext(t.Context(), "sh", "-c", `"$0" -test.run='^TestSpin$' >/dev/null 2>&1 & echo $!`, os.Args[0])
	c.Env = append(os.Environ(), "VITRINE_QUIET_TEST_SPIN=yes")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		_ = exec.CommandContext(context.WithoutCancel(t.Context()), "kill", strings.TrimSpace(string(out))).Run()
	}
	t.Cleanup(stop)
	return stop
}

func TestWatchEndsWithContext(t *testing.T) {
	allowed, err := thread.Allowed()
	hosttest.Need(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := New(ctx, allowed...); !errors.Is(err, enough) {
		t.Errorf("New: got error %v, want %v", err, enough)
	}
	g := &Guard{cpus: allowed, row: 3}
	if _, err := g.Watch(ctx); !errors.Is(err, enough) {
		t.Errorf("Watch: got error %v, want %v", err, enough)
	}
}
