// Package overload sheds load, by a Window or by a Monitor. A Monitor works as
// Clearwater's load monitor: requests take tokens from a bucket, and the fill
// rate follows the measured latency (NFV-VITAL, II.B.2).
package overload

import (
	"cmp"
	"sync"
	"time"
)

// A Config sets the aims of a Monitor. Rates are in requests per second.
type Config struct {
	Target  time.Duration // latency above which the rate falls
	Initial float64       // rate at the start
	Min     float64       // the rate never falls below it; default 10
	Bucket  float64       // tokens in a full bucket: the largest admitted burst; default 200
}

const (
	// period is the least number of completed requests between two adjustments,
	// counting only requests that arrived after the earlier one. The time between
	// them is at least the target.
	period = 20
	// smoothing is the weight of a new latency in the moving average.
	smoothing = 1.0 / 8
	// decrease sets how fast the rate falls: at twice the target or more it is
	// divided by 1+decrease.
	decrease = 1.0
	// increase is the largest step up, as a share of the bucket, in requests per
	// second.
	increase = 0.5
	// used is the share of the rate that must be in use before the rate may rise.
	// The latency of an idle function says nothing about its capacity.
	used = 0.5
)

// A Monitor admits or rejects requests. It reads no clock: callers pass times,
// which must not go back by much. Its methods may be called concurrently.
type Monitor struct {
	config Config

	mu       sync.Mutex
	rate     float64
	tokens   float64
	filled   time.Time // when tokens was last updated
	smoothed float64   // seconds
	admitted int       // since adjusted
	done     int       // since adjusted
	adjusted time.Time
}

// New returns a Monitor with a full bucket.
func New(config Config, now time.Time) *Monitor {
	config.Min = cmp.Or(config.Min, 10)
	config.Bucket = cmp.Or(config.Bucket, 200)
	return &Monitor{config: config, rate: config.Initial, tokens: config.Bucket, filled: now, adjusted: now}
}

// Admit takes a token for a request that arrived at now, and reports whether
// there was one.
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

// Done records the latency of an admitted request, from its arrival to its
// answer. It adjusts the rate once every period: down by a factor that grows with
// the excess over the target, or up by a step that shrinks as the latency nears
// the target.
func (m *Monitor) Done(now time.Time, latency time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Add(-latency).Before(m.adjusted) {
		return // the request arrived before the last change, so its latency does not reflect it
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

// Rate returns the present rate, in requests per second.
func (m *Monitor) Rate() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rate
}

// Latency returns the moving average.
func (m *Monitor) Latency() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.smoothed * float64(time.Second))
}
