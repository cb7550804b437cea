package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vitrine/store"
)

// Watch implements store.Engine. The etcd client's queue is unbounded, so a goroutine always
// empties it into a bounded queue. If that queue is full, the watch ends with Behind.
func (e *Engine) Watch(ctx context.Context, space, prefix string, from uint64) iter.Seq2[*store.Event, error] {
	return func(yield func(*store.Event, error) bool) {
		if err := store.ValidSpace(space); err != nil {
			yield(nil, err)
			return
		}
		caller := ctx
		ctx, cancel := e.bound(ctx)
		defer cancel()
		base := strings.TrimSuffix(e.recordKey(space, ""), "r") // records and the marker
		from, err := e.watchStart(ctx, base, from)
		if err != nil {
			yield(nil, err)
			return
		}
		v := &store.Event{Change: store.Started, Record: store.Record{Key: store.Key{Space: space}, Version: from}}
		late := time.AfterFunc(answerTime, cancel)
		// Without WithRequireLeader, a member that has lost its leader keeps the watch open and sends nothing.
		source := e.client.Watch(clientv3.WithRequireLeader(ctx), base, clientv3.WithPrefix(), clientv3.WithRev(int64(from)+1), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
		first := <-source
		err = e.watchError(caller, &first, first.Created)
		if !late.Stop() { // it has ended ctx
			err = e.readError(caller, context.DeadlineExceeded)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		q := &queue{events: make(chan *store.Event, e.config.Behind), room: e.config.Bytes, all: &e.held}
		ended := make(chan error, 1)
		go func() {
			defer close(q.events)
			err := e.pump(caller, source, space, prefix, q)
			cancel() // or etcd's queue would grow while the receiver takes the events of q
			ended <- err
		}()
		defer func() {
			cancel()
			for range q.events { // until pump has returned
			}
			q.add(-q.bytes.Load())
		}()
		if !yield(v, nil) {
			return
		}
		for v := range q.events {
			n := int64(v.Record.Held())
			if !yield(v, nil) {
				return
			}
			q.add(-n)
		}
		yield(nil, <-ended)
	}
}

// allBytes is how much all queues of an engine hold together at most. Beyond that, each may still hold
// store.WatchBytes or one event, so that slow receivers do not end the watches of others.
const allBytes = 256 << 20

// A queue holds the events that a receiver has not taken yet.
type queue struct {
	events chan *store.Event
	bytes  atomic.Int64  // of the events, and of the one that the receiver has
	room   int64         // bytes, at most
	all    *atomic.Int64 // bytes of all queues
}

// add counts n bytes, and returns the bytes of the queue and of all queues.
func (q *queue) add(n int64) (own, all int64) { return q.bytes.Add(n), q.all.Add(n) }

// put adds an event and reports whether there was room. After false, the queue takes no more.
func (q *queue) put(v *store.Event) bool {
	n := int64(v.Record.Held())
	own, all := q.add(n)
	if own > q.room || own > max(n, store.WatchBytes) && all > allBytes {
		return false
	}
	select {
	case q.events <- v:
		return true
	default:
		return false
	}
}

// watchStart returns the revision after which a watch begins. It returns Behind if etcd no longer
// keeps that revision.
func (e *Engine) watchStart(ctx context.Context, base string, from uint64) (uint64, error) {
	within, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	now, err := e.client.Get(within, base, clientv3.WithCountOnly(), clientv3.WithRev(int64(from)))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted), errors.Is(err, rpctypes.ErrFutureRev):
		return 0, &store.Behind{}
	case err != nil:
		return 0, e.readError(ctx, err)
	case from == 0:
		return uint64(now.Header.Revision), nil
	}
	return from, nil
}

// pump moves events from etcd's queue to q until q is full.
func (e *Engine) pump(ctx context.Context, source clientv3.WatchChan, space, prefix string, q *queue) error {
	last := uint64(0)
	for {
		answer, ok := <-source
		if err := e.watchError(ctx, &answer, ok); err != nil {
			return err
		}
		all, err := e.events(space, prefix, answer.Events)
		for _, v := range all {
			if !q.put(v) {
				return &store.Behind{Oldest: last}
			}
			last = v.Record.Version
		}
		if err != nil {
			return err
		}
	}
}

func (e *Engine) watchError(ctx context.Context, answer *clientv3.WatchResponse, ok bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case e.ctx.Err() != nil:
		return store.ErrClosed
	case answer.CompactRevision != 0:
		return &store.Behind{Oldest: uint64(answer.CompactRevision)}
	case answer.Err() != nil:
		return e.readError(ctx, answer.Err())
	case !ok:
		return errors.New("store: etcd: the watch ended")
	}
	return nil
}

// events converts the events of one response whose records have the prefix. A response holds every
// change of its revisions. If a record does not decode, events returns the events before it and an
// error.
func (e *Engine) events(space, prefix string, raw []*clientv3.Event) ([]*store.Event, error) {
	expired := map[int64]bool{}
	for _, r := range raw {
		if string(r.Kv.Key) == e.markerKey(space) {
			expired[r.Kv.ModRevision] = true
		}
	}
	var all []*store.Event
	for _, r := range raw {
		name, ok := e.isRecord(space, r.Kv.Key)
		if !ok || !strings.HasPrefix(name, prefix) {
			continue
		}
		v := &store.Event{Change: store.Written, Existed: !r.IsCreate()}
		v.Record.Key = store.Key{Space: space, Name: name}
		what := r.Kv
		if r.Type == mvccpb.DELETE {
			v.Change = store.Deleted
			if expired[r.Kv.ModRevision] {
				v.Change = store.Expired
			}
			what = r.PrevKv // nil: the old value was compacted
		}
		if what != nil {
			if err := v.Record.Decode(what.Value); err != nil {
				return all, fmt.Errorf("store: etcd: watch of record %q in space %q, version %d: %w", name, space, what.ModRevision, err)
			}
		}
		v.Record.Version = uint64(r.Kv.ModRevision)
		all = append(all, v)
	}
	return all, nil
}
