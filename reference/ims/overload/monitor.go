// Package overload sheds load as Clearwater's load monitor does: requests take
// tokens from a bucket, and the rate at which it fills follows the latency that
// is measured (NFV-VITAL, II.B.2).
package overload

import (
	"sync"
	"time"
)

// A Config says what a Monitor aims at. Rates are in requests per second.
type Config struct {
	Target  time.Duration // latency above which the rate falls
	Initial float64       // rate at the start
	Min     float64       // the rate never falls below
	Bucket  float64       // tokens that a full bucket holds: the burst that is let through
}

const (
	// period is how many requests complete at least between two adjustments,
	// of those that came after the first; the target passes as well.
	period = 20
	// smoothing is the weight of a new latency in the moving average.
	smoothing = 1.0 / 8
	// decrease is how hard the rate falls: at twice the target it is divided
	// by 1+decrease.
	decrease = 1.0
	// increase is the largest step up, as a share of the bucket, in requests per second.
	increase = 0.5
	// used is the share of the rate that must be in use before it may rise; an
	// idle function has learnt nothing about what it could carry.
	used = 0.5
)

// A Monitor admits or refuses requests. It reads no clock: times are passed in
// and must not go back by much. Its methods may be called at the same time.
type Monitor struct {
	config Config

	mu       sync.Mutex
	rate     float64
	tokens   float64
	filled   time.Time // when tokens was last brought up to date
	smoothed float64   // seconds
	admitted int       // since adjusted
	done     int       // since adjusted
	adjusted time.Time
}

// New is a Monitor with a full bucket.
func New(config Config, now time.Time) *Monitor {
	return &Monitor{config: config, rate: config.Initial, tokens: config.Bucket, filled: now, adjusted: now}
}

// Admit takes a token for a request that came at now; false when there is none.
func (m *Monitor) Admit(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := now.Sub(m.filled).Seconds(); d > 0 {
		m.tokens = min(m.tokens+d*m.rate, m.config.Bucket)
		m.filled = now
	}
	if m.tokens < 1 {
		return false
	}
	m.tokens--
	m.admitted++
	return true
}

// Done tells how long an admitted request took, from its arrival to its
// answer, and adjusts the rate once every period: down by a factor
// that grows with the excess over the target, up by a step that shrinks with
// the distance to it.
func (m *Monitor) Done(now time.Time, latency time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Add(-latency).Before(m.adjusted) {
		return // it came before the last change, and tells nothing of it
	}
	m.smoothed += (latency.Seconds() - m.smoothed) * smoothing
	m.done++
	elapsed := now.Sub(m.adjusted)
	if m.done < period || elapsed < m.config.Target {
		return
	}
	excess := m.smoothed/m.config.Target.Seconds() - 1
	switch {
	case excess > 0:
		m.rate = max(m.rate/(1+decrease*min(excess, 1)), m.config.Min)
	case float64(m.admitted) >= used*m.rate*elapsed.Seconds():
		m.rate += -excess * increase * m.config.Bucket
	}
	m.admitted, m.done, m.adjusted = 0, 0, now
}

// Rate is the present rate, in requests per second.
func (m *Monitor) Rate() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rate
}

// Latency is the present moving average.
func (m *Monitor) Latency() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.smoothed * float64(time.Second))
}
