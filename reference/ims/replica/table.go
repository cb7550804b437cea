package replica

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// A Record is a value with its version. Versions of a key only grow.
type Record struct {
	Value   []byte
	Version uint64    // 0: no such record
	Expires time.Time // zero: never; for a timer, when it is due
	Timer   bool      // to be handed to one instance's OnTimer when due

	deleted bool
}

// A table is the records that one instance holds itself.
type table struct {
	derive func(key string) ([]byte, bool)
	rank   func(key string) int // of this instance among the key's replicas
	due    func(key string, r Record)

	mu      sync.Mutex
	entries map[string]*entry
	heap    entries
	next    time.Time // when run looks again; zero: when woken
	wake    chan struct{}
}

type entry struct {
	key   string
	r     Record
	at    time.Time // when something is due; zero: never
	index int       // in the heap; -1: not in it
}

// anyVersion is what a write expects that is to replace whatever is there.
const anyVersion = 1<<64 - 1

// deletedFor is how long a deletion is remembered, so that an older copy of
// the record does not come back from a replica that was away.
const deletedFor = time.Minute

// stagger is how much later each further replica of a timer looks after it
// (Chronos does the same, so that the first that lives pops it).
const stagger = time.Second

// grain is the least time between two looks at what is due.
const grain = 20 * time.Millisecond

func newTable(derive func(string) ([]byte, bool), rank func(string) int, due func(string, Record)) *table {
	return &table{derive: derive, rank: rank, due: due, entries: map[string]*entry{}, wake: make(chan struct{}, 1)}
}

// get is the record of key, deletions included; Version 0 when there is none.
func (t *table) get(key string, now time.Time) Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.look(key, now)
}

func (t *table) look(key string, now time.Time) Record {
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

// compareAndSet writes the record if key's version is expect (or expect is
// anyVersion), and gives the
// new version. A replica that knows less than the caller, having been away,
// takes the write.
func (t *table) compareAndSet(key string, expect uint64, r Record, now time.Time) (uint64, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have := t.look(key, now)
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

// set takes a copy of a record unless what is there is as new.
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

// expire forgets what has expired and hands over the timers that are due.
func (t *table) expire(now time.Time) time.Time {
	var timers []*entry
	t.mu.Lock()
	for len(t.heap) > 0 && !t.heap[0].at.After(now) {
		e := t.heap[0]
		if e.r.Timer && !e.r.deleted {
			// Another look later, in case whoever pops it fails to say so.
			e.at = now.Add(deletedFor)
			heap.Fix(&t.heap, 0)
			timers = append(timers, &entry{key: e.key, r: e.r})
			continue
		}
		heap.Pop(&t.heap)
		delete(t.entries, e.key)
	}
	t.next = time.Time{}
	if len(t.heap) > 0 {
		t.next = t.heap[0].at
	}
	next := t.next
	t.mu.Unlock()
	for _, e := range timers {
		t.due(e.key, e.r)
	}
	return next
}

// run watches over what is due until ctx is done.
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

// all copies the entries that want chooses.
func (t *table) all(want func(key string) bool) []entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []entry
	for key, e := range t.entries {
		if want(key) {
			out = append(out, entry{key: key, r: e.r})
		}
	}
	return out
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
