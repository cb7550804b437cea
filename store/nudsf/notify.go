package nudsf

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// Kinds of callbacks, for their 3gpp-Sbi-Callback header (TS 29.500 annex B).
const (
	onDataChange       = "Nudsf_DataRepository_onDataChange"
	recordExpired      = "Nudsf_DataRepository_recordExpired"
	subscriptionExpiry = "Nudsf_DataRepository_subscriptionExpiryNotification"
)

// staleAfter bounds how long this service may miss subscriptions made at other services.
const staleAfter = time.Second

// Bounds of the cache of subscribers: storages, and bytes in all.
const (
	maxCached      = 4096
	maxCachedBytes = 64 << 20
)

// Bounds of the reads of subscribers that run at the same time. Each list may take 64 MiB, also one that
// is too large for the cache.
const (
	maxReads        = 4           // of all storages
	maxStorageReads = 2           // of one storage, so that a slow one leaves places to the others
	readWait        = time.Second // a read fails if it gets no place within this time
)

// subscribers are a storage's subscriptions when last read.
type subscribers struct {
	list   []subscriber
	bytes  int // approximate, of the list
	read   time.Time
	valid  bool
	number uint64 // increases with each change of the subscriptions here; the result of an older read is not cached

	reads  singleflight.Group // by number
	places chan struct{}      // holds an element for each read that runs
}

type subscriber struct {
	*subscription
	records map[string]bool // monitored records; nil: all
}

// forget makes the next change of a record read the storage's subscribers again.
func (a *API) forget(space string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.subscribers[space]; s != nil {
		s.valid = false
		s.number++
	}
}

// subscribersOf returns the subscribers of a storage, from the cache if it is fresh. It does not stop
// when ctx ends.
func (a *API) subscribersOf(ctx context.Context, space string) ([]subscriber, error) {
	shared := a.Engine.Promises().Shared
	a.mu.Lock()
	s := a.subscribers[space]
	if s == nil {
		for other := range a.subscribers {
			if len(a.subscribers) < maxCached {
				break
			}
			a.dropSubscribers(other)
		}
		s = &subscribers{places: make(chan struct{}, maxStorageReads)}
		a.subscribers[space] = s
	}
	if s.valid && (!shared || a.Clock().Sub(s.read).Abs() < staleAfter) {
		list := s.list
		a.mu.Unlock()
		return list, nil
	}
	number, now := s.number, a.Clock()
	a.mu.Unlock()
	got, err := a.refresh(ctx, space, s, number)
	// A slow read that another request began may miss subscriptions that other services made since then.
	if err == nil && shared && now.Sub(got.began) >= staleAfter {
		got, err = a.refresh(ctx, space, s, number)
	}
	return got.list, err
}

// A reading is the result of one read of a storage's subscribers.
type reading struct {
	list  []subscriber
	began time.Time
}

// refresh reads the subscribers of a storage. It caches them in s if no subscription has changed here
// since number. Requests at the same time share one read, because each list may take 64 MiB. A read
// that began before the last change of a subscription here has another number, and takes a place of its
// own.
func (a *API) refresh(ctx context.Context, space string, s *subscribers, number uint64) (reading, error) {
	got, err, _ := s.reads.Do(strconv.FormatUint(number, 10), func() (any, error) {
		end, err := a.beginRead(s)
		if err != nil {
			return nil, err
		}
		defer end()
		began := a.Clock()
		list, size, err := a.readSubscribers(context.WithoutCancel(ctx), space) // other requests may wait for it
		if err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if s.number == number && a.subscribers[space] == s {
			a.cached += size - s.bytes
			s.list, s.bytes, s.read, s.valid = list, size, began, true
			a.trimSubscribers(space)
		}
		return reading{list, began}, nil
	})
	if err != nil {
		return reading{}, err
	}
	return got.(reading), nil
}

