package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/maphash"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"vitrine/store"
)

// Limits of one group of writes. groupYields is how often gather lets other goroutines run, so that
// their writes can join. A group costs one sync, however many writes it has.
const (
	groupWrites = 512
	groupBytes  = 4 << 20
	groupYields = 2
)

// expire is an action of the sweeper: delete the record if it is still expired.
const expire = store.Action(255)

// A request is a Write in the queue.
type request struct {
	space string
	ops   []store.Op
	err   error
	done  chan struct{} // receives one value
}

// A state is a record after the writes that the group has so far.
type state struct {
	exists bool
	record store.Record
	raw    []byte // version and encoded record; record points into it
}

// A group is a set of writes that are applied and synced together.
type group struct {
	batch    *pebble.Batch
	requests []*request
	seen     map[store.Key]*state // records that the group has changed
	before   []*state             // records of the current request's ops, before the request
	arena    []byte               // encoded records; events point into it
	key      []byte
	events   []store.Event
	bytes    int
	due      int64 // earliest expiry of a put in Unix milliseconds; 0: none
}

// Write implements store.Engine.
func (e *Engine) Write(ctx context.Context, space string, ops ...store.Op) error {
	if err := store.ValidOps(space, ops); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.submit(space, ops, false)
}

// submit queues a write and waits for its result. A patient write waits for room in the queue
// instead of failing with Busy.
func (e *Engine) submit(space string, ops []store.Op, patient bool) error {
	r := e.pool.Get().(*request)
	r.space, r.ops, r.err = space, ops, nil
	if err := e.enqueue(r, patient); err != nil {
		e.pool.Put(r)
		return err
	}
	<-r.done
	err := r.err
	r.ops = nil
	e.pool.Put(r)
	return err
}

func (e *Engine) enqueue(r *request, patient bool) error {
	e.sending.RLock()
	defer e.sending.RUnlock()
	select {
	case <-e.closing:
		return store.ErrClosed
	default:
	}
	if patient {
		e.queue <- r // the committer drains the queue until it is closed
		return nil
	}
	select {
	case e.queue <- r:
		return nil
	default:
		return &store.Busy{What: "writes that wait for the disk", RetryAfter: time.Second}
	}
}

// commitLoop runs the committer.
func (e *Engine) commitLoop() {
	defer close(e.inSync)
	for r := range e.queue {
		g := e.gather(r)
		if err := e.apply(g); err != nil {
			for _, r := range g.requests {
				if r.err == nil {
					r.err = err
				}
			}
		}
		if g.due != 0 {
			e.wakeSweeper(g.due)
		}
		e.inSync <- g
	}
}

// gather makes a group of the first write, of all writes in the queue, and of those that arrive
// while gather yields the processor. If no other goroutine is ready, yielding takes no time.
func (e *Engine) gather(first *request) *group {
	g := e.groups.Get().(*group)
	e.add(g, first)
	for yields := 0; len(g.requests) < groupWrites && g.bytes < groupBytes; {
		select {
		case r, ok := <-e.queue:
			if !ok {
				return g
			}
			e.add(g, r)
		default:
			if yields == groupYields {
				return g
			}
			yields++
			runtime.Gosched()
		}
	}
	return g
}

// add applies one write to the group if its conditions hold.
func (e *Engine) add(g *group, r *request) {
	g.requests = append(g.requests, r)
	if r.err = e.failed(); r.err != nil {
		return
	}
	if g.batch == nil {
		g.batch = e.db.NewBatch()
	}
	now := e.config.Now()
	g.before = g.before[:0]
	var more int64
	for i := range r.ops {
		o := &r.ops[i]
		s, err := e.current(g, r.space, o, now)
		if err != nil {
			r.err = err
			return
		}
		g.before = append(g.before, s)
		version := uint64(0)
		if s.exists && !s.record.Expired(now) {
			version = s.record.Version
		}
		o.Existed = version != 0
		o.Version = version
		if !o.If.Holds(version) {
			r.err = &store.Conflict{Op: i, Version: version}
			return
		}
		switch {
		case o.Action == store.Put && !s.exists:
			more++
		case o.Action == store.Delete && o.Existed:
			more--
		}
	}
	if r.err = e.room(r.ops, g.before, more); r.err != nil {
		return
	}
	for i := range r.ops {
		e.change(g, r.space, &r.ops[i], g.before[i], now)
	}
}

