package store

import (
	"context"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"
)

// ScanTime is the longest duration of a scan, including the work of its receiver. A scan
// holds a snapshot or pages of records, and an endless scan would never release them.
const ScanTime = 2 * time.Minute

// Scanned implements an engine's Scan. run calls give for each matching record and stops when give
// returns false, or when its context ends. A record is valid during the call of give.
func Scanned(ctx context.Context, q Query, now func() time.Time, run func(ctx context.Context, give func(*Record) bool) error) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		if err := q.Valid(); err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := context.WithTimeoutCause(ctx, ScanTime, &Late{After: ScanTime})
		defer cancel()
		given, more, ended := 0, true, false
		err := run(ctx, func(r *Record) bool {
			if ended = ctx.Err() != nil; ended {
				return false
			}
			if !r.Expired(now()) {
				given++
				more = yield(r, nil) && given != q.Limit
			}
			return more
		})
		if (ended || err != nil) && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil && more {
			yield(nil, err)
		}
	}
}

// SweepEvery calls sweep, which removes expired records, every interval until ctx ends. It
// is for engines with records on other hosts, where expired records are found only by
// polling.
func SweepEvery(ctx context.Context, interval time.Duration, log *slog.Logger, sweep func() error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := sweep(); err != nil && ctx.Err() == nil {
			log.Error("cannot remove expired records", "error", err)
		}
	}
}

// Lower sets a time to ms if ms is earlier, and reports whether it is. Several goroutines may lower the
// same time.
func Lower(at *atomic.Int64, ms int64) bool {
	for {
		was := at.Load()
		if ms >= was {
			return false
		}
		if at.CompareAndSwap(was, ms) {
			return true
		}
	}
}
