package substrate

import (
	"context"
	"time"
)

// Ended says whether a process has ended.
func Ended(p Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// Await waits for the end of a process, but no longer than atMost.
func Await(ctx context.Context, p Process, atMost time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
	}
}

// Ending bounds how long what was ended is waited for. What must end is ended even
// when the caller's context has.
func Ending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}
