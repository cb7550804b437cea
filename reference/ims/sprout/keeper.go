package sprout

import (
	"context"
	"errors"
	"time"
)

// A record is a value that all Sprouts share.
type record struct {
	value   []byte
	tag     string    // of the version that Get read
	expires time.Time // after it the record is gone; Get does not return it
}

// A move changes the timer of a record. A zero time means no timer.
type move struct{ from, to time.Time }

var (
	errChanged = errors.New("the record has changed since it was read")
	errAway    = errors.New("the store does not answer")
)

// A keeper keeps what outlives a transaction: challenges, and registrations with
// their subscriptions and timers. Its methods may be called concurrently. None
// takes longer than the keeper's deadline.
type keeper interface {
	// Get returns a record. If there is none, its value is nil.
	Get(ctx context.Context, key string) (record, error)
	// Put writes a record and moves its timer. The error is errChanged, and nothing
	// is written, if the record no longer has the tag of r. After any other error
	// the write may have been made, or may be made later.
	Put(ctx context.Context, key string, r record, timer move) error
	// Delete removes a record and its timer; the tag is as for Put.
	Delete(ctx context.Context, key, tag string, timer move) error
	// Run works until ctx is done. It calls due for the timers that are due. A timer
	// may be due on several Sprouts, and again until it is moved.
	Run(ctx context.Context, due func(ctx context.Context, key string, at time.Time)) error
	// Ready reports whether requests may be accepted. While it returns false, the
	// other methods fail at once.
	Ready() bool
}
