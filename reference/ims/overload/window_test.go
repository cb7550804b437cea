package overload

import (
	"container/heap"
	"testing"
	"time"
)

// A model simulates calls of three consecutive requests through one queue with
// one server, behind a Window. As with registrations, only the first request may
// be refused.
type model struct {
	w       *Window
	now     time.Time
	service func(now time.Time) time.Duration // service time of one request
	events  events
	free    time.Time // when the server is free

	offered, refused, done, crowded int
}

// An event is the answer to a request.
type event struct {
	at      time.Time
	arrived time.Time
	step    int
}

type events []event

func (h events) Len() int           { return len(h) }
func (h events) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h events) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *events) Push(x any)        { *h = append(*h, x.(event)) }
func (h *events) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

func newModel(target time.Duration, service func(time.Time) time.Duration) *model {
	return &model{w: NewWindow(target, start), now: start, free: start, service: service}
}

// drive offers rate calls/s for d and counts the results of that time.
func (m *model) drive(rate float64, d time.Duration) {
	m.offered, m.refused, m.done, m.crowded = 0, 0, 0, 0
	gap := time.Duration(float64(time.Second) / rate)
	end := m.now.Add(d)
	for next := m.now; next.Before(end); next = next.Add(gap) {
		m.until(next)
		m.offered++
		if m.w.Full(next, next) {
			m.refused++
		} else {
			m.request(next, 1)
		}
	}
	m.until(end)
}

func (m *model) request(now time.Time, step int) {
	if step > 1 && m.w.Crowded(now, now) {
		m.crowded++
		return
	}
	m.w.Enter()
	if m.free.Before(now) {
		m.free = now
	}
	m.free = m.free.Add(m.service(m.free))
	heap.Push(&m.events, event{at: m.free, arrived: now, step: step})
}

func (m *model) until(end time.Time) {
	for len(m.events) > 0 && m.events[0].at.Before(end) {
		e := heap.Pop(&m.events).(event)
		m.w.Leave(e.at, e.at.Sub(e.arrived))
		if e.step == 3 {
			m.done++
		} else {
			m.request(e.at, e.step+1)
		}
	}
	m.now = end
}

// every returns a service time of d for each request.
func every(d time.Duration) func(time.Time) time.Duration {
	return func(time.Time) time.Duration { return d }
}

const target = 200 * time.Millisecond

// TestWindowHoldsGoodput checks that, at each multiple of the capacity, the
// window keeps the server busy and the delay near the target, whatever the
// capacity is.
func TestWindowHoldsGoodput(t *testing.T) {
	for _, capacity := range []float64{40, 150, 1000} {
		for _, load := range []float64{1.25, 2, 4, 20} {
			m := newModel(target, every(time.Duration(float64(time.Second)/capacity/3)))
			m.drive(load*capacity, 3*time.Second)
			m.drive(load*capacity, 20*time.Second)
			goodput := float64(m.done) / 20 / capacity
			if goodput < 0.95 || m.crowded > 0 {
				t.Errorf("%g calls/s, load %g: got goodput %.2f of the capacity, %d refused late", capacity, load, goodput, m.crowded)
			}
			if delay := float64(m.w.InFlight()) / (3 * capacity); delay > 3*target.Seconds() {
				t.Errorf("%g calls/s, load %g: got delay %.2f s", capacity, load, delay)
			}
		}
	}
}

// TestWindowLetsStallsPass checks that below the capacity nothing is refused,
// even if the server sometimes stalls for the time of a garbage collection.
func TestWindowLetsStallsPass(t *testing.T) {
	const capacity = 150
	stalled := 0
	m := newModel(target, nil)
	m.service = func(now time.Time) time.Duration {
		d := time.Second / capacity / 3
		if n := int(now.Sub(start) / (3 * time.Second)); n > stalled {
			stalled = n
			return d + 150*time.Millisecond
		}
		return d
	}
	m.drive(0.85*capacity, 60*time.Second)
	if m.refused > 0 || stalled < 15 {
		t.Errorf("refused %d of %d calls in %d stalls", m.refused, m.offered, stalled)
	}
}

// TestWindowRecovers checks that every call is admitted two seconds after a stall
// of one second, and two seconds after an overload.
func TestWindowRecovers(t *testing.T) {
	const capacity = 150
	var outage time.Time
	m := newModel(target, nil)
	m.service = func(now time.Time) time.Duration {
		d := time.Second / capacity / 3
		if !outage.IsZero() && now.After(outage) {
			outage = time.Time{}
			return d + time.Second
		}
		return d
	}
	m.drive(100, 5*time.Second)
	outage = m.now
	m.drive(100, 3*time.Second)
	m.drive(100, 5*time.Second)
	if m.refused > 0 {
		t.Errorf("refused %d of %d calls two seconds after a stall", m.refused, m.offered)
	}
	m.drive(10*capacity, 10*time.Second)
	m.drive(0.85*capacity, 2*time.Second)
	m.drive(0.85*capacity, 5*time.Second)
	if m.refused > 0 || m.done < m.offered*95/100 {
		t.Errorf("refused %d of %d calls, completed %d, two seconds after an overload", m.refused, m.offered, m.done)
	}
}

// TestWindowFollowsCapacity checks that the window follows a rise and a fall of
// the capacity during an overload.
func TestWindowFollowsCapacity(t *testing.T) {
	capacity := 100.0
	m := newModel(target, nil)
	m.service = func(time.Time) time.Duration { return time.Duration(float64(time.Second) / capacity / 3) }
	m.drive(1000, 5*time.Second)
	for _, capacity = range []float64{800, 50, 120} {
		m.drive(1000, 6*time.Second)
		m.drive(1000, 10*time.Second)
		if goodput := float64(m.done) / 10; goodput < 0.9*capacity {
			t.Errorf("got goodput %g of %g calls/s", goodput, capacity)
		}
		if delay := float64(m.w.InFlight()) / (3 * capacity); delay > 3*target.Seconds() {
			t.Errorf("%g calls/s: got delay %.2f s", capacity, delay)
		}
	}
}

// TestWindowCountsTheReceiveQueue checks that requests in the receive queue
// count, because the entry itself may be slow.
func TestWindowCountsTheReceiveQueue(t *testing.T) {
	m := newModel(target, every(time.Millisecond))
	m.drive(100, 5*time.Second)
	if m.w.Full(m.now, m.now) {
		t.Error("the window is full without load")
	}
	if late := m.now.Add(-time.Second); !m.w.Full(m.now, late) {
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
