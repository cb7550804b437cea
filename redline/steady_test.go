package redline

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/director/client"
)

// sampled returns a step at 100/s. inFlight returns the transactions in flight at a time after the
// begin of the step, in seconds.
func sampled(length time.Duration, inFlight func(seconds float64) float64) (*sampler, *measured) {
	s := &sampler{objective: Defaults().Objective}
	for at := tick; at <= length; at += tick {
		s.inFlight = append(s.inFlight, int64(inFlight(at.Seconds())))
	}
	n := int64(length.Seconds())
	for range n {
		s.seconds = append(s.seconds, tally{ended: 100, timed: 100})
	}
	return s, &measured{span: client.Span{Duration: length, Begun: uint64(100 * n)}, tally: tally{ended: float64(100 * n)}}
}

// TestSteadyMatchesRateSearch checks the bounds of search/rate at a precision of 0.1 and 100/s, with
// a longer sample interval than a generator has. A step is not steady if its backlog certainly
// grows by more than a tenth of the precision. Growth that ends within the first two thirds of a
// step is steady.
func TestSteadyMatchesRateSearch(t *testing.T) {
	const length = 36 * time.Second
	for name, c := range map[string]struct {
		length   time.Duration
		inFlight func(seconds float64) float64
		steady   bool
	}{
		"flat":                             {length, func(float64) float64 { return 7 }, true},
		"growth of half the sure bound":    {length, func(s float64) float64 { return 100 + 0.5*s }, true},
		"growth of twice the sure bound":   {length, func(s float64) float64 { return 100 + 2*s }, false},
		"a transient in the first third":   {length, func(s float64) float64 { return min(10*s, 100) }, true},
		"growth that began in the middle":  {length, func(s float64) float64 { return max(0, 5*(s-18)) }, false},
		"waves that hide growth of a rate": {6 * time.Second, func(s float64) float64 { return 200 * float64(int(s*0.7)%2) }, false},
		"last third is too short to judge": {6 * time.Second, func(s float64) float64 { return 20 * s }, false},
		"last two thirds are too short":    {3 * time.Second, func(s float64) float64 { return 20 * s }, false},
		"too short to judge":               {2 * time.Second, func(float64) float64 { return 7 }, false},
	} {
		s, m := sampled(c.length, c.inFlight)
		if steady, _ := s.isSteady(m, 0.1); steady != c.steady {
			t.Errorf("%s: steady %v, want %v", name, steady, c.steady)
		}
	}
}

// TestSlowGrowthBoundsFromAbove checks a step whose backlog grows too slowly to break the
// objective. The step must be extended, must not pass, and must bound the capacity from above.
func TestSlowGrowthBoundsFromAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(128)...)
		w.limit = 5 * time.Second
		o := w.options()
		o.Objective.Latency, o.Increase, o.MaxStep = w.limit, 10, time.Minute
		r, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		last := r.Steps[len(r.Steps)-1]
		if r.Verdict != Within || r.Low > 128 || r.High < 128 || r.High > 136 || w.broken > 0 {
			t.Errorf("got %s, and the objective was broken for %s", &r, w.broken)
		}
		if !last.Unresolved || last.Stopped || last.Seconds < o.MaxStep.Seconds()-1 {
			t.Errorf("last step: got %+v", last)
		}
		for _, s := range r.Steps[:len(r.Steps)-1] {
			if s.Unresolved || s.Seconds > 2*o.Step.Seconds() {
				t.Errorf("step below the capacity: got %+v", s)
			}
		}
		w.checkRestored(t)
	})
}

// TestSlowGrowthAtThePresentRate checks that the reason names the backlog if it grows at the present rate,
// but too slowly to break the objective.
func TestSlowGrowthAtThePresentRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(300, 1, three(95)...)
		w.limit = 5 * time.Second
		o := w.options()
		o.Objective.Latency, o.MaxStep = w.limit, time.Minute
		r, err := Run(t.Context(), o)
		if err != nil || r.Verdict != Below || len(r.Steps) != 1 || !r.Steps[0].Unresolved || w.broken > 0 || !strings.Contains(r.Why, "the backlog may grow") {
			t.Errorf("got %s, error %v; steps: %+v; the objective was broken for %s", &r, err, r.Steps, w.broken)
		}
		w.checkRestored(t)
	})
}
