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

// A broken engine violates its contract on purpose.
type broken struct {
	store.Engine
	stale, lost, careless bool

	calls atomic.Int64
	mu    sync.Mutex
	old   map[string]store.Record // records before the last put
	wrote chan struct{}           // closed by the next write
}

// Get is wrong at every tenth call if the engine is stale: it returns the record before the last
// write.
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

// Write skips every tenth write if the engine loses writes, and ignores conditions if it is
// careless.
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
		select { // wait, so that another write comes first
		case <-wrote:
		case <-time.After(5 * time.Millisecond): // all other writers may be waiting here, too
		}
	}
	err := b.Engine.Write(ctx, space, ops...)
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.wrote)
	b.wrote = make(chan struct{})
	return err
}

// TestBrokenEnginesAreFound checks that the history of a good engine is linearizable and that the
// histories of broken engines are not.
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
