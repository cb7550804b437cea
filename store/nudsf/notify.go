package nudsf

import (
	"context"
	"fmt"
	"net/http"
	"time"

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

// staleAfter is how long other services' new subscriptions may go unseen here.
const staleAfter = time.Second

// What is remembered of subscribers, at most: storages, and bytes in all.
const (
	maxCached      = 4096
	maxCachedBytes = 64 << 20
)

// subscribers of a storage, as they were when last read.
type subscribers struct {
	list   []subscriber
	bytes  int // of the list, about
	read   time.Time
	valid  bool
	number uint64 // changes with every subscription made here, so that a read begun before is not kept
}

type subscriber struct {
	*subscription
	records map[string]bool // monitored; nil: all
}

// forget lets the next change of a record read the storage's subscribers anew.
func (a *API) forget(space string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.subscribers[space]; s != nil {
		s.valid = false
		s.number++
	}
}

// subscribersOf gives the subscribers of a storage.
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
		s = &subscribers{}
		a.subscribers[space] = s
	}
	if s.valid && (!shared || a.Clock().Sub(s.read).Abs() < staleAfter) {
		list := s.list
		a.mu.Unlock()
		return list, nil
	}
	number, now := s.number, a.Clock()
	a.mu.Unlock()
	list, size, err := a.readSubscribers(ctx, space)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.number == number && a.subscribers[space] == s {
		a.cached += size - s.bytes
		s.list, s.bytes, s.read, s.valid = list, size, now, true
		a.trimSubscribers(space)
	}
	return list, nil
}

// trimSubscribers forgets storages until the others are within the bound, that of space
// last. a.mu is held.
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

// dropSubscribers forgets a storage's subscribers. a.mu is held.
func (a *API) dropSubscribers(space string) {
	a.cached -= a.subscribers[space].bytes
	delete(a.subscribers, space)
}

// subscriberBytes is about what a subscriber takes beside its texts.
const subscriberBytes = 512

// readSubscribers gives the subscribers of a storage, and about how many bytes they take.
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
		size += subscriberBytes + 2*r.Held() // what is monitored is kept twice
	}
	return list, size, nil
}

// room refuses a further subscription when a storage has as many as it may.
func (a *API) room(ctx context.Context, space string) error {
	list, err := a.subscribersOf(ctx, space)
	if err == nil && len(list) >= a.maxSubscriptions {
		err = wire.NewProblem(http.StatusForbidden, wire.CauseNoResources, "the storage has %d subscriptions, which is the limit", len(list))
	}
	return err
}

// notify tells subscribers of a change that is written. It does not wait for them; a
// notification for which its receiver's queue has no room is dropped and counted.
func (a *API) notify(ctx context.Context, at place, operation string, r *wire.Record) {
	list, err := a.subscribersOf(context.WithoutCancel(ctx), at.space)
	if err != nil {
		a.dropped.Add(1)
		a.Log.Error("notify of a change", "record", at.id, "error", err)
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
	if err := a.Sender.Ready(s.CallbackReference, at.id); err != nil { // before the work of writing it
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
