package replica

import (
	"context"
	"errors"
	"time"
)

// Schedule sets the timer of a key, replacing an earlier one. The key's replicas
// store it like any record. When it is due, the first live replica deletes it and
// calls OnTimer with the value. (If that instance dies between the two, the timer
// is lost. This is the price of never firing twice.)
func (s *Store) Schedule(ctx context.Context, key string, at time.Time, value []byte) error {
	return s.replace(ctx, key, Record{Value: value, Expires: at, Timer: true})
}

// Cancel removes the timer of a key, if there is one.
func (s *Store) Cancel(ctx context.Context, key string) error {
	return s.replace(ctx, key, Record{deleted: true, Expires: time.Now().Add(deletedFor)})
}

func (s *Store) replace(ctx context.Context, key string, r Record) error {
	_, err := s.Put(ctx, key, r, anyVersion)
	return err
}

// queueDue queues a timer for fire. If the queue is full, a later expire passes
// the timer on again.
func (s *Store) queueDue(key string, r Record) {
	select {
	case s.due <- due{key, r}:
	default:
		s.config.Log.Warn("too many timers are due at once: one is delayed", "key", key)
	}
}

// fire claims due timers by deleting them, and calls OnTimer for those it
// claimed. Only one instance can delete a given version.
func (s *Store) fire(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-s.due:
			err := s.Delete(ctx, d.key, d.r.Version)
			switch {
			case err == nil:
				s.counts.fired.Inc()
				if s.config.OnTimer != nil {
					s.config.OnTimer(ctx, d.key, d.r.Value)
				}
			case !errors.Is(err, ErrConflict) && ctx.Err() == nil:
				s.config.Log.Warn("a due timer could not be claimed", "key", d.key, "error", err)
			}
		}
	}
}

// resync sends a connected peer the records that it replicates. The peer
// keeps those that are newer than its own.
func (s *Store) resync(ctx context.Context, l *link) {
	theirs := s.table.all(func(key string) bool {
		for _, m := range s.replicas(key) {
			if m.link == l {
				return true
			}
		}
		return false
	})
	const window = 64 // requests in flight
	var calls []call
	settle := func(n int) bool {
		for len(calls) > n {
			if _, _, err := calls[0].wait(ctx); err != nil {
				l.dirty.Store(true)
				return false
			}
			calls = calls[1:]
			s.counts.resynced.Inc()
		}
		return true
	}
	for _, e := range theirs {
		c, err := l.start(opSet, func(b []byte) []byte { return appendRecord(b, e.key, e.r) })
		if err != nil {
			return
		}
		calls = append(calls, c)
		if !settle(window) {
			return
		}
	}
	settle(0)
}
