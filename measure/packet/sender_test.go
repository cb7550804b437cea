package packet

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestPercentilesAreByNearestRank checks percentiles of 1 to n by nearest rank: the least value
// such that the given share of all values does not exceed it.
func TestPercentilesAreByNearestRank(t *testing.T) {
	for n, want := range map[int]ScheduleErrors{
		1:    {P50: 1, P90: 1, P99: 1, P999: 1, Max: 1},
		5:    {P50: 3, P90: 5, P99: 5, P999: 5, Max: 5},
		10:   {P50: 5, P90: 9, P99: 10, P999: 10, Max: 10},
		1000: {P50: 500, P90: 900, P99: 990, P999: 999, Max: 1000},
	} {
		late := make([]int64, n)
		for i := range late {
			late[i] = int64(n - i)
		}
		if got := percentiles(late); got != want {
			t.Errorf("percentiles of 1 to %d: got %+v, want %+v", n, got, want)
		}
	}
}

// TestIdleEndsWithTheContext checks that idle ends at once if the context has ended, and does not
// wait for the span.
func TestIdleEndsWithTheContext(t *testing.T) {
	l := newLoop(-1, make([]byte, MinSize), 0, Stream{Rate: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l.sent.Began = l.clock.Now()
	if err := l.idle(ctx, time.Millisecond); !errors.Is(err, context.Canceled) || l.sent.Spins > 0 {
		t.Errorf("idle: got error %v after %d reads of the clock, want it before the first", err, l.sent.Spins)
	}
}
