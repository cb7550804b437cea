// Package overload is the gate at an aggregate's ingress. New transactions take tokens
// from a bucket. The fill rate of the bucket follows the measured latency, as in
// Clearwater's load monitor (Contain-ed, section 6). So no function inside the aggregate
// needs a gate of its own.
package overload

import (
	"sync/atomic"
	"time"
)

// A Config sets the aims of a Gate. Rates are in transactions per second.
type Config struct {
	Target  time.Duration // mean latency above which the rate falls
	Initial float64       // rate at the start
	Min     float64       // lower bound of the rate
	Max     float64       // upper bound of the rate; 0: none
	Burst   float64       // how many are admitted at once
}

const (
	// period is the minimum number of answered transactions between two adjustments.
	period = 20
	// smoothing is the weight of the newest mean in the moving average.
	smoothing = 0.5
	// increase is the largest step up, as a share of the rate.
	increase = 0.1
	// used is the share of the rate that must be in use before the rate may rise, because
	// an idle function shows nothing about its capacity.
	used = 0.5
	// timeout is the latency of a transaction without answer, in targets. If one
	// transaction in ten has no answer, the gate closes although all other latencies are
	// within the target.
	timeout = 10
	// retry is the Retry-After value (RFC 3261 section 20.33); the rate has been adjusted
	// by then.
	retry = time.Second
)

// A Gate admits or refuses transactions. Any number of workers may use it concurrently,
// without a lock. One goroutine calls Adjust. Times are monotonic, since any fixed
// moment.
type Gate struct {
	config   Config
	interval atomic.Int64 // nanoseconds between two tokens
	empty    atomic.Int64 // the theoretical arrival time of GCRA: when the bucket will be full, less one burst
	admitted atomic.Uint64
	refused  atomic.Uint64
	loss     atomic.Uint32 // percent refused before the last adjustment
	sequence atomic.Uint64

	// Only Adjust uses these.
	smoothed             float64 // seconds
	rate                 float64
	done                 uint64
	total                time.Duration
	adjusted             time.Duration
	admittedAt, refuseAt uint64
}

// New returns a Gate with a full bucket.
func New(config Config, now time.Duration) *Gate {
	g := &Gate{config: config, adjusted: now}
	g.empty.Store(int64(now))
	g.set(config.Initial)
	return g
}

func (g *Gate) set(rate float64) {
	rate = max(rate, g.config.Min, 1e-3)
	if g.config.Max > 0 {
		rate = min(rate, g.config.Max)
	}
	g.rate = rate
	g.interval.Store(max(1, int64(float64(time.Second)/rate)))
}

// Admit takes a token for a new transaction and reports whether there was one. A nil Gate
// admits all.
func (g *Gate) Admit(now time.Duration) bool {
	if g == nil {
		return true
	}
	interval := g.interval.Load()
	tolerance := g.tolerance(interval)
	for {
		was := g.empty.Load()
		from := max(was, int64(now))
		if from-int64(now) > tolerance {
			g.refused.Add(1)
			return false
		}
		if g.empty.CompareAndSwap(was, from+interval) {
			g.admitted.Add(1)
			return true
		}
	}
}

// Open reports whether Admit would admit a transaction now. It takes no token and counts
// nothing. A nil Gate is open.
func (g *Gate) Open(now time.Duration) bool {
	return g == nil || g.empty.Load()-int64(now) <= g.tolerance(g.interval.Load())
}

// tolerance returns how far GCRA's theoretical arrival time may lie ahead, in nanoseconds.
func (g *Gate) tolerance(interval int64) int64 {
	return int64(float64(interval) * max(g.config.Burst-1, 0))
}

// Totals are totals of the transactions since the start. They exclude time that a
// transaction spends waiting outside of the function, such as for a person to answer.
type Totals struct {
	Answered uint64
	Latency  time.Duration // sum over the answered transactions
	TimedOut uint64        // transactions without answer
}

// Adjust sets the rate by the totals. Call it several times a second. The rate falls by a
// factor that grows with the excess over the target. It rises by a step that shrinks with
// the distance to the target.
func (g *Gate) Adjust(now time.Duration, t Totals) {
	answered := t.Answered + t.TimedOut
	total := t.Latency + time.Duration(t.TimedOut)*timeout*g.config.Target
	n := answered - min(answered, g.done)
	elapsed := now - g.adjusted
	if n < period || elapsed < g.config.Target {
		if elapsed > 10*max(g.config.Target, time.Second) {
			g.measureLoss()
			g.adjusted = now
		}
		return
	}
	mean := (total - g.total).Seconds() / float64(n)
	if g.done == 0 {
		g.smoothed = mean
	}
	g.smoothed += (mean - g.smoothed) * smoothing
	g.done, g.total = answered, total
	excess := g.smoothed/g.config.Target.Seconds() - 1
	admitted := g.measureLoss()
	switch {
	case excess > 0:
		g.set(g.rate / (1 + min(excess, 1)))
	case float64(admitted) >= used*g.rate*elapsed.Seconds():
		g.set(g.rate * (1 - excess*increase))
	}
	g.adjusted = now
}

// measureLoss records the share refused since its last call, and returns how many were
// admitted.
func (g *Gate) measureLoss() (admitted uint64) {
	a, r := g.admitted.Load(), g.refused.Load()
	admitted, refused := a-g.admittedAt, r-g.refuseAt
	g.admittedAt, g.refuseAt = a, r
	loss := uint32(0)
	if refused > 0 {
		loss = uint32((refused*100 + admitted + refused - 1) / (admitted + refused))
	}
	if g.loss.Swap(loss) != loss {
		g.sequence.Add(1)
	}
	return admitted
}

// Feedback returns the overload control values for an upstream that supports RFC 7339:
// the share of requests to hold back in percent (oc), for how long (oc-validity), and a
// number that grows with each change (oc-seq). A nil Gate asks for nothing.
func (g *Gate) Feedback() (loss int, validity time.Duration, sequence uint64) {
	if g == nil {
		return 0, 0, 0
	}
	return int(g.loss.Load()), retry, g.sequence.Load()
}

// RetryAfter returns the Retry-After value for refused clients.
func (g *Gate) RetryAfter() time.Duration { return retry }

// A Reading is a Gate's state at one moment.
type Reading struct {
	Rate              float64 // transactions per second
	Admitted, Refused uint64
	Loss              int // percent
}

// Read returns the state.
func (g *Gate) Read() Reading {
	return Reading{Rate: float64(time.Second) / float64(g.interval.Load()), Admitted: g.admitted.Load(), Refused: g.refused.Load(), Loss: int(g.loss.Load())}
}
