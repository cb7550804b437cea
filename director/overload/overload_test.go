package overload

import (
	"testing"
	"time"

	"vitrine/internal/queuetest"
)

// A gated is a gate that is adjusted ten times a second, as in a director.
type gated struct {
	*Gate
	totals   Totals
	adjusted time.Duration
}

func newServer(config Config, service func(now time.Duration) time.Duration) *queuetest.Server {
	return &queuetest.Server{Control: &gated{Gate: New(config, start), adjusted: start}, Service: service, Now: start}
}

func (g *gated) Admit(now time.Duration, step int) bool {
	g.adjust(now)
	if step == 1 {
		return g.Gate.Admit(now, Begins)
	}
	return g.Gate.Admit(now, Continues)
}

func (g *gated) Answered(now, latency time.Duration) {
	g.adjust(now)
	g.totals.Answered++
	g.totals.Latency += latency
}

func (g *gated) adjust(now time.Duration) {
	for ; g.adjusted+100*time.Millisecond <= now; g.adjusted += 100 * time.Millisecond {
		g.Adjust(g.adjusted+100*time.Millisecond, g.totals)
	}
}

// usual is the configuration of most gates here.
func usual() Config {
	return Config{Target: 100 * time.Millisecond, Initial: 1000, Min: 10}
}

// TestGateHoldsGoodput checks that in an overload the calls per second stay near the capacity.
func TestGateHoldsGoodput(t *testing.T) {
	for _, capacity := range []float64{40, 150, 1000} {
		for _, load := range []float64{1.25, 2, 4, 20} {
			s := newServer(usual(), queuetest.Carries(capacity))
			s.Drive(load*capacity, 10*time.Second)
			s.Drive(load*capacity, 30*time.Second)
			if goodput := float64(s.Done) / 30 / capacity; goodput < 0.85 {
				t.Errorf("%g calls/s, load %g: got goodput %.2f of the capacity, %d calls broken", capacity, load, goodput, s.Broken)
			}
		}
	}
}

// TestGateRecovers checks that everything is admitted again two seconds after an overload, and
// two seconds after an outage of five seconds.
func TestGateRecovers(t *testing.T) {
	const capacity, load = 150, 0.85 * 150
	var outage time.Duration
	s := newServer(usual(), func(now time.Duration) time.Duration {
		if now < outage {
			return outage - now
		}
		return queuetest.Carries(capacity)(now)
	})
	s.Drive(load, 5*time.Second)
	s.Drive(4*capacity, 10*time.Second)
	s.Drive(load, 2*time.Second)
	if s.Drive(load, 5*time.Second); s.Refused+s.Broken > 0 {
		t.Errorf("%d requests of %d calls are refused two seconds after an overload", s.Refused+s.Broken, s.Offered)
	}
	outage = s.Now + 5*time.Second
	s.Drive(load, 7*time.Second)
	s.Drive(load, 2*time.Second)
	if s.Drive(load, 5*time.Second); s.Refused+s.Broken > 0 {
		t.Errorf("%d requests of %d calls are refused four seconds after an outage", s.Refused+s.Broken, s.Offered)
	}
}

// TestGateOpensFast checks that a gate whose initial rate is a hundredth of the load admits
// everything after three seconds.
func TestGateOpensFast(t *testing.T) {
	s := newServer(Config{Target: 100 * time.Millisecond, Initial: 240, Min: 10, Burst: 1}, queuetest.Carries(10_000))
	s.Drive(8000, 3*time.Second)
	if s.Drive(8000, time.Second); s.Refused+s.Broken > 0 {
		t.Errorf("%d requests of %d calls are refused after three seconds", s.Refused+s.Broken, s.Offered)
	}
}

// TestGateLetsStallsPass checks that nothing is refused below the capacity if the function stalls
// now and then for the time of a garbage collection.
func TestGateLetsStallsPass(t *testing.T) {
	const capacity = 150
	stalls := 0
	s := newServer(usual(), func(now time.Duration) time.Duration {
		if n := int((now - start) / (3 * time.Second)); n > stalls {
			stalls = n
			return 200 * time.Millisecond
		}
		return queuetest.Carries(capacity)(now)
	})
	if s.Drive(0.8*capacity, time.Minute); s.Refused+s.Broken > 0 || stalls < 15 {
		t.Errorf("%d requests of %d calls are refused, with %d stalls", s.Refused+s.Broken, s.Offered, stalls)
	}
}

// TestContinuedWorkGoesFirst checks that continued work is admitted when new work is not, and that
// the sum stays within the rate.
func TestContinuedWorkGoesFirst(t *testing.T) {
	g := New(Config{Target: time.Second, Initial: 100, Min: 10, Burst: 10}, start)
	admitted := map[Work]int{}
	for i := range 10_000 { // 1000/s of each
		now := start + time.Duration(i)*time.Millisecond
		for _, work := range []Work{Begins, Continues} {
			if g.Admit(now, work) {
				admitted[work]++
			}
		}
	}
	if sum := admitted[Begins] + admitted[Continues]; sum > 100*11+10 || admitted[Continues] < sum*9/10 {
		t.Errorf("admitted %d of new and %d of continued work in 10 s at 100/s", admitted[Begins], admitted[Continues])
	}
}