// room returns ErrFull if there is no room for the ops, which add more records than they delete.
func (e *Engine) room(ops []store.Op, before []*state, more int64) error {
	if more > 0 && e.records.Load()+more > e.config.MaxRecords {
		return store.ErrFull
	}
	e.disk.check(e)
	puts := func(o store.Op) bool { return o.Action == store.Put }
	if e.disk.full.Load() && slices.ContainsFunc(ops, puts) && (e.disk.low || !replaces(ops, before)) {
		return store.ErrFull
	}
	return nil
}

// growth is how many bytes a write may put beyond those that it deletes, if the disk is full. write.lua of
// package redis has the same number.
const growth = 16 << 10

// replaces reports whether the ops put records in place of others that they delete. The expiry of a timer puts
// its notification in place of the timer, so a full disk must take it. But half of the reserve stays for writes
// that were answered.
func replaces(ops []store.Op, before []*state) bool {
	deletes, grown := false, 0
	for i := range ops {
		switch o := &ops[i]; {
		case o.Action == store.Put:
			grown += store.EncodedSize(o)
		case o.Action == store.Delete && o.Existed:
			deletes = true
			grown -= len(before[i].raw)
		}
	}
	return deletes && grown <= growth
}

// current returns the record of o after the group's earlier writes. For a put the value may
// be missing.
func (e *Engine) current(g *group, space string, o *store.Op, now time.Time) (*state, error) {
	key := store.Key{Space: space, Name: o.Name}
	if s, ok := g.seen[key]; ok {
		return s, nil
	}
	s := &state{}
	if f, ok := e.heads.find(key); ok && o.Action == store.Put {
		s.record = store.Record{Key: key, Version: f.version, Expires: store.AtMilliseconds(f.expires), Tags: f.tags}
		s.exists = !s.record.Expired(now) // else its event needs the value
	}
	if s.exists {
		return s, nil
	}
	g.key = appendRecordKey(g.key[:0], space, o.Name)
	b, closer, err := e.db.Get(g.key)
	if errors.Is(err, pebble.ErrNotFound) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	s.exists = true
	s.raw = append(s.raw, b...)
	s.record.Key = key
	return s, errors.Join(closer.Close(), decode(&s.record, s.raw))
}

// change performs one op whose condition holds.
func (e *Engine) change(g *group, space string, o *store.Op, s *state, now time.Time) {
	key := store.Key{Space: space, Name: o.Name}
	lapsed := s.exists && s.record.Expired(now)
	switch o.Action {
	case store.Put:
		if lapsed {
			e.remove(g, s, store.Expired)
		}
		e.put(g, key, o, s)
	case store.Delete:
		if s.exists && !lapsed {
			o.Version = e.remove(g, s, store.Deleted)
		}
	case expire:
		if lapsed {
			o.Version = e.remove(g, s, store.Expired)
		}
	}
}

// put sets the record and updates s.
func (e *Engine) put(g *group, key store.Key, o *store.Op, s *state) {
	e.unindex(g, s, o)
	if !s.exists {
		e.records.Add(1)
	}
	o.Version = e.assigned.Add(1)
	g.reserve(8 + store.EncodedSize(o))
	start := len(g.arena)
	g.arena = binary.BigEndian.AppendUint64(g.arena, o.Version)
	g.arena = store.AppendRecord(g.arena, o)
	raw := g.arena[start:len(g.arena):len(g.arena)]
	g.key = appendRecordKey(g.key[:0], key.Space, key.Name)
	_ = g.batch.Set(g.key, raw, nil) // a batch in memory never fails
	for _, t := range o.Tags {
		g.key = appendTagKey(g.key[:0], key.Space, t.Name, t.Value, key.Name)
		_ = g.batch.Set(g.key, nil, nil)
	}
	ms := store.Milliseconds(o.Expires)
	if ms != 0 {
		g.key = appendExpiryKey(g.key[:0], ms, key.Space, key.Name)
		_ = g.batch.Set(g.key, nil, nil)
		if g.due == 0 || ms < g.due {
			g.due = ms
		}
	}
	existed := s.exists
	*s = state{exists: true, raw: raw, record: store.Record{Key: key, Version: o.Version, Expires: store.AtMilliseconds(ms)}}
	encoded := raw[8:]
	s.record.Value = encoded[len(encoded)-len(o.Value):]
	metaEnd := len(encoded) - len(o.Value)
	s.record.Meta = encoded[metaEnd-len(o.Meta) : metaEnd : metaEnd]
	if len(o.Tags) > 0 {
		s.record.Tags = slices.Clone(o.Tags)
	}
	g.seen[key] = s
	e.heads.set(key, head{version: o.Version, expires: ms, tags: s.record.Tags})
	g.bytes += len(raw)
	g.events = append(g.events, store.Event{Change: store.Written, Existed: existed, Record: s.record})
}

