package mme

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestTimersExpireInOrder sets, moves and stops timers at random, and compares what
// expires with a plain search.
func TestTimersExpireInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var timers timers
	ues := make([]*ue, 200)
	want := map[*ue]time.Duration{}
	for i := range ues {
		ues[i] = new(ue)
	}
	for now := time.Duration(0); now < 5000; now++ {
		for range 3 {
			u := ues[random.IntN(len(ues))]
			if random.IntN(4) == 0 {
				timers.stop(u)
				delete(want, u)
				continue
			}
			wake := now + time.Duration(random.IntN(300))
			timers.set(u, wake)
			want[u] = wake
		}
		for u := timers.due(now); u != nil; u = timers.due(now) {
			if wake, runs := want[u]; !runs || wake > now {
				t.Fatalf("at %d a timer expired that is running (%v) until %d", now, runs, wake)
			}
			delete(want, u)
		}
		next := idleWait
		for _, wake := range want {
			next = min(next, wake-now)
		}
		if got := timers.next(now); got != next {
			t.Fatalf("at %d the next expiry is in %d, want in %d", now, got, next)
		}
		if len(timers.heap) != len(want) {
			t.Fatalf("got %d running timers, want %d", len(timers.heap), len(want))
		}
	}
}
