package embedded

import (
	"context"
	"iter"
	"strings"
	"sync"

	"vitrine/store"
)

// watchTake is how many events one copy by a watcher has at most, within store.WatchBytes.
const watchTake = 64

// history keeps the last changes in one ring for all watchers. A slow watcher costs nothing: when
// its next event is gone, it gets Behind.
type history struct {
	mu      sync.Mutex
	ring    []store.Event
	first   uint64 // number of the oldest event kept; numbers increase by one; event n is ring[n%len]
	next    uint64 // number of the next event
	bytes   int
	limit   int           // bytes
	dropped uint64        // revision of the last event that was dropped
	last    uint64        // revision of the last event
	watched int           // watchers that wait for more
	more    chan struct{} // closed when there are more events, or when closed
	closed  bool
}

func newHistory(events, bytes int) *history {
	return &history{ring: make([]store.Event, events), limit: bytes, more: make(chan struct{})}
}

// start sets the revision at which the history begins.
func (h *history) start(revision uint64) { h.dropped, h.last = revision, revision }

func (h *history) add(events []store.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range events {
		size := events[i].Record.Held()
		for h.next-h.first == uint64(len(h.ring)) || (h.bytes+size > h.limit && h.first < h.next) {
			old := &h.ring[h.first%uint64(len(h.ring))]
			h.dropped = old.Record.Version
			h.bytes -= old.Record.Held()
			*old = store.Event{}
			h.first++
		}
		h.ring[h.next%uint64(len(h.ring))] = events[i]
		h.bytes += size
		h.last = events[i].Record.Version
		h.next++
	}
	if h.watched > 0 {
		close(h.more)
		h.more = make(chan struct{})
		h.watched = 0
	}
}

func (h *history) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.closed = true
		close(h.more)
	}
}

// seek returns the number of the first event after the revision, and the revision at which
// the watch starts. Revision 0 selects only new events.
func (h *history) seek(revision uint64) (number, from uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if revision == 0 || revision == h.last {
		return h.next, h.last, nil
	}
	if revision < h.dropped || revision > h.last {
		return 0, 0, &store.Behind{Oldest: h.dropped}
	}
	number = h.next
	for number > h.first && h.ring[(number-1)%uint64(len(h.ring))].Record.Version > revision {
		number--
	}
	return number, revision, nil
}

// take copies events from number on. If there are none, the caller waits on more.
func (h *history) take(number uint64, into []store.Event) (n int, more <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if number < h.first {
		return 0, nil, &store.Behind{Oldest: h.dropped}
	}
	for bytes := 0; n < len(into) && number+uint64(n) < h.next; n++ {
		v := &h.ring[(number+uint64(n))%uint64(len(h.ring))]
		if bytes += v.Record.Held(); n > 0 && bytes > store.WatchBytes {
			break
		}
		into[n] = *v
	}
	if n == 0 && h.closed {
		return 0, nil, store.ErrClosed
	}
	if n == 0 {
		h.watched++
	}
	return n, h.more, nil
}

// Watch implements store.Engine.
func (e *Engine) Watch(ctx context.Context, space, prefix string, from uint64) iter.Seq2[*store.Event, error] {
	return func(yield func(*store.Event, error) bool) {
		number, start, err := e.history.seek(from)
		if err != nil {
			yield(nil, err)
			return
		}
		v := store.Event{Change: store.Started, Record: store.Record{Key: store.Key{Space: space}, Version: start}}
		if !yield(&v, nil) {
			return
		}
		events := make([]store.Event, watchTake)
		for {
			n, more, err := e.history.take(number, events)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range n {
				v := &events[i]
				if v.Record.Key.Space == space && strings.HasPrefix(v.Record.Key.Name, prefix) && !yield(v, nil) {
					return
				}
			}
			number += uint64(n)
			if n > 0 {
				clear(events)
				continue
			}
			select {
			case <-more:
			case <-ctx.Done():
				yield(nil, ctx.Err())
				return
			}
		}
	}
}
