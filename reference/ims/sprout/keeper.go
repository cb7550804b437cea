package sprout

import (
	"context"
	"time"

	"vitrine/reference/keep"
)

// A keeper keeps what outlives a transaction: challenges, and registrations with
// their subscriptions and timers. It is a keep.Store, or replicas of a cluster.
type keeper interface {
	Get(ctx context.Context, key string) (keep.Record, error)
	Put(ctx context.Context, key string, r keep.Record, timer keep.Move) error
	Delete(ctx context.Context, key, tag string, timer keep.Move) error
	Run(ctx context.Context, due func(ctx context.Context, key string, at time.Time)) error
	Ready() bool
	Now() time.Time // by which to judge whether something in a record has expired
}
