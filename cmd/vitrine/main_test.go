package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestASecondSignal checks that the program ends at once only if the user asks for that. A run whose terminal
// closes must be able to end in order.
func TestASecondSignal(t *testing.T) {
	for name, c := range map[string]struct {
		first, second os.Signal
		after         time.Duration // of the second signal
		exits         bool
	}{
		"the user":        {syscall.SIGINT, syscall.SIGINT, time.Second, true},
		"closed terminal": {syscall.SIGHUP, syscall.SIGHUP, time.Second, false},
		"login session":   {syscall.SIGTERM, syscall.SIGHUP, time.Millisecond, false},
		"GNU timeout":     {syscall.SIGTERM, syscall.SIGTERM, time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				signals, ended, exits := make(chan os.Signal), make(chan struct{}), false
				go func() {
					defer close(ended)
					endOn(signals, cancel, func(int) { exits = true })
				}()
				signals <- c.first
				<-ctx.Done()
				time.Sleep(c.after)
				signals <- c.second
				close(signals)
				<-ended
				if exits != c.exits || !errors.Is(context.Cause(ctx), errInterrupted) {
					t.Errorf("the program exits at once: %t, want %t; the context ends by %v", exits, c.exits, context.Cause(ctx))
				}
			})
		})
	}
}
