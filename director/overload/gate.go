// Package overload is the gate at an aggregate's ingress. New transactions take tokens
// from a bucket. The fill rate of the bucket follows the measured latency, as in
// Clearwater's load monitor (Contain-ed, section 6). So no function inside the aggregate
// needs a gate of its own. Unlike Clearwater's rate, the rate falls to what the function
// answers, and returns to that within about a second.
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
	Burst   float64       // how many are admitted at once; 0: as many as in burstTime at the present rate, at least one
}

const (
	// interval is the least time between two adjustments, and longest the most. In between,
	// an adjustment waits for enough answers.
	interval = 250 * time.Millisecond
	longest  = time.Second
	enough   = 10
	// patience is how many consecutive intervals the latency must stay above the target
	// before the rate falls, so that one stall does not count as overload.
	patience = 2
	// memory is the time over which the highest rate of answers is taken. A stall is shorter,
	// so the rate before it is still known after it.
	memory = 2 * time.Second
	// deepest is the lowest rate, as a share of the rate of answers, while a backlog drains.
	deepest = 0.1
	// double is the factor per interval before the first overload, and after one up to the
	// rate of answers that was known before. increase is the largest step beyond that rate.
	double   = 2
	increase = 0.1
	// burstTime is the size of a bucket whose Burst is not given. All messages of a batch have one
	// time. So a bucket that did not grow with the rate would refuse a part of each large batch, at
	// any rate.
	burstTime = 100 * time.Millisecond
	// reserve is how far continued work may overdraw the bucket, in time at the present rate.
	reserve = time.Second
	// timeout is the latency of a transaction without answer, in targets. If one
	// transaction in ten has no answer, the gate closes although all other latencies are
	// within the target.
	timeout = 10
	// retry is the Retry-After value (RFC 3261 section 20.33); the rate has been adjusted
	// by then.
	retry = time.Second
	// fade is by how many percentage points per second the loss falls at most. While an upstream holds
	// back a part of its load, little is left to refuse. If the loss fell to that little at once, the
	// upstream would soon send everything again, and its load would swing.
	fade = 20
	// lull is the time without requests after which a gate is idle.
	lull = time.Minute
)

// Work is what a transaction means to the function.
type Work uint8

// The kinds of work. If every transaction of a procedure were refused alike, few procedures
// would complete: if each of three transactions is admitted with probability 1/2, one procedure
// in eight completes. So continued work goes first.
const (
	Begins    Work = iota // the first transaction of a procedure
	Continues             // a later one, such as the answer to a challenge
)

// A Gate admits or refuses transactions. Any number of workers may use it concurrently,
// without a lock. One goroutine at a time calls Adjust, Rebase, Learned, Resume and Idle.
// Times are monotonic, since any fixed moment.
type Gate struct {
	config   Config
	interval atomic.Int64 // nanoseconds between two tokens
	empty    atomic.Int64 // the theoretical arrival time of GCRA: when the bucket will be full, less one burst
	admitted atomic.Uint64
	refused  atomic.Uint64
	loss     atomic.Uint32 // percent, as of Loss

	// Only Adjust, Rebase, Learned, Resume and Idle use these.
	rate                 float64
	known                float64 // rate of answers when the last overload began; 0: none yet
	late                 int     // consecutive intervals above the target
	done                 uint64
	total                time.Duration
	adjusted             time.Duration
	answers              [memory / interval]answerRate // of the last intervals
	next                 int                           // index of answers to write
	admittedAt, refuseAt uint64
	arrived              time.Duration // when measureLoss last found requests
}

// An answerRate is the rate of answers in an interval.
type answerRate struct {
	at   time.Duration // end of the interval
	rate float64       // transactions per second
}

// New returns a Gate with a full bucket. If there are totals already, call Rebase.
func New(config Config, now time.Duration) *Gate {
	g := &Gate{config: config, adjusted: now, arrived: now}
	g.empty.Store(int64(now))
	g.set(now, config.Initial)
	return g
}

// set changes the rate. The bucket keeps its tokens, as far as it holds them at the new rate. The
// debt is never more than reserve at the new rate.
func (g *Gate) set(now time.Duration, rate float64) {
	rate = max(rate, g.config.Min, 1e-3)
	if g.config.Max > 0 {
		rate = min(rate, g.config.Max)
	}
	g.rate = rate
	interval := max(1, int64(float64(time.Second)/rate))
	old := max(1, g.interval.Swap(interval))
	scale := float64(interval) / float64(old)
	before, after := float64(g.tolerance(old, Begins)), float64(g.tolerance(interval, Begins))
	most := float64(g.tolerance(interval, Continues))
	for {
		was := g.empty.Load()
		ahead := was - int64(now)
		if ahead <= 0 {
			return
		}
		ahead = int64(max(0, min(after+(float64(ahead)-before)*scale, most)))
		if g.empty.CompareAndSwap(was, int64(now)+ahead) {
			return
		}
	}
}

