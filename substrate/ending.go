package substrate

import (
	"context"
	"time"
)

// Ended reports whether a process has ended.
func Ended(p Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// Await waits until a process ends, but at most atMost.
func Await(ctx context.Context, p Process, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
}

// Ending returns a context with which to wait for the end of a process, at most 30 s. It
// ignores the caller's cancellation, because cleanup must finish even then.
func Ending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}
