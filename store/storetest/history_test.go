package storetest_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/storetest"
)

// A broken engine does not do what it answers.
type broken struct {
	store.Engine
	stale, lost, careless bool

	calls atomic.Int64
	mu    sync.Mutex
	old   map[string]store.Record // before the last put
	wrote chan struct{}           // closed by the next write
}

// Get of a stale engine now and then gives what was there before the last write.
func (b *broken) Get(ctx context.Context, key store.Key, r *store.Record) error {
	if b.stale && b.calls.Add(1)%10 == 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		if old, ok := b.old[key.Name]; ok {
			*r = old
			return nil
		}
	}
	return b.Engine.Get(ctx, key, r)
}

// Write of an engine that loses writes does not do each tenth; of a careless one,
// heeds no condition.
func (b *broken) Write(ctx context.Context, space string, ops ...store.Op) error {
	if b.stale {
		var r store.Record
		if err := b.Engine.Get(ctx, store.Key{Space: space, Name: ops[0].Name}, &r); err == nil {
			b.mu.Lock()
			b.old[ops[0].Name] = store.Record{Key: r.Key, Version: r.Version, Value: r.Value}
			b.mu.Unlock()
		}
	}
	if b.lost && b.calls.Add(1)%10 == 0 {
		return nil
	}
	if !b.careless {
		return b.Engine.Write(ctx, space, ops...)
	}
	b.mu.Lock()
	wrote := b.wrote
	b.mu.Unlock()
	if ops[0].If != (store.Condition{}) {
		ops[0].If = store.Condition{}
		select { // so that another was faster
		case <-wrote:
		case <-time.After(5 * time.Millisecond): // all others wait here, too
		}
	}
	err := b.Engine.Write(ctx, space, ops...)
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.wrote)
	b.wrote = make(chan struct{})
	return err
}

// TestBrokenEnginesAreFound: the search for an order finds one for a good engine, and
// none for what engines do wrong.
func TestBrokenEnginesAreFound(t *testing.T) {
	for name, b := range map[string]*broken{
		"good": {}, "stale reads": {stale: true}, "lost writes": {lost: true}, "conditions not heeded": {careless: true},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := embedded.Open(embedded.Config{
				Dir: t.TempDir(), Sync: embedded.SyncNever, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
				Fatal: func(err error) { t.Error(err) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			b.Engine, b.old, b.wrote = e, map[string]store.Record{}, make(chan struct{})
			h, err := storetest.Drive{Engine: b, Workers: 8, Each: 150}.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if h.Explained() != (name == "good") {
				t.Errorf("%s: explained: %v", h, h.Explained())
			}
		})
	}
}
