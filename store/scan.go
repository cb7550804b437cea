package store

import (
	"context"
	"iter"
	"log/slog"
	"time"
)

// Scanned implements an engine's Scan. run calls give for each matching record and stops when give
// returns false. A record is valid during the call of give.
func Scanned(q Query, now func() time.Time, run func(give func(*Record) bool) error) iter.Seq2[*Record, error] {
	return func(yield func(*Record, error) bool) {
		if err := q.Valid(); err != nil {
			yield(nil, err)
			return
		}
		given, more := 0, true
		err := run(func(r *Record) bool {
			if !r.Expired(now()) {
				given++
				more = yield(r, nil) && given != q.Limit
			}
			return more
		})
		if err != nil && more {
			yield(nil, err)
		}
	}
}

// SweepEvery calls sweep, which removes expired records, every interval until ctx ends. It is for
// engines whose records are on other hosts, where only a look finds expired records.
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
