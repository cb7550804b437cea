// Package loadtest is the conformance suite of all generators that send real calls. It runs the
// generator as a program against a small function on loopback, and compares the generator's report
// with what the function received.
package loadtest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"vitrine"
	"vitrine/load"
)

// A Subject is the generator to test.
type Subject struct {
	Program   []string          // executable and the arguments before load.Command's
	Params    map[string]string // parameters of every trial
	Protocol  Protocol          // SIP(), HTTP() or S1AP()
	Scenarios []string          // scenarios of the protocol that the generator supports
	Scratch   bool              // the generator writes files to its scratch folder
	Steady    bool              // the warm-up has the window's rate (load.Trial.Steady)
}

// A Protocol describes one protocol to the suite.
type Protocol struct {
	// Serve starts a function on a free port of the address. The function stops
	// when ctx ends.
	Serve    func(ctx context.Context, address string, b Behaviour) (Function, error)
	Messages map[string]int // messages of a complete call, by scenario
	Delayed  int            // number of answers of a call that Behaviour.Delay delays
	Closed   string         // cause of failure of a call to a closed port
	Refused  string         // cause of failure of a call that Behaviour.Refuse refuses; default 503
	Wrong    [][2]string    // parameters and values that the generator must reject
}

// A Function is the server that a generator drives.
type Function interface {
	Addr() string // listen address
	Seen() Seen   // counts so far
}

// SIP returns the protocol of SIP calls, which all register.
func SIP() Protocol {
	return Protocol{
		Serve: func(ctx context.Context, address string, b Behaviour) (Function, error) {
			return NewResponder(ctx, address, b)
		},
		Messages: map[string]int{"reg-dereg": 6, "reg-subscribe": 10, "reg-invite": 21},
		Delayed:  2,
		Closed:   "timeout",
		Wrong:    [][2]string{{"scenario", "reg-nothing"}, {"users", "3"}, {"user_format", "%s"}},
	}
}

// warmups returns the number of calls before the window.
func (s Subject) warmups(t load.Trial) int {
	schedule := t.Schedule(load.Paced)
	if s.Steady {
		schedule = t.Steady()
	}
	warm, _ := count(schedule)
	return warm
}

// count returns how many calls of the schedule are due before the window and in
// the window.
func count(s *load.Schedule) (warm, window int) {
	for due, ok := s.Next(); ok; due, ok = s.Next() {
		if due < 0 {
			warm++
		} else {
			window++
		}
	}
	return warm, window
}

// result is the result of one run of a generator.
type result struct {
	report load.Report
	err    error // error of the process
	stdout string
	stderr string
	seen   Seen
	trial  load.Trial
}

// Run tests the subject. Tests that check times run alone, the others in parallel.
func Run(t *testing.T, s Subject) {
	for _, scenario := range s.Scenarios {
		t.Run("plays "+scenario, func(t *testing.T) { s.plays(t, scenario) })
	}
	t.Run("counts refusals by status", s.refusals)
	t.Run("counts silence as timeout", s.silence)
	t.Run("measures latency", s.latency)
	t.Run("counts calls in flight", s.inFlight)
	t.Run("draws Poisson arrivals", s.poisson)
	t.Run("offers to a closed port", s.closedPort)
	t.Run("keeps a fractional rate", s.fractional)
	t.Run("spreads over targets", s.spreads)
	t.Run("refuses bad parameters", s.badParameters)
	t.Run("stops on SIGTERM", s.stops)
}

// trial returns a trial of rate 50 against the targets.
func (s Subject) trial(t *testing.T, targets ...string) load.Trial {
	params := map[string]string{}
	maps.Copy(params, s.Params)
	return load.Trial{Rate: 50, Duration: 2, Warmup: 1, Targets: targets, Scratch: t.TempDir(), Seed: 1, Params: params}
}

