package embedded

import (
	"strings"

	"vitrine/store"
)

// A head holds what a put needs from the record that it replaces.
type head struct {
	version uint64
	expires int64 // Unix milliseconds; 0: never
	tags    []store.Tag
}

// heads caches the heads of the records that were written last, so that a put of one of
// them does not read the database: such a read costs as much as the rest of a put. Only the
// committer writes records and uses heads, so a head is never stale.
//
// A head enters the young generation when it is written or found. When the young generation
// exceeds half of the limit, it becomes the old one, and the old one is dropped.
type heads struct {
	young, old map[store.Key]head
	bytes      int // of the young generation
	limit      int
}

func newHeads(limit int) *heads {
	return &heads{young: map[store.Key]head{}, old: map[store.Key]head{}, limit: limit}
}

// find returns the record's head, if it is known.
func (h *heads) find(k store.Key) (head, bool) {
	if f, ok := h.young[k]; ok {
		return f, true
	}
	f, ok := h.old[k]
	if ok {
		h.set(k, f)
	}
	return f, ok
}

// set keeps the record's head. It keeps f.tags.
func (h *heads) set(k store.Key, f head) {
	if was, ok := h.young[k]; ok {
		h.bytes -= was.size(k)
	} else {
		k = store.Key{Space: strings.Clone(k.Space), Name: strings.Clone(k.Name)} // they may be parts of a request
	}
	h.bytes += f.size(k)
	h.young[k] = f
	if h.bytes > h.limit/2 {
		h.young, h.old = h.old, h.young
		clear(h.young)
		h.bytes = 0
	}
}

// forget forgets the head of a record that is removed.
func (h *heads) forget(k store.Key) {
	if f, ok := h.young[k]; ok {
		h.bytes -= f.size(k)
		delete(h.young, k)
	}
	delete(h.old, k)
}

// size returns the approximate memory of the head in a map, in bytes.
func (f *head) size(k store.Key) int {
	const slot = 160 // with a share of the map's empty slots
	n := slot + len(k.Space) + len(k.Name)
	for _, t := range f.tags {
		n += 32 + len(t.Name) + len(t.Value)
	}
	return n
}
