package substrate

import (
	"context"
	"time"
)

// Ending bounds how long what was ended is waited for. What must end is ended even
// when the caller's context has.
func Ending(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}
