package overload

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const start = 1000 * time.Hour

func config() Config {
	return Config{Target: 100 * time.Millisecond, Initial: 100, Min: 10, Max: 1000, Burst: 20}
}

// A load drives a gate. It offers transactions at a rate. Each transaction takes a latency.
type load struct {
	gate     *Gate
	now      time.Duration
	answered uint64
	total    time.Duration
	timedOut uint64
	lose     int // one in lose transactions is not answered; 0: all are answered
}

func (l *load) drive(rate float64, d, latency time.Duration) (admitted int) {
	gap := time.Duration(float64(time.Second) / rate)
	adjust := l.now
	for end := l.now + d; l.now < end; l.now += gap {
		if l.gate.Admit(l.now, Begins) {
			admitted++
			if l.lose > 0 && admitted%l.lose == 0 {
				l.timedOut++
			} else {
				l.answered++
				l.total += latency
			}
		}
		if l.now-adjust >= 100*time.Millisecond {
			adjust = l.now
			l.gate.Adjust(l.now, Totals{Answered: l.answered, Latency: l.total, TimedOut: l.timedOut})
		}
	}
	return admitted
}

func TestBucket(t *testing.T) {
	g := New(config(), start)
	admitted := 0
	for range 100 {
		if g.Admit(start, Begins) {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("the gate admitted a burst of %d, want 20", admitted)
	}
	if g.Admit(start+9*time.Millisecond, Begins) {
		t.Error("the gate admitted a request before the next token was due")
	}
	for range 2 {
		if !g.Admit(start+20*time.Millisecond, Begins) { // 2 tokens at 100/s
			t.Error("the bucket did not refill")
		}
	}
	if g.Admit(start+20*time.Millisecond, Begins) || g.Admit(start, Begins) {
		t.Error("the bucket refilled faster than its rate")
	}
	admitted = 0
	for range 100 { // a long pause does not overfill the bucket
		if g.Admit(start+time.Hour, Begins) {
			admitted++
		}
	}
	if admitted != 20 {
		t.Errorf("after a pause the gate admitted a burst of %d, want 20", admitted)
	}
	var none *Gate
	if !none.Admit(start, Begins) {
		t.Error("a nil gate refused a request")
	}
	if none.Loss() != 0 {
		t.Error("a nil gate asks clients to reduce their load")
	}
}

// TestBurstFollowsTheRate checks that a gate without a given burst admits whole batches, whose
// messages have one time, as soon as its rate is above the load. An empty bucket must stay empty when
// the rate changes: a fall must not make a debt of it, and a rise must not fill it.
func TestBurstFollowsTheRate(t *testing.T) {
	g := New(Config{Target: 100 * time.Millisecond, Initial: 10, Min: 10}, start)
	var totals Totals
	refused := 0
	for i := range 2000 { // 64 requests every 5 ms, for 10 s
		now := start + time.Duration(i)*5*time.Millisecond
		for range 64 {
			if g.Admit(now, Begins) {
				totals.Answered++
				totals.Latency += time.Millisecond
			} else if i >= 1400 {
				refused++
			}
		}
		if i%20 == 0 {
			g.Adjust(now, totals)
		}
	}
	if refused > 0 {
		t.Errorf("the gate refused %d requests after 7 seconds without an overload", refused)
	}
	g = New(usual(), start)
	n := 0
	for g.Admit(start, Begins) {
		n++
	}
	g.set(start, 10)
	if n != 100 || g.Admit(start+99*time.Millisecond, Begins) || !g.Admit(start+101*time.Millisecond, Begins) {
		t.Errorf("the gate admitted a burst of %d at 1000/s, want 100; then it must admit one after 0.1 s", n)
	}
	g.set(start+101*time.Millisecond, 1000)
	if g.Admit(start+101*time.Millisecond, Begins) || !g.Admit(start+103*time.Millisecond, Begins) {
		t.Error("when the rate rises, the empty bucket must stay empty and fill at the new rate")
	}
}

// TestFallsAndRecovers checks that the rate falls to the minimum while latency is above the target.
// Below the target, it must rise to the offered rate, but not above the maximum.
func TestFallsAndRecovers(t *testing.T) {
	l := &load{gate: New(config(), start), now: start}
	l.drive(200, 10*time.Second, time.Second)
	if r := l.gate.Read().Rate; r > 10.1 {
		t.Errorf("rate after a long overload: got %g, want the minimum 10", r)
	}
	if loss := l.gate.Loss(); loss < 90 {
		t.Errorf("loss in overload: got %d%%, want at least 90", loss)
	}
	l.drive(200, time.Minute, 5*time.Millisecond)
	if got := l.drive(200, time.Second, 5*time.Millisecond); got < 199 {
		t.Errorf("after the overload the gate admitted %d of 200 requests, want at least 199", got)
	}
	l.drive(200, time.Second, 5*time.Millisecond)
	if loss := l.gate.Loss(); loss != 0 {
		t.Errorf("loss after the overload: got %d%%, want 0", loss)
	}
	l.drive(5000, time.Minute, time.Millisecond)
	if r := l.gate.Read().Rate; r < 990 || r > 1001 {
		t.Errorf("rate after recovery: got %g, want the maximum 1000", r)
	}
}

// TestLossIsSteady drives a gate at twice its rate through an upstream that holds back the loss. What the
// upstream sends must not swing.
func TestLossIsSteady(t *testing.T) {
	g := New(Config{Target: time.Second, Initial: 100, Min: 100, Max: 100, Burst: 2}, start)
	const demand = 50 // in an interval
	var totals Totals
	fewest, most := demand, 0
	for i := range 60 {
		now := start + time.Duration(i)*interval
		sent := demand - demand*g.Loss()/100
		for n := range sent {
			if g.Admit(now+time.Duration(n)*interval/time.Duration(sent), Begins) {
				totals.Answered++
			}
		}
		g.Adjust(now+interval, totals)
		if i >= 20 {
			fewest, most = min(fewest, sent), max(most, sent)
		}
	}
	if fewest <= demand/2 || most >= demand*9/10 || 2*most > 3*fewest {
		t.Errorf("an upstream sends %d to %d of %d requests in an interval", fewest, most, demand)
	}
}

// TestTimeouts checks that a function counts as overloaded if it leaves one request in five
// unanswered, even if its other answers are fast. One in a hundred is not enough.
func TestTimeouts(t *testing.T) {
	l := &load{gate: New(config(), start), now: start, lose: 100}
	l.drive(90, 20*time.Second, 5*time.Millisecond)
	if r := l.gate.Read().Rate; r < 100 {
		t.Errorf("the rate is %g with 1 in 100 requests unanswered, want at least 100", r)
	}
	l.lose = 5
	l.drive(90, 20*time.Second, 5*time.Millisecond)
	if r := l.gate.Read().Rate; r > 10.1 {
		t.Errorf("the rate is %g with 1 in 5 requests unanswered, want the minimum 10", r)
	}
}

// TestIdle checks that the rate does not rise while the function is hardly used.
func TestIdle(t *testing.T) {
	l := &load{gate: New(config(), start), now: start}
	l.drive(30, time.Minute, time.Millisecond)
	if r := l.gate.Read().Rate; r != 100 {
		t.Errorf("the rate is %g at 30 requests/s offered, want 100", r)
	}
}

// TestBusySystem checks that the rate settles near 150/s under any load if the function serves at
// most 150/s.
func TestBusySystem(t *testing.T) {
	const capacity = 150.0
	l := &load{gate: New(config(), start), now: start}
	backlog := 0.0
	served := 0
	for second := range 120 {
		for range 10 { // latency follows the backlog
			latency := 10*time.Millisecond + time.Duration(backlog/capacity*float64(time.Second))
			n := l.drive(600, 100*time.Millisecond, latency)
			backlog = max(0, backlog+float64(n)-capacity/10)
			if second >= 60 {
				served += n
			}
		}
	}
	if mean := float64(served) / 60; mean < 0.6*capacity || mean > 1.1*capacity {
		t.Errorf("the gate admits %.0f requests/s to a function with capacity %.0f/s", mean, capacity)
	}
	if delay := backlog / capacity; delay > 1 {
		t.Errorf("the backlog is %.1fs, want at most 1s", delay)
	}
}

// TestWorkersTogether checks that concurrent workers never take the same token.
func TestWorkersTogether(t *testing.T) {
	g := New(Config{Target: time.Second, Initial: 1000, Min: 10, Burst: 500}, start)
	var admitted atomic.Int64
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for range 1000 {
				if g.Admit(start, Begins) {
					admitted.Add(1)
				}
			}
		})
	}
	wait.Wait()
	if n := admitted.Load(); n != 500 {
		t.Errorf("concurrent workers got %d requests admitted, want 500", n)
	}
}

func TestNoAllocation(t *testing.T) {
	g := New(config(), start)
	if n := testing.AllocsPerRun(1000, func() { g.Admit(start, Begins) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestOpen checks that Open returns what Admit would, without taking a token.
func TestOpen(t *testing.T) {
	g := New(Config{Target: time.Second, Initial: 1, Min: 1, Burst: 1}, 0)
	for range 3 {
		if !g.Open(0, Begins) {
			t.Fatal("Open is false with a full bucket")
		}
	}
	if !g.Admit(0, Begins) || g.Open(0, Begins) || g.Admit(0, Begins) || g.Open(0, Begins) {
		t.Error("Open and Admit disagree")
	}
	if r := g.Read(); r.Admitted != 1 || r.Refused != 1 {
		t.Errorf("Open changed the counters: %+v", r)
	}
	if none := (*Gate)(nil); !none.Open(0, Begins) {
		t.Error("Open is false for a nil gate")
	}
}
