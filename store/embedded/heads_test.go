package embedded

import (
	"strconv"
	"testing"

	"vitrine/store"
)

func TestHeadsKeepTheLastWithinTheirBytes(t *testing.T) {
	const limit = 100 << 10
	h := newHeads(limit)
	key := func(i int) store.Key { return store.Key{Space: "s", Name: strconv.Itoa(i)} }
	for i := range 10_000 {
		h.set(key(i), head{version: uint64(i), tags: []store.Tag{{Name: "n", Value: strconv.Itoa(i)}}})
		if _, ok := h.find(key(0)); !ok {
			t.Fatalf("after %d records, the record in use was forgotten", i)
		}
	}
	bytes := 0
	for _, m := range []map[store.Key]head{h.young, h.old} {
		for k, f := range m {
			bytes += f.size(k)
		}
	}
	if bytes > limit || bytes < limit/2 {
		t.Errorf("cache holds %d bytes, want at most %d and at least half of it", bytes, limit)
	}
	for i := 9_999; i > 9_800; i-- {
		if f, ok := h.find(key(i)); !ok || f.version != uint64(i) {
			t.Fatalf("record %d: got %v, found %v", i, f, ok)
		}
	}
	h.forget(key(0))
	h.forget(key(9_999))
	for _, i := range []int{0, 9_999, 5_000} {
		if f, ok := h.find(key(i)); ok {
			t.Errorf("record %d is still cached: %v", i, f)
		}
	}
}
