package simulated

import (
	"bytes"
	"context"
	"math"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/load"
)

// serving is the running component, with a way to drive it. Its address is one to which Go would
// use a proxy, and the environment names a proxy that does not exist: no request may go through it.
type serving struct {
	t      *testing.T
	clock  time.Time
	target string
}

func serve(t *testing.T, sizing string) *serving {
	t.Helper()
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	size, err := vitrine.ParseSizing(sizing)
	if err != nil {
		t.Fatal(err)
	}
	s := &serving{t: t, clock: time.Unix(1, 0)}
	server := httptest.NewServer(&host{sizing: size, now: func() time.Time { return s.clock }})
	t.Cleanup(server.Close)
	s.target = strings.Replace(strings.TrimPrefix(server.URL, "http://"), "127.0.0.1", "0.0.0.0", 1) // Go never uses a proxy to 127.0.0.1
	return s
}

func (s *serving) trial(rate, duration float64, params map[string]string) vitrine.Outcome {
	s.t.Helper()
	var out bytes.Buffer
	trial := load.Trial{Rate: rate, Duration: duration, Targets: []string{s.target}, Seed: 1, Params: params}
	if err := Run(context.Background(), trial, &out, nil); err != nil {
		s.t.Fatal(err)
	}
	report, err := load.ParseReport(&out)
	if err != nil {
		s.t.Fatal(err)
	}
	o, err := report.Outcome(vitrine.Key{Rate: rate}, time.Duration(duration*float64(time.Second)))
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// TestReportMatchesTheTrial checks the report of a trial. ParseReport checks the contract.
func TestReportMatchesTheTrial(t *testing.T) {
	s := serve(t, "fn2l")
	o := s.trial(1500, 300, map[string]string{"demand": "fn=4ms", "vcpus": "s=1,l=2"}) // 2 of 2 CPUs: 1000 calls/s
	if o.Duration != 300*time.Second || len(o.Seconds) != 300 || o.Scheduled != 450_000 || !o.Valid {
		t.Errorf("got %s, %d seconds, %d calls, %s", o.Duration, len(o.Seconds), o.Scheduled, o.Reason)
	}
	if r := o.SuccessRatio(); math.Abs(r-1000.0/1500) > 0.01 {
		t.Errorf("got success ratio %.3f, want 2/3", r)
	}
	if !(o.Latency.P50 > 0 && o.Latency.P50 < o.Latency.P95) {
		t.Errorf("%+v", o.Latency)
	}
	if o := s.trial(10, 1.5, map[string]string{"demand": "fn=4ms", "vcpus": "s=1,l=2"}); o.Scheduled != 15 || len(o.Seconds) != 2 {
		t.Errorf("got %d calls in %d seconds for a trial of 1.5 s", o.Scheduled, len(o.Seconds))
	}
	if o := s.trial(100, 10, map[string]string{"vcpus": "l=9", "ceiling": "50"}); o.Valid {
		t.Error("a trial above the generator's ceiling is valid")
	}
}

// TestPoissonArrivals checks that the number of calls per second has the variance
// of a Poisson process, and that the same seed gives the same calls.
func TestPoissonArrivals(t *testing.T) {
	params := map[string]string{"demand": "fn=1ms", "arrivals": "poisson", "queue": "5"}
	o := serve(t, "fn1s").trial(400, 400, params)
	squares := 0.0
	for _, s := range o.Seconds {
		squares += (float64(s.Scheduled) - 400) * (float64(s.Scheduled) - 400)
	}
	if dispersion := squares / 400 / 400; dispersion < 0.7 || dispersion > 1.3 {
		t.Errorf("counts have variance / mean %.2f, want 1", dispersion)
	}
	if r := o.SuccessRatio(); r != 1 {
		t.Errorf("at 0.4 of the capacity: got success ratio %.4f, want 1", r)
	}
	if again := serve(t, "fn1s").trial(400, 400, params); again.Scheduled != o.Scheduled {
		t.Errorf("got %d calls, then %d with the same seed", o.Scheduled, again.Scheduled)
	}
	if few := serve(t, "fn1s").trial(0.5, 100, params); few.Succeeded != few.Scheduled {
		t.Errorf("%d of %d calls succeeded at 0.5 calls/s", few.Succeeded, few.Scheduled)
	}
}

// TestInFlight checks that the calls in flight are those that the function reports, or otherwise
// rate x latency.
func TestInFlight(t *testing.T) {
	s := serve(t, "fn1s")
	trial := load.Trial{Rate: 900, Duration: 20, Warmup: 2, Targets: []string{s.target}, Seed: 1, Params: map[string]string{"demand": "fn=1ms"}}
	a, err := requestTrial(t.Context(), trial)
	if err != nil {
		t.Fatal(err)
	}
	a.Latency.P50, a.InFlight = 100*math.Ln2, nil // mean 100 ms: 90 calls
	r, err := record(trial, a)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.InFlight) != 200 {
		t.Fatalf("got %d samples in 20 s, want 200", len(r.InFlight))
	}
	for i, n := range r.InFlight {
		if n < 40 || n > 140 {
			t.Errorf("got %d calls in flight at sample %d, want about 90", n, i)
		}
	}
	a.InFlight = make([]int64, 200)
	a.InFlight[7] = 7
	if r, err = record(trial, a); err != nil || r.InFlight[7] != 7 || r.InFlight[8] != 0 {
		t.Errorf("got in flight %v, error %v, want the component's numbers", r.InFlight, err)
	}
}

