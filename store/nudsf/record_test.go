package nudsf

import (
	"context"
	"iter"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// A recordingEngine holds one record and keeps the ops that are written to it.
type recordingEngine struct {
	store.Engine
	record  store.Record
	written []store.Op
}

func (o *recordingEngine) Promises() store.Promises { return store.Promises{} }

func (o *recordingEngine) Get(_ context.Context, _ store.Key, r *store.Record) error {
	*r = o.record
	return nil
}

func (o *recordingEngine) Write(_ context.Context, _ string, ops ...store.Op) error {
	o.written = ops
	return nil
}

func (o *recordingEngine) Scan(context.Context, store.Query) iter.Seq2[*store.Record, error] {
	return func(func(*store.Record, error) bool) {}
}

// TestBlindAtExpiry checks that a blind write is conditional on the record if the record expires
// during the write. Otherwise two such writes would both notify of the expiry.
func TestBlindAtExpiry(t *testing.T) {
	ttl := time.UnixMilli(1_000_000)
	kept, err := newEntry(wire.Record{Meta: wire.Meta{TTL: &ttl, CallbackReference: "http://a"}}).op("r", ttl)
	if err != nil {
		t.Fatal(err)
	}
	e := &recordingEngine{record: store.Record{Version: 7, Meta: kept.Meta, Tags: kept.Tags}}
	now := ttl.Add(-time.Millisecond)
	clock := func() time.Time {
		defer func() { now = ttl }()
		return now
	}
	sender := callback.New(callback.Config{})
	a := newAPI(rest.Config{Engine: e, Clock: clock, Sender: sender, Agenda: due.New(due.Config{Engine: e, Clock: clock, Sender: sender})}, 0)
	after := newEntry(wire.Record{})
	if _, _, err := a.change(t.Context(), place{"s", "r"}, func(*entry) (*entry, error) { return after, nil }, true); err != nil {
		t.Fatal(err)
	}
	if len(e.written) != 2 || e.written[0].If.Version != 7 {
		t.Errorf("wrote %d ops, the first with condition %+v", len(e.written), e.written[0].If)
	}
}