// remove deletes the record and returns the revision of the deletion.
func (e *Engine) remove(g *group, s *state, why store.Change) uint64 {
	e.unindex(g, s, nil)
	revision := e.assigned.Add(1)
	g.key = appendRecordKey(g.key[:0], s.record.Key.Space, s.record.Key.Name)
	e.deletedStripe(g.key).Store(revision)
	_ = g.batch.Delete(g.key, nil)
	e.records.Add(-1)
	removed := s.record
	removed.Version = revision
	g.bytes += len(s.raw)
	g.events = append(g.events, store.Event{Change: why, Existed: true, Record: removed})
	*s = state{}
	g.seen[removed.Key] = s
	e.heads.forget(removed.Key)
	return revision
}

// unindex removes the index entries of s, except those that next adds again.
func (e *Engine) unindex(g *group, s *state, next *store.Op) {
	if !s.exists {
		return
	}
	r := &s.record
	for _, t := range r.Tags {
		if next != nil && slices.Contains(next.Tags, t) {
			continue
		}
		g.key = appendTagKey(g.key[:0], r.Key.Space, t.Name, t.Value, r.Key.Name)
		_ = g.batch.Delete(g.key, nil)
	}
	if ms := store.Milliseconds(r.Expires); ms != 0 && (next == nil || store.Milliseconds(next.Expires) != ms) {
		g.key = appendExpiryKey(g.key[:0], ms, r.Key.Space, r.Key.Name)
		_ = g.batch.Delete(g.key, nil)
	}
}

// reserve makes room for n bytes in the arena. It allocates a new arena instead of growing
// the old one, because events point into the old one.
func (g *group) reserve(n int) {
	if cap(g.arena)-len(g.arena) < n {
		g.arena = make([]byte, 0, max(n, 4<<10))
	}
}

// deletedStripe returns the stripe for this key. A stripe holds the last revision that deleted one
// of its records.
func (e *Engine) deletedStripe(key []byte) *atomic.Uint64 {
	return &e.deleted[maphash.Bytes(e.seed, key)%deletedStripes]
}

// apply makes the group visible to readers and writes it to the log.
func (e *Engine) apply(g *group) error {
	if g.batch == nil || g.batch.Empty() {
		return nil
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], e.assigned.Load())
	binary.BigEndian.PutUint64(b[8:], uint64(e.records.Load()))
	_ = g.batch.Set(keyState, b[:], nil)
	e.disk.wrote(g.batch.Len())
	return e.guard(func() error {
		if e.config.Sync == SyncAlways {
			return e.db.ApplyNoSyncWait(g.batch, pebble.Sync)
		}
		return e.db.Apply(g.batch, pebble.NoSync)
	})
}

// syncLoop answers the groups in order, each after its sync.
func (e *Engine) syncLoop() {
	for g := range e.inSync {
		if g.batch != nil && !g.batch.Empty() {
			e.settle(g)
		}
		for _, r := range g.requests {
			r.done <- struct{}{}
		}
		e.recycle(g)
	}
}

// settle waits for the group's sync and then sends its events to the history.
func (e *Engine) settle(g *group) {
	err := e.failed()
	if err == nil && e.config.Sync == SyncAlways {
		if err = g.batch.SyncWait(); err != nil {
			e.fail(err)
			err = e.failed()
		}
	}
	if err != nil {
		for _, r := range g.requests {
			r.err = err
		}
		return
	}
	if n := len(g.events); n > 0 {
		e.durable.reach(g.events[n-1].Record.Version)
		e.history.add(g.events)
	}
	g.batch.Close()
}

// recycle keeps the group's memory for the next group, except the part of the arena that events
// point into.
func (e *Engine) recycle(g *group) {
	clear(g.requests)
	clear(g.events)
	clear(g.seen)
	clear(g.before)
	*g = group{
		requests: g.requests[:0], events: g.events[:0], seen: g.seen, before: g.before[:0], key: g.key,
		arena: g.arena[len(g.arena):],
	}
	e.groups.Put(g)
}

// guard turns an error or a panic of Pebble's log into the engine's failure.
func (e *Engine) guard(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			if err = e.failed(); err == nil {
				panic(p)
			}
		}
	}()
	if err := do(); err != nil {
		e.fail(err)
		return e.failed()
	}
	return nil
}
