package nudsf

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"vitrine/store"
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

// TestSubscriberBytes checks that the cache of subscribers is bounded for large subscriptions and
// many storages, and that every storage's subscribers are still found.
func TestSubscriberBytes(t *testing.T) {
	filter := &wire.SubFilter{}
	for i := range 64 {
		filter.MonitoredResourceURIs = append(filter.MonitoredResourceURIs, fmt.Sprint("/", i, strings.Repeat("x", 16<<10)))
	}
	s := &subscription{Subscription: wire.Subscription{ClientID: &wire.ClientID{NfID: "n"}, CallbackReference: "http://h", SubFilter: filter}, id: "s"}
	op, err := s.op()
	if err != nil {
		t.Fatal(err)
	}
	r := &store.Record{Key: store.Key{Name: kindSubscription + "s"}, Version: 1, Value: op.Value, Meta: op.Meta, Tags: op.Tags}
	for _, each := range []int{1, 100} { // one storage within the bound, and one beyond it
		e := &subscribed{}
		for range each {
			e.records = append(e.records, r)
		}
		a := &API{Config: rest.Config{Engine: e, Clock: time.Now}, subscribers: map[string]*subscribers{}}
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
		a := &API{Config: rest.Config{Engine: e, Clock: time.Now}, subscribers: map[string]*subscribers{}}
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
