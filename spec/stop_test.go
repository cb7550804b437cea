package spec

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"vitrine"
)

func stop(t *testing.T, expression string) func(vitrine.Outcome) bool {
	t.Helper()
	text := fmt.Sprintf("{generator: sip, parameters: {scenario: reg-dereg}, range: [1, 2], increase: 1, duration: 1s, search: ramp, stop: %q}", expression)
	w, err := ParseWorkload("w.yaml", []byte(text), known())
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return w.StopWhen()
}

func outcome() vitrine.Outcome {
	return vitrine.Outcome{
		Key: vitrine.Key{Rate: 100}, Duration: 10 * time.Second,
		Scheduled: 1000, Offered: 995, Succeeded: 790, Failed: map[string]int64{"503": 200, "timeout": 10},
		Latency: vitrine.Latency{P50: 1.5, P95: 20, P99: 300},
	}
}

func TestStop(t *testing.T) {
	for expression, want := range map[string]bool{
		"scr / icr < 0.8":                            true,
		"scr / icr < 0.79":                           false,
		"scr == 79.0 && icr == 100.0":                true,
		"rate == icr":                                true,
		"duration_s == 10":                           true,
		"failed > 209":                               true,
		"failed > 210":                               false,
		"210 == failed":                              true,
		"scheduled - offered >= 5":                   true,
		"succeeded == 790":                           true,
		"success_ratio < 0.8":                        true,
		"latency_p50_ms > 1":                         true,
		"latency_p95_ms < 20":                        false,
		"latency_p99_ms > 299.5":                     true,
		"success_ratio < 0.5 || failed > 2.0 * 50.0": true,
		"failed * 2 > scheduled / 3u":                true,
		"-210 + failed == 0":                         true,
		"1 / 0 > 2":                                  true,  // infinite
		"int(0.0 / 0.0) > 2":                         false, // the evaluation fails
		"failed / 0.0 > 1.0":                         true,  // infinite
		"!(failed > 1)":                              false,
		"failed > 1 ? scr < 80 : false":              true,
	} {
		if got := stop(t, expression)(outcome()); got != want {
			t.Errorf("%s is %v, want %v", expression, got, want)
		}
	}
}

// TestStopOfNothing checks that an empty outcome does not stop a search.
func TestStopOfNothing(t *testing.T) {
	if stop(t, "scr / icr < 0.8")(vitrine.Outcome{}) {
		t.Error("0/0 is below 0.8")
	}
}

func TestStopConcurrently(t *testing.T) {
	holds := stop(t, "failed > 5")
	var group sync.WaitGroup
	for i := range int64(50) {
		group.Go(func() {
			if got := holds(vitrine.Outcome{Failed: map[string]int64{"x": i}}); got != (i > 5) {
				t.Errorf("failed > 5 is %v of %d", got, i)
			}
		})
	}
	group.Wait()
}
