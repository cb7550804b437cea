package overload

import (
	"testing"
	"time"

	"vitrine/internal/queuetest"
)

// A windowed is a Window as the control of a simulated function. As with registrations, only the
// first request of a call is refused, unless the window is crowded.
type windowed struct{ *Window }

func (w windowed) Admit(now time.Duration, step int) bool {
	at := start.Add(now)
	if step == 1 && w.Full(at, at) || step > 1 && w.Crowded(at, at) {
		return false
	}
	w.Enter()
	return true
}

func (w windowed) Answered(now, latency time.Duration) { w.Leave(start.Add(now), latency) }

// newServer returns a function behind a new window.
func newServer(service func(now time.Duration) time.Duration) (*queuetest.Server, *Window) {
	w := NewWindow(target, start)
	return &queuetest.Server{Control: windowed{w}, Service: service}, w
}

const target = 200 * time.Millisecond

// TestWindowHoldsGoodput checks that, at each multiple of the capacity, the
// window keeps the server busy and the delay near the target, whatever the
// capacity is.
func TestWindowHoldsGoodput(t *testing.T) {
	for _, capacity := range []float64{40, 150, 1000} {
		for _, load := range []float64{1.25, 2, 4, 20} {
			s, w := newServer(queuetest.Carries(capacity))
			s.Drive(load*capacity, 3*time.Second)
			s.Drive(load*capacity, 20*time.Second)
			goodput := float64(s.Done) / 20 / capacity
			if goodput < 0.95 || s.Broken > 0 {
				t.Errorf("%g calls/s, load %g: got goodput %.2f of the capacity, %d refused late", capacity, load, goodput, s.Broken)
			}
			if delay := float64(w.InFlight()) / (3 * capacity); delay > 3*target.Seconds() {
				t.Errorf("%g calls/s, load %g: got delay %.2f s", capacity, load, delay)
			}
		}
	}
}

// TestWindowStartsGently checks that a fresh window admits no crowd while an overload begins: its
// calls would use the capacity of the next seconds.
func TestWindowStartsGently(t *testing.T) {
	for _, capacity := range []float64{150, 300, 1000} {
		for _, load := range []float64{1.25, 2, 4, 20} {
			s, w := newServer(queuetest.Carries(capacity))
			most := 0
			for range 20 {
				s.Drive(load*capacity, 100*time.Millisecond)
				most = max(most, w.InFlight())
			}
			if delay := float64(most) / (3 * capacity); delay > 2*target.Seconds() {
				t.Errorf("%g calls/s, load %g: up to %d requests in flight, a delay of %.2f s", capacity, load, most, delay)
			}
		}
	}
}

// TestWindowLetsStallsPass checks that below the capacity nothing is refused,
// even if the server sometimes stalls for the time of a garbage collection.
func TestWindowLetsStallsPass(t *testing.T) {
	for _, capacity := range []float64{150, 1000} {
		stalled := 0
		s, _ := newServer(func(now time.Duration) time.Duration {
			d := queuetest.Carries(capacity)(now)
			if n := int(now / (3 * time.Second)); n > stalled {
				stalled = n
				return d + 150*time.Millisecond
			}
			return d
		})
		s.Drive(0.85*capacity, 60*time.Second)
		if s.Refused > 0 || stalled < 15 {
			t.Errorf("%g calls/s: refused %d of %d calls in %d stalls", capacity, s.Refused, s.Offered, stalled)
		}
	}
}

// TestWindowRecovers checks that every call is admitted two seconds after a stall
// of one second, and two seconds after an overload.
func TestWindowRecovers(t *testing.T) {
	const capacity = 150
	var outage time.Duration
	s, _ := newServer(func(now time.Duration) time.Duration {
		d := queuetest.Carries(capacity)(now)
		if outage > 0 && now > outage {
			outage = 0
			return d + time.Second
		}
		return d
	})
	s.Drive(100, 5*time.Second)
	outage = s.Now
	s.Drive(100, 3*time.Second)
	s.Drive(100, 5*time.Second)
	if s.Refused > 0 {
		t.Errorf("refused %d of %d calls two seconds after a stall", s.Refused, s.Offered)
	}
	s.Drive(10*capacity, 10*time.Second)
	s.Drive(0.85*capacity, 2*time.Second)
	s.Drive(0.85*capacity, 5*time.Second)
	if s.Refused > 0 || s.Done < s.Offered*95/100 {
		t.Errorf("refused %d of %d calls, completed %d, two seconds after an overload", s.Refused, s.Offered, s.Done)
	}
}

// TestWindowFollowsCapacity checks that the window follows a rise and a fall of
// the capacity during an overload.
func TestWindowFollowsCapacity(t *testing.T) {
	capacity := 100.0
	s, w := newServer(func(now time.Duration) time.Duration { return queuetest.Carries(capacity)(now) })
	s.Drive(1000, 5*time.Second)
	for _, capacity = range []float64{800, 50, 120} {
		s.Drive(1000, 6*time.Second)
		s.Drive(1000, 10*time.Second)
		if goodput := float64(s.Done) / 10; goodput < 0.9*capacity {
			t.Errorf("got goodput %g of %g calls/s", goodput, capacity)
		}
		if delay := float64(w.InFlight()) / (3 * capacity); delay > 3*target.Seconds() {
			t.Errorf("%g calls/s: got delay %.2f s", capacity, delay)
		}
	}
}

// TestWindowCountsTheReceiveQueue checks that requests in the receive queue
// count, because the entry itself may be slow.
func TestWindowCountsTheReceiveQueue(t *testing.T) {
	s, w := newServer(queuetest.Carries(1000. / 3))
	s.Drive(100, 5*time.Second)
	now := start.Add(s.Now)
	if w.Full(now, now) {
		t.Error("the window is full without load")
	}
	if late := now.Add(-time.Second); !w.Full(now, late) {
		t.Error("the window is not full although it is a second behind")
	}
}

// TestWindowAbandonAndCrowded checks that an abandoned request does not change
// the delay, and that requests of admitted calls are refused only far above the
// limit for new calls.
func TestWindowAbandonAndCrowded(t *testing.T) {
	w := NewWindow(target, start)
	for range int(fresh) {
		w.Enter()
	}
	if !w.Full(start, start) || w.Crowded(start, start) {
		t.Errorf("at the limit: got full %t, crowded %t", w.Full(start, start), w.Crowded(start, start))
	}
	for range (reserve - 1) * int(fresh) {
		w.Enter()
	}
	if !w.Crowded(start, start) {
		t.Error("the window is not crowded far above the limit")
	}
	for range reserve * int(fresh) {
		w.Abandon()
	}
	if w.InFlight() != 0 || w.Limit() != fresh || w.Full(start.Add(time.Minute), start.Add(time.Minute)) {
		t.Errorf("got %d in flight, limit %g", w.InFlight(), w.Limit())
	}
}
