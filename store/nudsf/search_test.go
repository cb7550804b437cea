package nudsf

import (
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// TestBatchOwns checks that a batch keeps its own copy of a record, because the scan reuses its
// memory.
func TestBatchOwns(t *testing.T) {
	a := &API{Config: rest.Config{Clock: time.Now}}
	r := &store.Record{
		Key: store.Key{Space: "s", Name: kindRecord + "one"}, Version: 1,
		Meta: []byte(`{"blocks":[{"id":"b","size":3}]}`), Value: []byte("old"),
	}
	b, all := newBatch(a, "s"), wire.All()
	if _, err := b.add(t.Context(), r, &all); err != nil {
		t.Fatal(err)
	}
	copy(r.Value, "new")
	if got := string(b.entries[0].Blocks[0].Content); got != "old" {
		t.Errorf("the record to delete holds %q", got)
	}
}