func (s Subject) responder(t *testing.T, b Behaviour) Function {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := s.Protocol.Serve(ctx, "127.0.0.1", b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// command returns the trial as a process whose output goes to the buffers.
func (s Subject) command(ctx context.Context, trial load.Trial, stdout, stderr *bytes.Buffer) *exec.Cmd {
	c := load.Command(s.Program, trial)
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Env = append(c.Env, "PATH="+os.Getenv("PATH"), "HOME="+os.Getenv("HOME"), "GORACE="+os.Getenv("GORACE"))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd
}

// run runs a trial against a responder to its end and reads its report. A generator on a busy host
// may not offer every call. run then repeats the trial, as a campaign does after an invalid trial,
// up to a limit.
func (s Subject) run(t *testing.T, b Behaviour, change func(*load.Trial)) result {
	t.Helper()
	const attempts = 5
	var res result
	for range attempts {
		r := s.responder(t, b)
		trial := s.trial(t, r.Addr())
		change(&trial)
		if res = s.once(t, trial, r); res.report.Offered == res.report.Scheduled {
			break
		}
		t.Logf("offered %d of %d: once more; %s", res.report.Offered, res.report.Scheduled, res.stderr)
	}
	return res
}

// once runs the trial once.
func (s Subject) once(t *testing.T, trial load.Trial, r Function) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err := s.command(t.Context(), trial, &stdout, &stderr).Run()
	res := result{err: err, stdout: stdout.String(), stderr: stderr.String(), seen: r.Seen(), trial: trial}
	if err != nil {
		t.Fatalf("the generator failed: %v\n%s%s", err, res.stdout, res.stderr)
	}
	if res.report, err = load.ParseReport(&stdout); err != nil {
		t.Fatalf("%v\n%s", err, res.stderr)
	}
	if res.report.Error != "" {
		t.Fatalf("the generator could not run the trial: %s", res.report.Error)
	}
	return res
}

// whole checks the properties of every trial whose calls were all offered. ParseReport has checked
// that the report's sums are right.
func (res result) whole(t *testing.T) {
	t.Helper()
	arrivals := cmp.Or(res.trial.Params["arrivals"], load.Paced)
	if _, want := count(res.trial.Schedule(arrivals)); res.report.Scheduled != int64(want) {
		t.Errorf("scheduled %d, want %d", res.report.Scheduled, want)
	}
	if res.report.Offered != res.report.Scheduled {
		t.Errorf("offered %d of %d; %s", res.report.Offered, res.report.Scheduled, res.stderr)
	}
	if res.report.Duration != res.trial.Duration {
		t.Errorf("duration_s is %v, want %v", res.report.Duration, res.trial.Duration)
	}
	if res.seen.BadDigest > 0 || res.seen.Unparsed > 0 {
		t.Errorf("the responder met %d wrong credentials and %d messages that do not parse", res.seen.BadDigest, res.seen.Unparsed)
	}
	now := float64(time.Now().UnixNano()) / 1e9
	if start := res.report.WindowStart; start <= now-600 || start > now {
		t.Errorf("the window began at %v, now is %v", start, now)
	}
}

func (s Subject) plays(t *testing.T, scenario string) {
	t.Parallel()
	res := s.run(t, Behaviour{}, func(trial *load.Trial) {
		if len(s.Protocol.Messages) > 1 {
			trial.Params["scenario"] = scenario
		}
	})
	res.whole(t)
	if res.report.Succeeded != 100 {
		t.Fatalf("%d of 100 calls succeeded: %v; %s", res.report.Succeeded, res.report.Failed, res.stderr)
	}
	if !slices.Equal(res.report.Seconds.Succeeded, []int64{50, 50}) {
		t.Errorf("succeeded by second: %v, want 50 50", res.report.Seconds.Succeeded)
	}
	// The warm-up's calls were made, but the report does not count them.
	calls := 100 + s.warmups(res.trial)
	if res.seen.Finished != calls {
		t.Errorf("the responder completed %d calls, want %d", res.seen.Finished, calls)
	}
	messages := s.Protocol.Messages[scenario]
	if got := res.seen.Received() + res.seen.Sent; got != calls*messages {
		t.Errorf("%d messages, want %d for each of %d calls: %+v", got, messages, calls, res.seen)
	}
	if files, err := os.ReadDir(res.trial.Scratch); err != nil || s.Scratch != (len(files) > 0) {
		t.Errorf("%d files in scratch, %v", len(files), err)
	}
}

func (s Subject) refusals(t *testing.T) {
	t.Parallel()
	res := s.run(t, Behaviour{Refuse: 30}, func(trial *load.Trial) { trial.Warmup = 0 })
	res.whole(t)
	refused := cmp.Or(s.Protocol.Refused, "503")
	if res.report.Failed[refused] != int64(res.seen.Refused) || res.seen.Refused != 30 {
		t.Errorf("failed %v, but the responder refused %d, want 30", res.report.Failed, res.seen.Refused)
	}
	if res.report.Succeeded != 70 || res.seen.Finished != 70 {
		t.Errorf("succeeded %d, the responder finished %d, want 70", res.report.Succeeded, res.seen.Finished)
	}
	if got := res.report.Seconds.Failed[refused]; len(got) != 2 || got[0] != 30 {
		t.Errorf("failed by second: %v, want the 30 in the first", got)
	}
}

func (s Subject) silence(t *testing.T) {
	t.Parallel()
	res := s.run(t, Behaviour{Ignore: 20}, func(trial *load.Trial) {
		trial.Warmup = 0
		trial.Params["timeout"] = "3s"
	})
	res.whole(t)
	if res.report.Failed["timeout"] != 20 || res.seen.Ignored != 20 || res.report.Succeeded != 80 {
		t.Errorf("failed %v, succeeded %d, ignored %d: want 20 timeouts", res.report.Failed, res.report.Succeeded, res.seen.Ignored)
	}
}

func (s Subject) latency(t *testing.T) {
	const delay = 100 * time.Millisecond
	least := time.Duration(s.Protocol.Delayed) * delay
	res := s.run(t, Behaviour{Delay: delay}, func(*load.Trial) {})
	res.whole(t)
	h, err := res.report.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	// The histogram has three digits.
	if h.TotalCount() != 100 || time.Duration(h.Min()) < least-time.Millisecond {
		t.Errorf("%d latencies from %v, want 100 from %v", h.TotalCount(), time.Duration(h.Min()), least)
	}
	quick := s.run(t, Behaviour{}, func(*load.Trial) {})
	q, err := quick.report.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	if q.ValueAtQuantile(50) >= h.ValueAtQuantile(50) {
		t.Errorf("the median latency is %v without delay and %v with it", time.Duration(q.ValueAtQuantile(50)), time.Duration(h.ValueAtQuantile(50)))
	}
}

func (s Subject) closedPort(t *testing.T) {
	t.Parallel()
	res := s.run(t, Behaviour{Shut: true}, func(trial *load.Trial) { trial.Params["timeout"] = "500ms" })
	res.whole(t)
	if res.report.Succeeded != 0 || res.report.Failed[s.Protocol.Closed] != 100 {
		t.Errorf("succeeded %d, failed %v; want 100 by %s", res.report.Succeeded, res.report.Failed, s.Protocol.Closed)
	}
}

func (s Subject) fractional(t *testing.T) {
	res := s.run(t, Behaviour{}, func(trial *load.Trial) { trial.Rate, trial.Duration, trial.Warmup = 12.5, 2.5, 0.4 })
	res.whole(t)
	if !slices.Equal(res.report.Seconds.Scheduled, []int64{13, 12, 7}) {
		t.Errorf("scheduled by second: %v, want 13 12 7", res.report.Seconds.Scheduled)
	}
	if want := 32 + s.warmups(res.trial); res.seen.Calls != want {
		t.Errorf("the responder received %d calls, want %d including the warm-up", res.seen.Calls, want)
	}
}

func (s Subject) spreads(t *testing.T) {
	t.Parallel()
	var second Function
	res := s.run(t, Behaviour{}, func(trial *load.Trial) {
		second = s.responder(t, Behaviour{})
		trial.Targets = append(trial.Targets, second.Addr())
	})
	res.whole(t)
	all := 100 + s.warmups(res.trial)
	if a, b := res.seen.Finished, second.Seen().Finished; a+b != all || a-b > 1 || b-a > 1 {
		t.Errorf("the targets finished %d and %d calls, want half of %d each", a, b, all)
	}
	if res.report.Succeeded != 100 {
		t.Errorf("%d of 100 calls succeeded: %v", res.report.Succeeded, res.report.Failed)
	}
	// If latencies counted from the first call to any target, one half would read 20 ms too much.
	const apart = 20 * time.Millisecond // at 50 calls/s
	h, err := res.report.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	if least, most := time.Duration(h.ValueAtQuantile(10)), time.Duration(h.ValueAtQuantile(80)); most-least > apart/2 {
		t.Errorf("the latencies of two equal targets: 10%% up to %v, 80%% up to %v", least, most)
	}
}

func (s Subject) badParameters(t *testing.T) {
	wrong := append([][2]string{{"timeout", "soon"}, {"speed", "9"}, {"arrivals", "bursty"}}, s.Protocol.Wrong...)
	for _, c := range wrong {
		name, value := c[0], c[1]
		trial := s.trial(t, "127.0.0.1:9")
		trial.Params[name] = value
		var stdout, stderr bytes.Buffer
		err := s.command(t.Context(), trial, &stdout, &stderr).Run()
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Errorf("%s=%s: the generator ended with %v", name, value, err)
		}
		if text := stderr.String(); !strings.Contains(text, name) || stdout.Len() > 0 {
			t.Errorf("%s=%s: stderr is %q, stdout is %q", name, value, text, stdout.String())
		}
	}
}

