package replica

import (
	"context"
	"errors"
	"maps"
	"slices"
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

// queueDue queues a timer for fire. It returns false if the queue is full.
func (s *Store) queueDue(key string, r Record) bool {
	select {
	case s.due <- due{key, r}:
		return true
	default:
		return false
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

// resync sends a connected peer the records that it replicates, of the missed keys or, if
// missed is nil, of all keys. The peer keeps those that are newer than its own. After a
// late answer resync stops, and the peer misses the rest until the next resync.
func (s *Store) resync(ctx context.Context, l *link, missed map[string]struct{}) {
	keys := slices.Collect(maps.Keys(missed))
	if missed == nil {
		keys = s.table.keys()
	}
	const window = 64 // requests in flight
	type sent struct {
		call
		index int // of its key
	}
	var calls []sent
	settle := func(n int) bool {
		for len(calls) > n {
			if _, _, err := calls[0].wait(ctx); err != nil {
				l.miss(keys[calls[0].index:]...)
				return false
			}
			calls = calls[1:]
			s.counts.resynced.Inc()
		}
		return true
	}
	for i, key := range keys {
		r, held := s.table.held(key)
		if !held || !s.replicates(l, key) {
			continue
		}
		c, err := l.start(opSet, func(b []byte) []byte { return appendRecord(b, key, r) })
		if err != nil {
			return // the connection has ended
		}
		calls = append(calls, sent{c, i})
		if !settle(window) {
			return
		}
	}
	settle(0)
}

// replicates reports whether the peer of a link is a replica of key.
func (s *Store) replicates(l *link, key string) bool {
	return slices.ContainsFunc(s.replicas(key), func(m member) bool { return m.link == l })
}
