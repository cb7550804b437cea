package trial_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/result"
	"vitrine/testbed/quiet"
	"vitrine/testbed/quiet/quiettest"
)

// setUpNoise makes a short campaign with the rates 10 and 20.
func setUpNoise(t *testing.T, disturbs func(trial int) bool) (*campaign, *quiettest.Noise) {
	t.Helper()
	c := setUp(t, "", "[fr1s]", "ceiling: 15")
	n := &quiettest.Noise{Disturbs: disturbs}
	c.config.Workload.Duration, c.config.Workload.Repeat = 300*time.Millisecond, 1
	c.config.Watch = n.Watch
	return c, n
}

// TestDisturbedTrialsAreTriedAgain checks that a disturbed trial is recorded and tried again at
// its rate, more often than a search allows for invalid trials. The search must not see it.
func TestDisturbedTrialsAreTriedAgain(t *testing.T) {
	t.Parallel()
	c, n := setUpNoise(t, func(trial int) bool { return trial > 0 && trial < 5 })
	summary, err := c.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var keys []vitrine.Key
	for _, o := range c.outcomes() {
		keys = append(keys, vitrine.Key{Seq: o.Seq, Attempt: o.Attempt, Rate: o.Rate})
		disturbed := o.Seq == 2 && o.Attempt < 5
		if o.Disturbed != disturbed || o.Valid == disturbed || disturbed != strings.Contains(o.Reason, "a neighbour") {
			t.Errorf("trial %d.%d: valid %t, disturbed %t, reason %q", o.Seq, o.Attempt, o.Valid, o.Disturbed, o.Reason)
		}
		if o.Host == nil || (o.Host.During == 0.5) != disturbed {
			t.Errorf("trial %d.%d: host %+v", o.Seq, o.Attempt, o.Host)
		}
	}
	want := []vitrine.Key{{Seq: 1, Attempt: 1, Rate: 10}}
	for attempt := range 5 {
		want = append(want, vitrine.Key{Seq: 2, Attempt: attempt + 1, Rate: 20})
	}
	if len(keys) != len(want) {
		t.Fatalf("trials %v, want %v", keys, want)
	}
	for i := range want {
		if keys[i] != want[i] {
			t.Errorf("trial %d is %v, want %v", i, keys[i], want[i])
		}
	}
	if got := summary.Sizings[0]; got.Trials != 6 || summary.InvalidTrials != 4 || got.Capacities[0].Censored != vitrine.CensoredNone {
		t.Errorf("%d trials, %d invalid, capacity %+v", got.Trials, summary.InvalidTrials, got.Capacities[0])
	}
	for i, own := range n.Own {
		if !(own >= 0) {
			t.Errorf("trial %d: the run used %v CPUs", i, own)
		}
	}
}

// TestTooNoisyHost checks that a host that stays noisy ends the run with an error that names the
// disturbance. Resumed on a quiet host, the run must repeat no trial and reach its end.
func TestTooNoisyHost(t *testing.T) {
	t.Parallel()
	c, _ := setUpNoise(t, func(int) bool { return true })
	_, err := c.measure(t.Context())
	if err == nil || !strings.Contains(err.Error(), "this host is too noisy") || !strings.Contains(err.Error(), quiettest.Reason) {
		t.Fatalf("error %v", err)
	}
	if advises, canWake := strings.Contains(err.Error(), "servers.keep_awake: on"), quiet.TryAwake() == nil; advises != canWake {
		t.Errorf("the error is %v; the CPUs can be kept awake: %t", err, canWake)
	}
	if strings.Contains(err.Error(), "cpupower") {
		t.Errorf("the error is %v, but the governor is not known", err)
	}
	outcomes := filepath.Join(c.dir, "outcomes.jsonl")
	before, err := os.ReadFile(outcomes)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(c.outcomes()); n != 5 {
		t.Fatalf("%d trials before the end, want 5", n)
	}
	n := &quiettest.Noise{Disturbs: func(trial int) bool { return trial == 0 }}
	c.config.Watch = n.Watch
	summary, err := c.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(outcomes)
	if err != nil || !bytes.HasPrefix(after, before) {
		t.Fatalf("recorded trials changed: %v", err)
	}
	if len(n.Own) != 3 || len(c.outcomes()) != 8 || summary.Partial {
		t.Errorf("%d trials after the resume, %d in all, partial %t; want 3, 8, false", len(n.Own), len(c.outcomes()), summary.Partial)
	}
	if last := c.outcomes()[6]; last.Seq != 1 || last.Attempt != 7 || !last.Valid {
		t.Errorf("the last trial is %+v, want the seventh attempt at trial 1", last.Key)
	}
}

// TestSlowClock checks that the error of a run on slow CPUs names the governor that lowers the clock.
func TestSlowClock(t *testing.T) {
	t.Parallel()
	c, n := setUpNoise(t, func(int) bool { return true })
	n.Why = "disturbed: CPU 1 ran at 0.71 of its best speed, as with a lower clock"
	results, err := result.Create(c.dir, result.Manifest{Host: result.Host{Governor: "powersave"}})
	if err == nil {
		err = results.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.measure(t.Context()); !errors.Is(err, quiet.ErrTooNoisy) || !strings.Contains(err.Error(), "governor is powersave") || !strings.Contains(err.Error(), "cpupower frequency-set -g performance") {
		t.Errorf("error %v", err)
	}
}

// TestFailedTrialOnDisturbedHost checks a trial that fails on a disturbed host. Its outcome must
// have both reasons, and the failure must not count as the generator's fault.
func TestFailedTrialOnDisturbedHost(t *testing.T) {
	t.Parallel()
	c, _ := setUpNoise(t, func(int) bool { return true })
	c.config.Generator = nil
	c.config.Workload.Program = "/bin/false"
	if _, err := c.measure(t.Context()); err == nil || !strings.Contains(err.Error(), "this host is too noisy") {
		t.Fatalf("error %v", err)
	}
	outcomes := c.someOutcomes()
	for _, o := range outcomes {
		if !o.Disturbed || !strings.HasPrefix(o.Reason, "disturbed: a neighbour; the generator ended (exit status 1)") {
			t.Errorf("trial %d.%d: disturbed %t, reason %q", o.Seq, o.Attempt, o.Disturbed, o.Reason)
		}
	}
}

// TestWatchFails checks that the run ends with the reason if the host cannot be watched.
func TestWatchFails(t *testing.T) {
	t.Parallel()
	c, _ := setUpNoise(t, nil)
	blind := errors.New("no /proc")
	c.config.Watch = func(context.Context) (quiet.Watch, error) { return nil, blind }
	if _, err := c.measure(t.Context()); !errors.Is(err, blind) {
		t.Errorf("error %v, want %v", err, blind)
	}
}
