package embedded

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"vitrine/store"
)

// event returns an event whose record has value bytes of value and about tags bytes of tags.
func event(revision, value, tags int) store.Event {
	v := store.Event{Change: store.Written, Record: store.Record{Version: uint64(revision), Value: make([]byte, value)}}
	v.Record.Key = store.Key{Space: "s", Name: fmt.Sprint(revision)}
	for range tags / 500 {
		v.Record.Tags = append(v.Record.Tags, store.Tag{Name: "name", Value: strings.Repeat("x", 496)})
	}
	return v
}

// held returns the bytes that the history holds in values, tags and tag headers.
func held(h *history) (n int) {
	for i := range h.ring {
		r := &h.ring[i].Record
		n += len(r.Value)
		for _, t := range r.Tags {
			n += len(t.Name) + len(t.Value) + 32
		}
	}
	return n
}

// TestHistoryBytes checks that the history keeps its bound in bytes, whatever the events contain.
func TestHistoryBytes(t *testing.T) {
	const limit = 1 << 20
	for name, made := range map[string][2]int{"values": {32 << 10, 0}, "tags": {0, 30_000}, "both": {16 << 10, 30_000}, "nothing": {0, 0}} {
		h := newHistory(8192, limit)
		for i := range 10_000 {
			h.add([]store.Event{event(i+1, made[0], made[1])})
			if h.bytes > limit {
				t.Fatalf("%s: counted %d bytes, want at most %d", name, h.bytes, limit)
			}
		}
		if n := held(h); n > limit {
			t.Errorf("%s: kept %d bytes, want at most %d", name, n, limit)
		}
	}
}

// TestHistoryOfOne checks that the history keeps an event that is larger than the bound, alone, so
// that watchers get the event.
func TestHistoryOfOne(t *testing.T) {
	h := newHistory(16, 1000)
	h.add([]store.Event{event(1, 10, 0), event(2, 5000, 0)})
	events := make([]store.Event, 4)
	if n, _, err := h.take(1, events); n != 1 || err != nil || events[0].Record.Version != 2 {
		t.Errorf("got %d events, error %v, want 1", n, err)
	}
	var behind *store.Behind
	if _, _, err := h.take(0, events); !errors.As(err, &behind) || behind.Oldest != 1 {
		t.Errorf("take of a removed event: got %v, want a Behind error", err)
	}
}

// TestTakeBytes checks that take also bounds the bytes that a watcher copies at once.
func TestTakeBytes(t *testing.T) {
	h := newHistory(64, 64<<20)
	for i := range 20 {
		h.add([]store.Event{event(i+1, 1<<20, 0)})
	}
	events := make([]store.Event, watchTake)
	if n, _, err := h.take(0, events); n != 1 || err != nil {
		t.Errorf("took %d events of 1 MiB at once, error %v, want 1", n, err)
	}
}
