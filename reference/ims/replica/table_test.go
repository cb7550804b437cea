package replica

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestRecordsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(nil, nil, nil)
		go table.run(t.Context())
		expires := time.Now().Add(time.Minute)
		table.set("a", Record{Value: []byte("v"), Version: 1, Expires: expires})
		table.set("b", Record{Value: []byte("v"), Version: 1, Expires: expires.Add(time.Minute)})
		table.set("c", Record{Value: []byte("v"), Version: 1})
		table.set("a", Record{Value: []byte("old"), Version: 1, Expires: expires.Add(time.Hour)}) // not newer
		time.Sleep(59 * time.Second)
		if r := table.get("a", time.Now()); string(r.Value) != "v" {
			t.Errorf("got %q before the expiry", r.Value)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if r := table.get("a", time.Now()); r.Version != 0 || table.len() != 2 {
			t.Errorf("got %q after the expiry; %d records are left, want 2", r.Value, table.len())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if table.len() != 1 {
			t.Errorf("got %d records, want only the one without expiry", table.len())
		}
	})
}

func TestTimerWaitsItsTurn(t *testing.T) {
	for rank := range 3 {
		synctest.Test(t, func(t *testing.T) {
			var fired []time.Time
			table := newTable(nil, func(string) int { return rank }, func(string, Record) bool {
				fired = append(fired, time.Now())
				return true
			})
			go table.run(t.Context())
			due := time.Now().Add(10 * time.Second)
			table.set("t", Record{Version: 1, Expires: due, Timer: true})
			table.set("u", Record{Version: 1, Expires: due, Timer: true})
			table.set("u", Record{Version: 2, Expires: due.Add(time.Hour), deleted: true})
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if want := due.Add(time.Duration(rank) * stagger); len(fired) != 1 || fired[0].Before(want) || fired[0].After(want.Add(grain)) {
				t.Errorf("rank %d fired at %v, want once at %v", rank, fired, want)
			}
		})
	}
}

// TestManyTimersAtOnce lets more timers be due at once than the queue holds. All must fire within seconds.
func TestManyTimersAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fired atomic.Int64
		s := New(Config{Copies: 1, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(), OnTimer: func(context.Context, string, []byte) {
			time.Sleep(time.Millisecond)
			fired.Add(1)
		}})
		ctx := t.Context()
		go func() { _ = s.Run(ctx, nil) }()
		due, n := time.Now().Add(time.Second), 5*cap(s.due)
		for i := range n {
			if err := s.Schedule(ctx, fmt.Sprint(i), due, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Until(due) + 5*time.Second)
		synctest.Wait()
		if got := fired.Load(); got != int64(n) {
			t.Errorf("%d timers fired within 5 s, want all %d", got, n)
		}
	})
}
