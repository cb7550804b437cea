package hosttest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// WatchStalls notes, until the test ends, the longest time for which this process did not run
// although it wanted to: on a busy host, a test of other processes proves less.
func WatchStalls(t testing.TB) (longest func() time.Duration) {
	const every = 20 * time.Millisecond
	var late atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for last := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			now := time.Now()
			late.Store(max(late.Load(), int64(now.Sub(last)-every)))
			last = now
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() time.Duration { return time.Duration(late.Load()) }
}