// beginRead waits for a place among the reads of a storage's subscribers, and then for one among those of
// all storages. end gives both back. The error is a *store.Busy.
func (a *API) beginRead(s *subscribers) (end func(), err error) {
	limit := time.NewTimer(readWait)
	defer limit.Stop()
	busy := &store.Busy{What: "concurrent reads of subscriptions", RetryAfter: readWait}
	select {
	case s.places <- struct{}{}:
	case <-limit.C:
		return nil, busy
	}
	select {
	case a.reads <- struct{}{}:
		return func() { <-a.reads; <-s.places }, nil
	case <-limit.C:
		<-s.places
		return nil, busy
	}
}

// trimSubscribers drops storages from the cache until it is within its bound, space last. The
// caller holds a.mu.
func (a *API) trimSubscribers(space string) {
	for other := range a.subscribers {
		if a.cached <= maxCachedBytes {
			return
		}
		if other != space {
			a.dropSubscribers(other)
		}
	}
	if a.cached > maxCachedBytes {
		a.dropSubscribers(space)
	}
}

// dropSubscribers drops a storage from the cache. The caller holds a.mu.
func (a *API) dropSubscribers(space string) {
	a.cached -= a.subscribers[space].bytes
	delete(a.subscribers, space)
}

// subscriberBytes is the approximate memory of a subscriber without its texts.
const subscriberBytes = 512

// readSubscribers reads the subscribers of a storage and returns about how many bytes they take.
func (a *API) readSubscribers(ctx context.Context, space string) (list []subscriber, size int, err error) {
	for r, err := range a.Engine.Scan(ctx, store.Query{Space: space, Prefix: kindSubscription}) {
		if err != nil {
			return nil, 0, fmt.Errorf("read subscriptions: %w", err)
		}
		s, err := loadSubscription(r)
		if err != nil {
			return nil, 0, err
		}
		one := subscriber{subscription: s}
		if s.SubFilter != nil && len(s.SubFilter.MonitoredResourceURIs) > 0 {
			one.records = map[string]bool{}
			for _, uri := range s.SubFilter.MonitoredResourceURIs {
				if id, ok := recordOf(space, uri); ok {
					one.records[id] = true
				}
			}
		}
		list = append(list, one)
		size += subscriberBytes + 2*r.Held() // monitored URIs are kept twice
	}
	return list, size, nil
}

// room returns an error if a storage has reached its limit of subscriptions.
func (a *API) room(ctx context.Context, space string) error {
	list, err := a.subscribersOf(ctx, space)
	if err == nil && len(list) >= a.maxSubscriptions {
		err = wire.NewProblem(http.StatusForbidden, wire.CauseNoResources, "the storage has %d subscriptions, which is the limit", len(list))
	}
	return err
}

// notify informs subscribers of a change that is already written. It does not wait for them. It
// drops and counts a notification if the receiver's queue is full.
func (a *API) notify(ctx context.Context, at place, operation string, r *wire.Record) {
	list, err := a.subscribersOf(ctx, at.space)
	if err != nil {
		a.dropped.Add(1)
		a.Log.Error("cannot notify subscribers of a change", "record", at.id, "error", err)
		return
	}
	now := a.Clock()
	for _, s := range list {
		if s.expired(now) || !s.Wants(operation) || s.records != nil && !s.records[at.id] {
			continue
		}
		if err := a.notifyOne(at, operation, r, s.subscription); err != nil {
			a.dropped.Add(1)
			a.Log.Warn("notification dropped", "subscription", s.id, "record", at.id, "error", err)
			continue
		}
		a.notified.Add(1)
	}
}

func (a *API) notifyOne(at place, operation string, r *wire.Record, s *subscription) error {
	if err := a.Sender.Ready(s.CallbackReference, false, contentBytes(r.Blocks)); err != nil { // before the work of encoding
		return err
	}
	n := wire.Notification{
		Descriptor: wire.Descriptor{
			RecordRef: a.uri(at.space, "records", at.id), OperationType: operation, SubscriptionID: s.id,
		},
		Record: *r,
	}
	contentType, body, err := n.Encode()
	if err != nil {
		return err
	}
	return a.Sender.Send(callback.Message{
		Target: s.CallbackReference, Kind: onDataChange, ContentType: contentType, Body: body,
		Key: rest.Path(at.space, "records", at.id),
	})
}
