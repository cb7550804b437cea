package nudsf

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// subscribed is an engine that returns the same subscriptions for every space.
type subscribed struct {
	store.Engine
	records []*store.Record
}

func (s *subscribed) Promises() store.Promises { return store.Promises{} }

func (s *subscribed) Scan(context.Context, store.Query) iter.Seq2[*store.Record, error] {
	return func(yield func(*store.Record, error) bool) {
		for _, r := range s.records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// reader returns an API that can only read the engine's subscriptions.
func reader(e store.Engine) *API {
	return &API{Config: rest.Config{Engine: e, Clock: time.Now}, subscribers: map[string]*subscribers{}, reads: make(chan struct{}, maxReads)}
}

// stored returns the record of a subscription.
func stored(t *testing.T, s *subscription) *store.Record {
	t.Helper()
	op, err := s.op()
	if err != nil {
		t.Fatal(err)
	}
	return &store.Record{Key: store.Key{Name: op.Name}, Version: 1, Value: op.Value, Meta: op.Meta, Tags: op.Tags}
}

// TestSubscriberBytes checks that the cache of subscribers is bounded for large subscriptions and
// many storages, and that every storage's subscribers are still found.
func TestSubscriberBytes(t *testing.T) {
	filter := &wire.SubFilter{}
	for i := range 64 {
		filter.MonitoredResourceURIs = append(filter.MonitoredResourceURIs, fmt.Sprint("/", i, strings.Repeat("x", 16<<10)))
	}
	r := stored(t, &subscription{Subscription: wire.Subscription{ClientID: &wire.ClientID{NfID: "n"}, CallbackReference: "http://h", SubFilter: filter}, id: "s"})
	for _, each := range []int{1, 100} { // one storage within the bound, and one beyond it
		e := &subscribed{}
		for range each {
			e.records = append(e.records, r)
		}
		a := reader(e)
		for i := range 100 / each {
			list, err := a.subscribersOf(t.Context(), fmt.Sprint("space", i))
			if err != nil || len(list) != each {
				t.Fatalf("got %d subscriptions, error %v", len(list), err)
			}
		}
		sum := 0
		for _, s := range a.subscribers {
			sum += s.bytes
		}
		if sum != a.cached || sum > maxCachedBytes {
			t.Errorf("the cache holds %d bytes but counts %d; the limit is %d", sum, a.cached, maxCachedBytes)
		}
	}
}

// A held engine has scans that wait until the test releases them.
type held struct {
	subscribed
	scans   atomic.Int64
	release chan struct{}
}

func (h *held) Promises() store.Promises { return store.Promises{Shared: true} }

func (h *held) Scan(ctx context.Context, q store.Query) iter.Seq2[*store.Record, error] {
	h.scans.Add(1)
	<-h.release
	return h.subscribed.Scan(ctx, q)
}

// TestSubscribersAreReadOnce checks that changes at the same time share one read of the subscriptions.
// A change that comes after a new subscription must not share an older read. A change that joins a
// slow read must read again, because the slow read may miss subscriptions made at other services.
func TestSubscribersAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &held{release: make(chan struct{})}
		a := reader(e)
		var all sync.WaitGroup
		begin := func(changes int) {
			for range changes {
				all.Go(func() {
					if _, err := a.subscribersOf(t.Context(), "space"); err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		begin(8)
		if n := e.scans.Load(); n != 1 {
			t.Errorf("8 changes at the same time read the subscriptions %d times, want once", n)
		}
		a.forget("space") // as after a new subscription
		begin(8)
		if n := e.scans.Load(); n != 2 {
			t.Errorf("after a new subscription there were %d reads, want 2", n)
		}
		time.Sleep(staleAfter)
		begin(8)
		if n := e.scans.Load(); n != 2 {
			t.Errorf("changes during a slow read began %d reads, want none", n-2)
		}
		close(e.release)
		all.Wait()
		if n := e.scans.Load(); n < 3 {
			t.Errorf("changes that joined a read %s after its begin did not read again", staleAfter)
		}
	})
}

// TestFewReadsAtOnce alternates updates of a subscription with changes of records while reads are slow.
// Each change then needs a read of its own. Only maxStorageReads of each storage and maxReads of all may
// run, because each list may be large, and the others must fail soon. So one slow storage leaves places
// to the others.
func TestFewReadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &held{release: make(chan struct{})}
		a := reader(e)
		const changes = 20
		var refused atomic.Int64
		var all sync.WaitGroup
		begin := func(space string, scans int64) {
			t.Helper()
			before := refused.Load()
			for range changes {
				a.forget(space) // as after an update of a subscription
				all.Go(func() {
					_, err := a.subscribersOf(t.Context(), space)
					if _, ok := errors.AsType[*store.Busy](err); ok {
						refused.Add(1)
					} else if err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
			}
			already := e.scans.Load()
			time.Sleep(2 * readWait)
			if got, n := e.scans.Load(), refused.Load()-before; got != scans || already != scans || n < changes-scans {
				t.Errorf("after %d changes in %s there are %d reads, and %d were refused, want %d reads", changes, space, got, n, scans)
			}
		}
		begin("slow", maxStorageReads)
		begin("second", 2*maxStorageReads)
		begin("third", maxReads)
		close(e.release)
		all.Wait()
		if _, err := a.subscribersOf(t.Context(), "slow"); err != nil {
			t.Errorf("after the slow reads: %v", err)
		}
	})
}

// TestDropsEncodeNothing changes a large record while its receiver has room for small messages only. The
// notification must be dropped before it is encoded, so the sender never gets it.
func TestDropsEncodeNothing(t *testing.T) {
	const target = "http://h"
	r := stored(t, &subscription{Subscription: wire.Subscription{ClientID: &wire.ClientID{NfID: "n"}, CallbackReference: target}, id: "s"})
	a := reader(&subscribed{records: []*store.Record{r}})
	a.Sender, a.Log = callback.New(callback.Config{}), slog.New(slog.DiscardHandler)
	large := make([]byte, 768<<10)
	for full := false; !full; {
		err := a.Sender.Send(callback.Message{Target: target, Body: large})
		if full = errors.Is(err, callback.ErrFull); err != nil && !full {
			t.Fatal(err)
		}
	}
	before := a.Sender.Counters()
	a.notify(t.Context(), place{"space", "r"}, wire.Updated, &wire.Record{Blocks: []wire.Block{{ID: "b", Content: large}}})
	if after := a.Sender.Counters(); after != before || a.dropped.Load() != 1 {
		t.Errorf("dropped %d notifications, want 1; the sender counts %+v, before %+v", a.dropped.Load(), after, before)
	}
	a.notify(t.Context(), place{"space", "r"}, wire.Updated, &wire.Record{})
	if a.notified.Load() != 1 {
		t.Errorf("the receiver has room for a small notification, but %d were queued", a.notified.Load())
	}
}