func (s Subject) stops(t *testing.T) {
	r := s.responder(t, Behaviour{})
	trial := s.trial(t, r.Addr())
	trial.Duration = 600
	var stdout, stderr bytes.Buffer
	cmd := s.command(t.Context(), trial, &stdout, &stderr)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	signalled := false
	for {
		select {
		case err := <-ended:
			if !signalled {
				t.Fatalf("it ended by itself: %v\n%s", err, stderr.String())
			}
			if _, parseErr := load.ParseReport(&stdout); err == nil || parseErr == nil {
				t.Errorf("the stopped generator ended with %v and printed a report", err)
			}
			if left := processesIn(t, trial.Scratch); len(left) > 0 {
				t.Errorf("processes still run in the scratch folder: %v", left)
			}
			return
		case <-time.After(10 * time.Millisecond):
			if !signalled && r.Seen().Calls > 10 {
				signalled = true
				if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// processesIn returns the folders in /proc of the processes that have the folder, or a folder
// below it, as their working directory.
func processesIn(t *testing.T, folder string) (found []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && (target == folder || strings.HasPrefix(target, folder+"/")) {
			found = append(found, filepath.Dir(link))
		}
	}
	return found
}

// Main runs the test binary as a generator if its first argument is "generate". Otherwise it
// returns. The exit codes are those of the vitrine commands.
func Main(run func(context.Context, load.Trial, io.Writer, io.Writer) error) {
	if len(os.Args) < 2 || os.Args[1] != "generate" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	trial, err := load.ReadTrial(os.Args[2:], os.Environ())
	if err == nil {
		err = run(ctx, trial, os.Stdout, os.Stderr)
	}
	switch {
	case err == nil:
		os.Exit(0)
	case ctx.Err() != nil:
		os.Exit(130)
	}
	os.Stderr.WriteString(err.Error() + "\n")
	switch {
	case vitrine.IsBadInput(err):
		os.Exit(2)
	case vitrine.IsUnsupported(err):
		os.Exit(3)
	}
	os.Exit(1)
}
