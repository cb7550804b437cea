package queue

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
)

// sojournCapacity returns the rate at which one call in ten takes longer than the
// timeout, in a queue with one worker and exponential service times. Sojourn
// times in G/M/1 are exponential with rate mu (1 - sigma), so sigma = 1 - ln(10)
// / (mu timeout). It solves sigma = L(mu (1 - sigma)), where L is the Laplace
// transform of the gaps between calls (Kleinrock, Queueing Systems I, 1975,
// section 6.4).
func sojournCapacity(mu, timeout float64, poisson bool) float64 {
	rest := math.Log(10) / (mu * timeout) // 1 - sigma
	if poisson {                          // L(s) = rate / (rate + s)
		return mu * (1 - rest)
	}
	return -mu * rest / math.Log(1-rest) // L(s) = exp(-s / rate)
}

// TestPacingFlatters checks that simulated servers carry what queueing theory
// says under both kinds of arrivals, and that docs/generators.md states these
// figures.
func TestPacingFlatters(t *testing.T) {
	const mu = 100
	capacity := func(timeout float64, poisson bool) float64 {
		s := &Server{Seed: 1, Requests: 1, Rate: mu, Poisson: poisson, Timeout: timeout, Bound: 20 * timeout, Silent: true, work: gaps}
		found := s.find(0.9, effort{calls: 20_000, windows: 4, mostWindows: 4})
		want := sojournCapacity(mu, timeout, poisson)
		if off := math.Abs(math.Log(found.Rate / want)); off > 0.01+4*found.Error {
			t.Errorf("timeout %g s, random arrivals %t: capacity %g, in theory %g", timeout, poisson, found.Rate, want)
		}
		return want
	}
	docs, err := os.ReadFile("../../../docs/generators.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(docs)), " ")
	random, paced := capacity(0.1, true), capacity(0.1, false)
	for _, want := range []string{
		fmt.Sprintf("If clients give up after 100 ms, at a success ratio of 0.9 it carries %.0f calls a second with random arrivals and %.0f with paced ones: %.0f%% more", random, paced, 100*(paced/random-1)),
		fmt.Sprintf("If they give up after 1 s, the figures are %.0f and %.0f.", capacity(1, true), capacity(1, false)),
	} {
		if !strings.Contains(text, want) {
			t.Errorf("docs/generators.md does not say %q", want)
		}
	}
}
