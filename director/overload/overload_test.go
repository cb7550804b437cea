package overload

import (
	"testing"
	"time"
)

// A server is a function behind a gate: one queue, served in order. A call is three requests, as a
// registration that is challenged. A client gives up after two seconds without an answer, but its
// request is served all the same.
type server struct {
	gate     *Gate
	service  func(now time.Duration) time.Duration // of one request
	now      time.Duration
	free     time.Duration // when the queue will be empty
	adjusted time.Duration
	waiting  []request // in the order of their answers
	totals   Totals

	offered, done int // calls
	refused       int // requests
	broken        int // of these, the ones after the first of their call
}

type request struct {
	arrived, answered time.Duration
	step              int // 1 to 3
}

func newServer(service func(now time.Duration) time.Duration) *server {
	const target = 100 * time.Millisecond
	return &server{gate: New(Config{Target: target, Initial: 1000, Min: 10, Burst: 100}, start), service: service, now: start, adjusted: start}
}

// of returns the service time of a function with a capacity in calls per second.
func of(capacity float64) func(time.Duration) time.Duration {
	return func(time.Duration) time.Duration { return time.Duration(float64(time.Second) / capacity / 3) }
}

// drive offers calls at a rate, and counts the calls of that time.
func (s *server) drive(rate float64, d time.Duration) {
	s.offered, s.refused, s.done, s.broken = 0, 0, 0, 0
	gap := time.Duration(float64(time.Second) / rate)
	end := s.now + d
	for next := s.now; next < end; next += gap {
		s.until(next)
		s.offered++
		s.request(next, 1)
	}
	s.until(end)
}

func (s *server) request(now time.Duration, step int) {
	work := Begins
	if step > 1 {
		work = Continues
	}
	if !s.gate.Admit(now, work) {
		s.refused++
		if step > 1 {
			s.broken++
		}
		return
	}
	s.free = max(s.free, now)
	s.free += s.service(s.free)
	s.waiting = append(s.waiting, request{now, s.free, step})
}

func (s *server) until(end time.Duration) {
	const patience = 2 * time.Second
	for len(s.waiting) > 0 && s.waiting[0].answered < end {
		r := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.adjust(r.answered)
		latency := r.answered - r.arrived
		s.totals.Answered++
		s.totals.Latency += latency
		switch {
		case latency > patience: // the client has given up
		case r.step == 3:
			s.done++
		default:
			s.request(r.answered, r.step+1)
		}
	}
	s.adjust(end)
	s.now = end
}

// adjust adjusts the gate ten times a second, as a director does.
func (s *server) adjust(now time.Duration) {
	for ; s.adjusted+100*time.Millisecond <= now; s.adjusted += 100 * time.Millisecond {
		s.gate.Adjust(s.adjusted+100*time.Millisecond, s.totals)
	}
}

// TestGateHoldsGoodput checks that in an overload the calls per second stay near the capacity.
func TestGateHoldsGoodput(t *testing.T) {
	for _, capacity := range []float64{40, 150, 1000} {
		for _, load := range []float64{1.25, 2, 4, 20} {
			s := newServer(of(capacity))
			s.drive(load*capacity, 10*time.Second)
			s.drive(load*capacity, 30*time.Second)
			if goodput := float64(s.done) / 30 / capacity; goodput < 0.85 {
				t.Errorf("%g calls/s, load %g: got goodput %.2f of the capacity, %d calls broken", capacity, load, goodput, s.broken)
			}
		}
	}
}

// TestGateRecovers checks that everything is admitted again two seconds after an overload, and
// two seconds after an outage of five seconds.
func TestGateRecovers(t *testing.T) {
	const capacity, load = 150, 0.85 * 150
	var outage time.Duration
	s := newServer(func(now time.Duration) time.Duration {
		if now < outage {
			return outage - now
		}
		return of(capacity)(now)
	})
	s.drive(load, 5*time.Second)
	s.drive(4*capacity, 10*time.Second)
	s.drive(load, 2*time.Second)
	if s.drive(load, 5*time.Second); s.refused > 0 {
		t.Errorf("%d requests of %d calls are refused two seconds after an overload", s.refused, s.offered)
	}
	outage = s.now + 5*time.Second
	s.drive(load, 7*time.Second)
	s.drive(load, 2*time.Second)
	if s.drive(load, 5*time.Second); s.refused > 0 {
		t.Errorf("%d requests of %d calls are refused four seconds after an outage", s.refused, s.offered)
	}
}

// TestGateOpensFast checks that a gate whose initial rate is a hundredth of the load admits
// everything after three seconds.
func TestGateOpensFast(t *testing.T) {
	s := newServer(of(10_000))
	s.gate = New(Config{Target: 100 * time.Millisecond, Initial: 240, Min: 10, Burst: 1}, start)
	s.drive(8000, 3*time.Second)
	if s.drive(8000, time.Second); s.refused > 0 {
		t.Errorf("%d requests of %d calls are refused after three seconds", s.refused, s.offered)
	}
}

// TestGateLetsStallsPass checks that nothing is refused below the capacity if the function stalls
// now and then for the time of a garbage collection.
func TestGateLetsStallsPass(t *testing.T) {
	const capacity = 150
	stalls := 0
	s := newServer(func(now time.Duration) time.Duration {
		if n := int((now - start) / (3 * time.Second)); n > stalls {
			stalls = n
			return 200 * time.Millisecond
		}
		return of(capacity)(now)
	})
	if s.drive(0.8*capacity, time.Minute); s.refused > 0 || stalls < 15 {
		t.Errorf("%d requests of %d calls are refused, with %d stalls", s.refused, s.offered, stalls)
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
