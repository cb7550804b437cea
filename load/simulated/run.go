// Package simulated drives a simulated function (package sim) as if it were
// deployed, so that whole campaigns can run on functions of known capacity. Its
// generator answers at once, and its report claims the requested duration.
//
// The function lives in a component that is really deployed: `vitrine reference
// simulated`, in the first instance of the entry component. So a fresh deployment
// has no damage from an earlier overload, and the campaign controls the rest
// between trials. The workload sets the function's parameters.
package simulated

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"vitrine/load"
)

// timeout is far longer than a simulated trial takes.
const timeout = 30 * time.Second

// Run plays the trial and prints its Report on stdout. It returns a
// *vitrine.BadInput for wrong parameters.
func Run(ctx context.Context, t load.Trial, stdout, _ io.Writer) error {
	if err := t.Check(); err != nil {
		return err
	}
	if _, err := Decode(t.Params); err != nil {
		return err
	}
	a, err := requestTrial(ctx, t)
	if err != nil {
		return err
	}
	report, err := record(t, a)
	if err != nil {
		return fmt.Errorf("generator simulated: %w", err)
	}
	return report.Print(stdout)
}

// requestTrial requests the trial from the first target.
func requestTrial(ctx context.Context, t load.Trial) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	body, err := json.Marshal(request{Params: t.Params, Rate: t.Rate, Duration: t.Duration, Warmup: t.Warmup, Seed: t.Seed})
	if err != nil {
		return a, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.Targets[0]+path, bytes.NewReader(body))
	if err != nil {
		return a, err
	}
	// This transport uses no proxy, whatever HTTP_PROXY says, and keeps no connection.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		return a, fmt.Errorf("generator simulated: the entry component must be `vitrine reference simulated`: %w", err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(got.Body, 4096))
		return a, fmt.Errorf("generator simulated: %s: %s", t.Targets[0], strings.TrimSpace(string(why)))
	}
	if err := json.NewDecoder(got.Body).Decode(&a); err != nil {
		return a, fmt.Errorf("generator simulated: %s: %w", t.Targets[0], err)
	}
	return a, nil
}

// record counts the calls as if they were made now: evenly within each second, or at random if
// arrivals are Poisson. If the function does not report its calls in flight, record derives them
// from the latencies, including the warm-up.
func record(t load.Trial, a answer) (load.Report, error) {
	recorder := load.NewRecorder(t.Duration)
	random := rand.New(rand.NewPCG(t.Seed, math.Float64bits(t.Rate)))
	mean := a.Latency.P50 / math.Ln2 * float64(time.Millisecond) // latencies are exponential, as in sim
	latency := func() time.Duration { return time.Duration(mean * random.ExpFloat64()) }
	for early := range int(t.Rate * t.Warmup) {
		due := -time.Duration(float64(early+1) / t.Rate * float64(time.Second))
		recorder.Offered(due, due)
		recorder.Succeeded(due, latency())
	}
	at := func(i, of int64) float64 { return float64(i) / float64(of) }
	if t.Params["arrivals"] == load.Poisson {
		at = func(int64, int64) float64 { return random.Float64() }
	}
	for second, s := range a.Seconds {
		length := min(1, t.Duration-float64(second))
		for i := range s.Scheduled {
			due := time.Duration((float64(second) + length*at(i, s.Scheduled)) * float64(time.Second))
			recorder.Scheduled(due)
			if i < s.Offered {
				recorder.Offered(due, due)
			}
			switch {
			case i < s.Succeeded:
				recorder.Succeeded(due, latency())
			case i < s.Offered:
				recorder.Failed(due, due, "503")
			}
		}
	}
	report, err := recorder.Report(time.Now())
	if a.InFlight != nil {
		report.InFlight = a.InFlight
	}
	return report, err
}