// Admit takes a token for a transaction and reports whether there was one. A nil Gate admits
// all.
func (g *Gate) Admit(now time.Duration, work Work) bool {
	if g == nil {
		return true
	}
	interval := g.interval.Load()
	tolerance := g.tolerance(interval, work)
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
func (g *Gate) Open(now time.Duration, work Work) bool {
	return g == nil || g.empty.Load()-int64(now) <= g.tolerance(g.interval.Load(), work)
}

// tolerance returns how far GCRA's theoretical arrival time may lie ahead, in nanoseconds.
func (g *Gate) tolerance(interval int64, work Work) int64 {
	t := int64(float64(interval) * max(g.config.Burst-1, 0))
	if g.config.Burst == 0 {
		t = max(int64(burstTime)-interval, 0)
	}
	if work == Continues {
		t += int64(reserve)
	}
	return t
}

// Totals are totals of the transactions since the start. They exclude time that a
// transaction spends waiting outside of the function, such as for a person to answer.
type Totals struct {
	Answered uint64
	Latency  time.Duration // sum over the answered transactions
	TimedOut uint64        // transactions without answer
}

// Rebase begins a new interval: Adjust counts only what comes after these totals.
func (g *Gate) Rebase(now time.Duration, t Totals) {
	g.done, g.total, g.adjusted = t.Answered+t.TimedOut, g.latency(t), now
}

// Learned returns the rate, and the rate of answers when the last overload began; 0: none yet.
func (g *Gate) Learned() (rate, known float64) { return g.rate, g.known }

// Resume continues with what another gate has learned.
func (g *Gate) Resume(now time.Duration, rate, known float64) {
	g.known = known
	g.set(now, rate)
}

// latency returns the sum of the latencies, with those of the transactions without answer.
func (g *Gate) latency(t Totals) time.Duration {
	return t.Latency + time.Duration(t.TimedOut)*timeout*g.config.Target
}

// Adjust sets the rate by the totals. Call it several times a second. If the mean latency
// stays above the target, the rate falls to the highest rate of answers of the last seconds,
// and below that until the backlog has drained. While the gate refuses transactions and the
// latency is below the target, the rate rises: fast before the first overload and up to the rate
// of answers that was known before the last one, and slowly beyond it.
func (g *Gate) Adjust(now time.Duration, t Totals) {
	answered, total := t.Answered+t.TimedOut, g.latency(t)
	n := answered - min(answered, g.done)
	elapsed := now - g.adjusted
	if elapsed < interval || n < enough && elapsed < longest {
		return
	}
	mean := (total - g.total).Seconds() / float64(max(n, 1))
	g.answers[g.next] = answerRate{now, float64(n) / elapsed.Seconds()}
	g.next = (g.next + 1) % len(g.answers)
	g.done, g.total, g.adjusted = answered, total, now
	refuses := g.measureLoss(now, elapsed)
	if n == 0 {
		return
	}
	g.follow(now, mean/g.config.Target.Seconds(), refuses)
}

// follow changes the rate by the mean latency of an interval, in targets.
func (g *Gate) follow(now time.Duration, latency float64, refuses bool) {
	if latency <= 1 {
		g.late = 0
	} else if g.late++; g.late < patience {
		return
	}
	switch {
	case g.late > 0:
		rate := g.answerRate(now)
		if g.late == patience {
			g.known = rate
		}
		g.set(now, rate*max(1/latency, deepest))
	case refuses && g.known == 0:
		g.set(now, g.rate*double)
	case refuses && g.rate < g.known:
		g.set(now, min(g.rate*double, g.known))
	case refuses:
		g.set(now, g.rate*(1+(1-latency)*increase))
	}
}

// answerRate returns the highest rate of answers of the last seconds.
func (g *Gate) answerRate(now time.Duration) (highest float64) {
	for _, a := range g.answers {
		if now-a.at < memory {
			highest = max(highest, a.rate)
		}
	}
	return highest
}

// measureLoss records the share refused since its last call, elapsed ago, and reports whether any were.
// The recorded share falls slowly.
func (g *Gate) measureLoss(now, elapsed time.Duration) (refuses bool) {
	a, r := g.admitted.Load(), g.refused.Load()
	admitted, refused := a-g.admittedAt, r-g.refuseAt
	g.admittedAt, g.refuseAt = a, r
	if admitted+refused > 0 {
		g.arrived = now
	}
	loss := max(0, int(g.loss.Load())-int(fade*elapsed.Seconds()))
	if refused > 0 {
		loss = max(loss, int((refused*100+admitted+refused-1)/(admitted+refused)))
	}
	g.loss.Store(uint32(loss))
	return refused > 0
}

// Loss returns the share that was refused lately, in percent, for upstreams. A nil Gate refuses
// nothing.
func (g *Gate) Loss() int {
	if g == nil {
		return 0
	}
	return int(g.loss.Load())
}

// Idle reports whether no request has arrived for a minute. A nil Gate does not know, and is not idle.
func (g *Gate) Idle(now time.Duration) bool { return g != nil && now-g.arrived > lull }

// RetryAfter returns the Retry-After value for refused clients.
func (g *Gate) RetryAfter() time.Duration { return retry }

// A Reading is a Gate's state at one moment.
type Reading struct {
	Rate              float64 // transactions per second
	Admitted, Refused uint64
	Loss              int // percent, as of Gate.Loss
}

// Read returns the state.
func (g *Gate) Read() Reading {
	return Reading{Rate: float64(time.Second) / float64(g.interval.Load()), Admitted: g.admitted.Load(), Refused: g.refused.Load(), Loss: g.Loss()}
}
