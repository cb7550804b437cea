package overload

import (
	"sync"
	"time"
)

// The modes of load control.
const (
	Graceful   = "graceful"   // new calls are refused at the entry, by a Window
	Clearwater = "clearwater" // every request is refused alike, by a Monitor (NFV-VITAL, II.B.2)
	Off        = "off"        // nothing is refused
)

// Modes lists the modes, the default first.
func Modes() []string { return []string{Graceful, Clearwater, Off} }

const (
	// interval is the time between two adjustments of a Window.
	interval = 250 * time.Millisecond
	// patience is how many intervals in a row the delay stays above the target
	// before the limit falls. They are longer than a collection of garbage takes
	// within a small CPU quota, so that one stall is no overload.
	patience = 2
	// remembered is how many intervals the highest rate is taken of: two
	// seconds. A stall is shorter, so that a Window outlives it.
	remembered = 8
	// fresh is the limit of a Window that has seen no overload.
	fresh = 100
	// least is the lowest limit: from there the next interval shows whether more
	// is carried.
	least = 20
	// slowStart is the growth in an interval before the first overload, and
	// growth after it.
	slowStart = 2
	growth    = 1.5
	// reserve is the multiple of the limit from which on requests of admitted
	// calls are refused as well: what is left when no new call is to refuse.
	reserve = 4
)

// A Window admits requests by how many are in flight: admitted and not yet
// answered. Its limit follows the delay. When even the quickest request of two
// intervals took longer than the target, a queue stands somewhere, and the limit
// falls to the number that the present rate answers within the target (Little's
// law). It grows again as soon as requests are refused while answers are
// quick. The rate is the highest of the last two seconds, so that a stall does
// not count as a lower capacity.
//
// Its methods may be called at the same time. They read no clock.
type Window struct {
	target time.Duration

	mu       sync.Mutex
	limit    float64
	inFlight int
	overload bool // seen since the start

	began    time.Time // of the interval
	quickest time.Duration
	answered int
	full     bool                // the limit was reached in the interval
	late     int                 // intervals in a row above the target
	rates    [remembered]float64 // answers per second of the last intervals
	at       int                 // the next of rates to write
}

// NewWindow makes a Window that holds the delay at target.
func NewWindow(target time.Duration, now time.Time) *Window {
	return &Window{target: target, limit: fresh, began: now}
}

// Full says whether a new call that came at arrived has to be refused. What
// waits in the receive queue before it counts as in flight.
func (w *Window) Full(now, arrived time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.adjust(now)
	full := w.load(now, arrived) >= w.limit
	w.full = w.full || full
	return full
}

// Crowded says the same of a request of an admitted call.
func (w *Window) Crowded(now, arrived time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.load(now, arrived) >= reserve*w.limit
}

// load is how many requests are in flight or waiting to be read.
func (w *Window) load(now, arrived time.Time) float64 {
	return float64(w.inFlight) + max(now.Sub(arrived).Seconds(), 0)*w.rate()
}

// Enter counts a request in.
func (w *Window) Enter() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight++
}

// Leave counts out a request that was answered after delay.
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

// Abandon counts out a request whose answer tells nothing of the delay.
func (w *Window) Abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inFlight--
}

// adjust ends the interval when it is over and something was answered in it.
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
	switch {
	case w.late >= patience:
		w.limit = max(min(w.limit, w.rate()*w.target.Seconds()), least)
		w.overload = true
	case w.late > 0:
	case w.full && w.overload:
		w.limit *= min(growth, w.target.Seconds()/max(w.quickest.Seconds(), 1e-6))
	case w.full:
		w.limit *= slowStart
	}
	w.began, w.answered, w.full = now, 0, false
}

// rate is the highest of the last intervals.
func (w *Window) rate() float64 {
	var highest float64
	for _, r := range w.rates {
		highest = max(highest, r)
	}
	return highest
}

// Limit is the present limit, and InFlight what counts against it.
func (w *Window) Limit() float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.limit
}

// InFlight is how many requests were counted in and not out.
func (w *Window) InFlight() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inFlight
}
