package replica

import (
	"container/heap"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// A Record is a value with its version. Versions of a key only grow.
type Record struct {
	Value   []byte
	Version uint64    // 0 if there is no such record
	Expires time.Time // zero for never; for a timer, when it is due
	Timer   bool      // call OnTimer on one instance when due

	deleted bool
}

// A table holds the records of one instance.
type table struct {
	derive func(key string) ([]byte, bool)
	rank   func(key string) int            // rank of this instance among the key's replicas
	due    func(key string, r Record) bool // takes a timer that is due, if it has room; called with mu held

	mu      sync.Mutex
	entries map[string]*entry
	heap    entries
	next    time.Time // when run checks again; zero if it waits for wake
	wake    chan struct{}
}

type entry struct {
	key   string
	r     Record
	at    time.Time // when the entry expires or its timer is due; zero for never
	index int       // index in the heap; -1 if not in it
}

// anyVersion is the expected version of a write that replaces any record.
const anyVersion = 1<<64 - 1

// deletedFor is how long a deletion is stored, so that an older copy of the
// record does not come back from a replica that was down.
const deletedFor = time.Minute

// stagger is the delay of each further replica of a timer after the one before
// it. (As in Chronos, the first live replica claims the timer.)
const stagger = time.Second

// grain is the shortest time that run sleeps before an entry is due.
const grain = 20 * time.Millisecond

func newTable(derive func(string) ([]byte, bool), rank func(string) int, due func(string, Record) bool) *table {
	return &table{derive: derive, rank: rank, due: due, entries: map[string]*entry{}, wake: make(chan struct{}, 1)}
}

// get returns the record of key, including deletions. Version is 0 if there is
// none.
func (t *table) get(key string, now time.Time) Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lookup(key, now)
}

func (t *table) lookup(key string, now time.Time) Record {
	if e := t.entries[key]; e != nil {
		if e.r.Timer || e.r.Expires.IsZero() || e.r.Expires.After(now) {
			return e.r
		}
		return Record{}
	}
	if t.derive != nil {
		if value, ok := t.derive(key); ok {
			return Record{Value: value, Version: 1}
		}
	}
	return Record{}
}

// compareAndSet writes the record unless key has a version newer than expect, and
// returns the new version. If expect is anyVersion it always writes. A deleted
// record may be written with expect 0. A replica with an older version than
// expect, after an outage, accepts the write.
func (t *table) compareAndSet(key string, expect uint64, r Record, now time.Time) (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have := t.lookup(key, now)
	r.Version = max(uint64(now.UnixNano()), have.Version+1)
	if expect != anyVersion {
		if have.Version > expect && (!have.deleted || expect != 0) {
			return 0, false
		}
		r.Version = max(r.Version, expect+1)
	}
	t.put(key, r)
	return r.Version, true
}

// set stores a copy of a record unless it already has that version or a newer
// one.
func (t *table) set(key string, r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[key]; e != nil && e.r.Version >= r.Version {
		return
	}
	t.put(key, r)
}

func (t *table) put(key string, r Record) {
	e := t.entries[key]
	if e == nil {
		e = &entry{key: key, index: -1}
		t.entries[key] = e
	}
	e.r, e.at = r, r.Expires
	if r.Timer && !r.deleted {
		e.at = r.Expires.Add(time.Duration(t.rank(key)) * stagger)
	}
	t.schedule(e)
}

func (t *table) schedule(e *entry) {
	switch {
	case e.at.IsZero() && e.index >= 0:
		heap.Remove(&t.heap, e.index)
	case e.at.IsZero():
	case e.index >= 0:
		heap.Fix(&t.heap, e.index)
	default:
		heap.Push(&t.heap, e)
	}
	if !e.at.IsZero() && (t.next.IsZero() || e.at.Before(t.next)) {
		t.next = e.at
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// expire deletes expired records and passes on the timers that are due, until due has
// no more room. It returns when the next entry is due; zero if there is none.
func (t *table) expire(now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.heap) > 0 && !t.heap[0].at.After(now) {
		e := t.heap[0]
		if e.r.Timer && !e.r.deleted {
			if !t.due(e.key, e.r) {
				break
			}
			// Check again later, in case the instance that claims the timer does
			// not delete it.
			e.at = now.Add(deletedFor)
			heap.Fix(&t.heap, 0)
			continue
		}
		heap.Pop(&t.heap)
		delete(t.entries, e.key)
	}
	t.next = time.Time{}
	if len(t.heap) > 0 {
		t.next = t.heap[0].at
	}
	return t.next
}

// run calls expire whenever an entry is due, until ctx is done.
func (t *table) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next := t.expire(time.Now()); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(max(time.Until(next), grain))
		}
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-t.wake:
		}
	}
}

// keys returns the keys of all entries.
func (t *table) keys() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.AppendSeq(make([]string, 0, len(t.entries)), maps.Keys(t.entries))
}

// held returns the record of an entry, whether it has expired or not.
func (t *table) held(key string) (r Record, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[key]
	if e == nil {
		return r, false
	}
	return e.r, true
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}

// entries is a heap by due time.
type entries []*entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *entries) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}
func (h *entries) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.index = -1
	return e
}
