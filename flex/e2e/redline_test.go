package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"vitrine/director/client"
	"vitrine/director/directortest"
	"vitrine/flex"
	"vitrine/internal/hosttest"
	"vitrine/load"
	"vitrine/redline"
)

// servesVariable makes the test binary a member of an aggregate. Its value is the capacity of
// the member in requests per second.
const servesVariable = "FLEX_E2E_SERVES"

// serveMember serves until SIGTERM, and returns the exit status.
func serveMember(capacity, address string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	rate, err := strconv.ParseFloat(capacity, 64)
	if err == nil {
		err = directortest.ServeAt(ctx, rate, address)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// The true capacity of an instance (carries) and its capacity in yesterday's profile (carried), in
// requests per second. By the profile, two instances carry the load with headroom. In truth they
// have too little headroom.
const (
	carries     = 100
	carried     = 400.0
	declared    = 350
	keptFree    = 0.4
	offered     = 175.0
	perRegister = 2 // requests of a call: the first is not challenged
	size        = "sv1s"
)

// newStale returns a system whose capacity was last measured yesterday. A measurement is due.
func newStale(t *testing.T) *system {
	t.Helper()
	s := newBare(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.writeDirector(`health: {sip: "off"}`) // an instance answers checks in turn, so that they are late before calls are
	s.write("deployment.yaml", fmt.Sprintf(`
vnf_name: paced
components:
  - name: server
    short: sv
    command: [%q, "${ADDRESS}:5060"]
    environment: {%s: "%d"}
    ports: {sip: 5060}
    entry: sip
    ready: {sip: sip}
flavors: [{name: small, vcpus: 0.3, memory: 512MiB}]
mode: {name: custom, sizes: [%s]}
`, self, servesVariable, carries, size))
	s.write("flex.yaml", fmt.Sprintf(`
directors: [{control: %[1]q}]
services:
  - {name: director, command: [vitrine, director, run, director.yaml], ready: %[1]q}
types:
  - name: registration
    deployment: deployment.yaml
    flavors: [{size: %s, rate: %d}]
    max: 4
    headroom: %g
    boot: 2s
    stable: 10m
    objective: {p99: 1s, success: 0.99}
    redline: {every: 24h, step: 1s, max_step: 10s}
servers: {substrate: process, fabric: loopback}
`, s.control, size, declared, keptFree))
	now := time.Now()
	s.remember(map[string]*flex.Profile{"registration": {
		Given: map[string]float64{size: declared}, Measured: map[string]float64{size: carried}, Next: now.Add(-time.Hour),
		History: []flex.Measured{{
			At: now.Add(-25 * time.Hour), Size: size, Instance: "registration-9", Cause: "first", Reason: "the type was not measured before",
			Verdict: redline.Within, Rate: 410, Low: carried, High: 420, Before: declared, After: carried,
		}},
	}})
	return s
}

// remember writes the state file of an earlier orchestrator. It has only profiles.
func (s *system) remember(profiles map[string]*flex.Profile) {
	s.t.Helper()
	text, err := json.Marshal(map[string]any{"version": 1, "profiles": profiles})
	folder := s.file + ".flex"
	if err == nil {
		err = os.Mkdir(folder, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, flex.StateFile), text, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// A stream makes calls at a constant rate until it is stopped. It runs short generators one
// after the other, because an interrupted generator does not report.
type stream struct {
	s    *system
	stop context.CancelFunc
	done chan struct{}
	all  []*calls
	err  error
}

// slice is how long a generator of a stream offers calls.
const slice = 10 * time.Second

// stream starts a stream. rate is in requests per second; a call has perRegister requests.
func (s *system) stream(name string, rate float64) *stream {
	ctx, stop := context.WithCancel(s.t.Context())
	f := &stream{s: s, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for start := time.Now(); ctx.Err() == nil && f.err == nil; {
			n := len(f.all)
			var c *calls
			if c, f.err = s.generate(fmt.Sprintf("%s-%d", name, n), load.Trial{
				Rate: rate / perRegister, Duration: slice.Seconds(), Seed: uint64(n), Params: map[string]string{"digest": "false", "retransmit": "false"}, // an instance would serve each retransmission as a new request
			}); f.err == nil {
				f.all = append(f.all, c)
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Until(start.Add(time.Duration(n+1) * slice))):
			}
		}
	}()
	s.t.Cleanup(func() {
		stop()
		<-f.done
	})
	return f
}

// allSucceed ends the stream and checks that every call succeeded.
func (f *stream) allSucceed(t *testing.T) {
	t.Helper()
	f.stop()
	<-f.done
	if f.err != nil {
		t.Fatal(f.err)
	}
	for _, c := range f.all {
		c.allSucceed(t, slice.Seconds())
	}
}

// TestScheduledRedline lets the orchestrator measure an instance whose capacity has fallen since
// yesterday's profile. The measurement runs under load. No call may be lost, and the type must not
// be scaled meanwhile. Afterwards the orchestrator must use the measured capacity, and start the
// missing instance.
func TestScheduledRedline(t *testing.T) {
	const tries = 3 // attempts on a host that is too busy
	for try := 1; ; try++ {
		s := newStale(t)
		two := s.run("--policy", "fixed=2")
		s.awaitOnly("registration-1", "registration-2")
		two.end(syscall.SIGKILL)
		o := s.run()
		load := s.stream("load", offered)
		s.awaitMeasurement()
		got := s.measured()
		t.Log(&got)
		if got.Verdict != redline.Within && try < tries {
			load.stop()
			o.end(syscall.SIGTERM)
			continue
		}
		s.checkMeasured(&got)
		s.checkUsed(&got)
		load.allSucceed(t)
		o.end(syscall.SIGTERM)
		return
	}
}

// awaitMeasurement waits for the start and the end of a measurement. The orchestrator must hold the
// type's lease during the measurement, and not afterwards.
func (s *system) awaitMeasurement() {
	s.t.Helper()
	director, err := client.New(client.Access{URL: s.control})
	if err != nil {
		s.t.Fatal(err)
	}
	holder := func() string {
		l, err := director.Lease(s.t.Context(), "registration")
		if err != nil {
			s.t.Fatal(err)
		}
		return l.Holder
	}
	hosttest.Until(s.t, limit, "a measurement begins", func() bool { return s.count(flex.EventMeasure) > 0 })
	held := ""
	hosttest.Until(s.t, 2*limit, "the measurement ends", func() bool {
		if now := holder(); now != "" {
			held = now
		}
		return s.count(flex.EventMeasured) > 0
	})
	if !strings.HasPrefix(held, "flex, pid ") {
		s.t.Errorf("holder of the lease: got %q, want flex", held)
	}
	if left := holder(); left != "" {
		s.t.Errorf("%s still holds the lease after the measurement", left)
	}
}

// measured returns the last measurement, which appears in the state file soon after its event.
func (s *system) measured() (last flex.Measured) {
	s.t.Helper()
	hosttest.Until(s.t, limit, "yesterday's measurement and one more in the history", func() bool {
		all, err := flex.Histories(s.file + ".flex")
		if err != nil {
			s.t.Fatal(err)
		}
		history := all["registration"]
		last = history[len(history)-1]
		return len(history) == 2
	})
	return last
}

// checkMeasured checks the result and the profile. The type must not have been scaled during the
// measurement.
func (s *system) checkMeasured(got *flex.Measured) {
	s.t.Helper()
	if got.Verdict != redline.Within || got.Cause != "schedule" || got.Before != carried || got.After != got.Low {
		s.t.Errorf("got %+v, want an interval limited by the schedule", got)
	}
	if !(got.Low > offered/3 && got.Low <= got.Rate && got.Rate <= got.High) || got.Low > 1.1*carries || got.High < 0.85*carries {
		s.t.Errorf("got %s for an instance with a capacity of %d/s", got, carries)
	}
	out, status := s.verb("profile")
	if status != 0 || strings.Count(out, got.Instance) != 1 || !strings.Contains(out, "schedule") || !strings.Contains(out, got.String()) || !strings.Contains(out, "registration-9") {
		s.t.Errorf("profile: %d: %s", status, out)
	}
	during := false
	for _, e := range s.events() {
		switch {
		case e.Kind == flex.EventMeasure:
			during = true
		case e.Kind == flex.EventMeasured:
			return
		case during && e.Instance != "":
			s.t.Errorf("during the measurement of %s: %+v", got.Instance, e)
		}
	}
}

// checkUsed checks that the orchestrator starts an instance because of the measured capacity, and
// says so.
func (s *system) checkUsed(got *flex.Measured) {
	s.t.Helper()
	want := fmt.Sprintf("%.4g/s can be carried", 2*got.After*(1-keptFree))
	hosttest.Until(s.t, limit, "a start because "+want, func() bool {
		measured := false
		for _, e := range s.events() {
			measured = measured || e.Kind == flex.EventMeasured
			if measured && e.Kind == flex.EventStart && strings.Contains(e.Reason, want) {
				return true
			}
		}
		return false
	})
	hosttest.Until(s.t, limit, "a third instance", func() bool { return len(s.names("active")) >= 3 })
	if out, _ := s.verb("explain", "registration"); !strings.Contains(out, got.String()) || !strings.Contains(out, want) {
		s.t.Errorf("explain: %s", out)
	}
}