// TestOverloadLingersInTheComponent checks that damage from an overload heals by rest and in a
// fresh component. The component's own clock measures the rest.
func TestOverloadLingersInTheComponent(t *testing.T) {
	params := map[string]string{"demand": "fn=1ms", "damage": "0.4", "recovery": "10"}
	s := serve(t, "fn1s")
	if r := s.trial(950, 10, params).SuccessRatio(); r != 1 {
		t.Fatalf("before the overload: got success ratio %.3f, want 1", r)
	}
	s.trial(3000, 10, params)
	if r := s.trial(950, 10, params).SuccessRatio(); r > 0.7 {
		t.Errorf("right after an overload: got success ratio %.3f, want at most 0.7", r)
	}
	s.clock = s.clock.Add(10 * time.Minute)
	if r := s.trial(950, 10, params).SuccessRatio(); r < 0.999 {
		t.Errorf("after a pause: got success ratio %.3f, want 1", r)
	}
	s.trial(3000, 10, params)
	if r := serve(t, "fn1s").trial(950, 10, params).SuccessRatio(); r != 1 {
		t.Errorf("fresh component: got success ratio %.3f, want 1", r)
	}
}

func TestWrongParametersAreNamed(t *testing.T) {
	for want, given := range map[string]map[string]string{
		`speed "9"`:      {"speed": "9"},
		`collapse "0"`:   {"collapse": "0"},
		`noise "loud"`:   {"noise": "loud"},
		`arrivals "odd"`: {"arrivals": "odd"},
		`demand "fn"`:    {"demand": "fn"},
		`demand "fn=0s"`: {"demand": "fn=0s"},
		`vcpus "s=-1"`:   {"vcpus": "s=-1"},
	} {
		if _, err := Decode(given); !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", given, err)
		}
	}
	p := Defaults()
	for want, sizing := range map[string]string{"component bn": "bn1s", "flavor l": "fn1l"} {
		size, err := vitrine.ParseSizing(sizing)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Function(size); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", sizing, err)
		}
	}
}

func TestServeRefusesWrongArguments(t *testing.T) {
	for _, args := range [][]string{{}, {"--listen", "here"}, {"--listen", "127.0.0.1:0", "--sizing", "9"}, {"--fast"}} {
		if err := Serve(context.Background(), args, new(bytes.Buffer), nil); !vitrine.IsBadInput(err) {
			t.Errorf("%v: %v", args, err)
		}
	}
	var help bytes.Buffer
	if err := Serve(context.Background(), []string{"--help"}, &help, nil); err != nil || !strings.Contains(help.String(), "--sizing") {
		t.Errorf("%v: %s", err, help.String())
	}
}

func TestServeEndsWithItsContext(t *testing.T) {
	address := hosttest.FreeAddress(t, "tcp")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, []string{"--listen", address, "--sizing", "fn1s"}, nil, nil) }()
	hosttest.Until(t, 30*time.Second, "the component listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
