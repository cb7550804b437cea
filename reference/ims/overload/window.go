package overload

import (
	"sync"
	"time"
)

// The modes of load control.
const (
	Graceful   = "graceful"   // a Window refuses new calls at the entry
	Clearwater = "clearwater" // a Monitor refuses requests of new and admitted calls alike (NFV-VITAL, II.B.2)
	Off        = "off"        // nothing is refused
)

// Modes returns the modes, the default first.
func Modes() []string { return []string{Graceful, Clearwater, Off} }

const (
	// interval is the time between two adjustments of a Window.
	interval = 250 * time.Millisecond
	// patience is how many consecutive intervals the delay must stay above the
	// target before the limit falls. They are longer than a garbage collection
	// within a small CPU quota, so that one stall does not count as overload.
	patience = 2
	// remembered is the number of intervals over which the highest rate is taken:
	// two seconds. A stall is shorter, so the rate before it is still known after
	// it.
	remembered = 8
	// fresh is the initial limit of a Window.
	fresh = 100
	// least is the lowest limit. It is high enough for the next interval to show
	// whether the function can carry more.
	least = 20
	// reserve is the multiple of the limit above which requests of admitted calls
	// are refused too. It applies when there are no more new calls to refuse.
	reserve = 4
)

// A Window admits requests by the number in flight: admitted and not yet
// answered. Its limit follows the delay. If even the quickest request of two
// consecutive intervals took longer than the target, there is a standing queue
// somewhere. The limit then falls to the number of requests that the present rate
// answers within the target (Little's law). While answers are quick, it is at least
// that number, so it follows the load and a stall shorter than the target refuses
// nothing. The delay alone could not say how far the limit may grow, because a
// request that is answered now was admitted when fewer waited. The rate is the
// highest of the last two seconds, so that a stall does not count as a lower
// capacity.
//
// Its methods may be called concurrently. They read no clock.
type Window struct {
	target time.Duration

	mu       sync.Mutex
	limit    float64
	inFlight int

	began    time.Time // start of the interval
	quickest time.Duration
	answered int
	late     int                 // consecutive intervals above the target
	rates    [remembered]float64 // answers per second of the last intervals
	at       int                 // next index of rates to write
}

// NewWindow returns a Window that keeps the delay at target.
func NewWindow(target time.Duration, now time.Time) *Window {
	return &Window{target: target, limit: fresh, began: now}
}

// Full reports whether a new call that arrived at arrived must be refused.
// Requests that wait in the receive queue before it count as in flight.
func (w *Window) Full(now, arrived time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.adjust(now)
	return w.load(now, arrived) >= w.limit
}

// Crowded reports whether a request of an admitted call must be refused.
func (w *Window) Crowded(now, arrived time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.load(now, arrived) >= reserve*w.limit
}

// load returns the number of requests in flight or waiting to be read.
func (w *Window) load(now, arrived time.Time) float64 {
	return float64(w.inFlight) + max(now.Sub(arrived).Seconds(), 0)*w.rate()
}

// Enter counts an admitted request.
func (w *Window) Enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight++
}

// Leave stops counting a request that was answered after delay.
func (w *Window) Leave(now time.Time, delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight--
	if w.answered == 0 || delay < w.quickest {
		w.quickest = delay
	}
	w.answered++
	w.adjust(now)
}

// Abandon stops counting a request whose answer says nothing about the delay.
func (w *Window) Abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight--
}

// adjust ends the interval if its time is over and it had an answer.
func (w *Window) adjust(now time.Time) {
	elapsed := now.Sub(w.began)
	if elapsed < interval || w.answered == 0 {
		return
	}
	w.rates[w.at] = float64(w.answered) / elapsed.Seconds()
	w.at = (w.at + 1) % remembered
	if w.quickest > w.target {
		w.late++
	} else {
		w.late = 0
	}
	answerable := w.rate() * w.target.Seconds()
	switch {
	case w.late >= patience:
		w.limit = max(min(w.limit, answerable), least)
	case w.late == 0:
		w.limit = max(w.limit, answerable)
	}
	w.began, w.answered = now, 0
}

// rate returns the highest rate of the last intervals.
func (w *Window) rate() float64 {
	var highest float64
	for _, r := range w.rates {
		highest = max(highest, r)
	}
	return highest
}

// Limit returns the present limit.
func (w *Window) Limit() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limit
}

// InFlight returns the number of requests that count against the limit.
func (w *Window) InFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inFlight
}
