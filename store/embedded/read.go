package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"vitrine/store"
)

// Get implements store.Engine.
func (e *Engine) Get(ctx context.Context, key store.Key, r *store.Record) error {
	if err := key.Valid(); err != nil {
		return err
	}
	if !e.readers.enter() {
		return store.ErrClosed
	}
	defer e.readers.leave()
	buffer := appendRecordKey(r.Scratch(), key.Space, key.Name)
	stripe := e.deletedStripe(buffer)
	raw, closer, err := e.db.Get(buffer)
	if errors.Is(err, pebble.ErrNotFound) {
		if err := e.synced(ctx, stripe.Load()); err != nil {
			return err
		}
		return store.ErrNotFound
	}
	if err != nil {
		return err
	}
	buffer = append(buffer[:0], raw...)
	if err := closer.Close(); err != nil {
		return err
	}
	r.Keep(buffer)
	r.Key = key
	if err := decode(r, buffer); err != nil {
		return err
	}
	if err := e.synced(ctx, r.Version); err != nil {
		return err
	}
	if r.Expired(e.config.Now()) {
		return store.ErrNotFound
	}
	return nil
}

// synced waits until the revision is synced, so that a crash cannot undo what a reader saw.
func (e *Engine) synced(ctx context.Context, revision uint64) error {
	if revision <= e.durable.at.Load() || e.config.Sync != SyncAlways {
		return nil
	}
	return e.durable.wait(ctx, revision)
}

// Scan implements store.Engine. It reads one snapshot, and uses one time for expiry.
func (e *Engine) Scan(ctx context.Context, q store.Query) iter.Seq2[*store.Record, error] {
	var now time.Time
	return store.Scanned(ctx, q, func() time.Time { return now }, func(ctx context.Context, give func(*store.Record) bool) error {
		if !e.readers.enter() {
			return store.ErrClosed
		}
		defer e.readers.leave()
		now = e.config.Now()
		s := &scan{query: q, snapshot: e.db.NewSnapshot(), give: give}
		defer s.snapshot.Close()
		if err := e.synced(ctx, e.assigned.Load()); err != nil {
			return err
		}
		return s.run(ctx)
	})
}

// A scan is the state of one Scan.
type scan struct {
	query    store.Query
	snapshot *pebble.Snapshot
	record   store.Record
	give     func(*store.Record) bool
	stopped  bool
}

func (s *scan) run(ctx context.Context) error {
	q := &s.query
	if q.Match == nil {
		base := appendRecordKey(nil, q.Space, "")
		low := append(slices.Clone(base), q.Prefix...)
		high := []byte(store.PrefixEnd(string(low)))
		if q.After != "" {
			after := append(append(slices.Clone(base), q.After...), 0)
			if bytes.Compare(after, low) > 0 {
				low = after
			}
		}
		return s.each(ctx, low, high, func(key, value []byte) error { return s.hand(string(key[len(base):]), value) })
	}
	base := appendTagBase(nil, q.Space, q.Match.Tag)
	for _, r := range q.Match.Ranges(string(base)) {
		err := s.each(ctx, []byte(r[0]), []byte(r[1]), func(key, _ []byte) error { return s.follow(key[len(base):]) })
		if err != nil || s.stopped {
			return err
		}
	}
	return nil
}

// each calls do for the keys in a range until the scan has stopped.
func (s *scan) each(ctx context.Context, low, high []byte, do func(key, value []byte) error) error {
	if bytes.Compare(low, high) >= 0 {
		return nil
	}
	it, err := s.snapshot.NewIterWithContext(ctx, &pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok && !s.stopped; ok = it.Next() {
		if err := ctx.Err(); err != nil {
			return err
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := do(it.Key(), value); err != nil {
			return err
		}
	}
	return it.Error()
}

// follow passes on the record of an index entry. The entry is value NUL name.
func (s *scan) follow(entry []byte) error {
	name := string(entry[bytes.IndexByte(entry, 0)+1:])
	if !strings.HasPrefix(name, s.query.Prefix) {
		return nil
	}
	value, closer, err := s.snapshot.Get(appendRecordKey(nil, s.query.Space, name))
	if err != nil {
		return fmt.Errorf("store: %s in %s is in the index but does not exist: %w", name, s.query.Space, err)
	}
	defer closer.Close()
	return s.hand(name, value)
}

func (s *scan) hand(name string, value []byte) error {
	s.record.Key = store.Key{Space: s.query.Space, Name: name}
	if err := decode(&s.record, value); err != nil {
		return err
	}
	s.stopped = !s.give(&s.record)
	return nil
}

// readers counts the readers of the database, so that Close waits for them.
type readers struct {
	mu     sync.RWMutex
	inside sync.WaitGroup
	closed bool
}

func (r *readers) enter() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return false
	}
	r.inside.Add(1)
	return true
}

func (r *readers) leave() { r.inside.Done() }

func (r *readers) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.inside.Wait()
}
