package nudsf

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"vitrine/store"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// expireRecord deletes an expired record and keeps its notification in the same write.
func (a *API) expireRecord(ctx context.Context, space string, r *store.Record) error {
	e, err := load(r)
	if err != nil {
		return err
	}
	if !e.expired(a.Clock()) {
		return nil
	}
	at := place{space, strings.TrimPrefix(r.Key.Name, kindRecord)}
	_, err = a.replace(ctx, at, e, nil, false)
	return err
}

// expiryLetter returns the notification of a record's expiry, or nil if there is none to send.
func (a *API) expiryLetter(at place, e *entry, expired bool) (*due.Letter, error) {
	if !expired || e.Meta.CallbackReference == "" {
		return nil, nil
	}
	letter, err := a.recordLetter(at, e)
	if err != nil || letter.Size() <= store.MaxValue {
		return letter, err
	}
	// checkLetter refuses such records, but earlier versions stored them. With the letter they would never expire.
	a.Log.Error("a record has expired, but the notification of its expiry is too large and is not sent", "storage", at.space, "record", at.id, "target", e.Meta.CallbackReference, "bytes", letter.Size())
	return nil, nil
}

func (a *API) recordLetter(at place, e *entry) (*due.Letter, error) {
	contentType, body, err := e.Encode()
	if err != nil {
		return nil, err
	}
	return a.Agenda.Letter(due.Delivery{
		Target: e.Meta.CallbackReference, Kind: recordExpired, ContentType: contentType,
		ContentLocation: a.uri(at.space, "records", at.id), Key: rest.Path(at.space, "records", at.id), Body: body,
	})
}

// checkLetter returns an error if the notification of the expiry of after would be too large for the
// outbox. stored is the op that stores after.
func (a *API) checkLetter(at place, after *entry, stored *store.Op) error {
	// The framing of the parts, the escapes in tags, and the URIs take less than the other half.
	if after.Meta.CallbackReference == "" || len(stored.Value)+len(stored.Meta) <= store.MaxValue/2 {
		return nil
	}
	// JSON makes bytes of a Content-Type that are not UTF-8 longer, so the stored form counts.
	e, err := load(&store.Record{Key: at.key(), Value: stored.Value, Meta: stored.Meta, Tags: stored.Tags})
	if err != nil {
		return err
	}
	letter, err := a.recordLetter(at, e)
	if err != nil {
		return err
	}
	const spare = 1 << 10 // times and the number of tries may take more room later
	if size := letter.Size() + spare; size > store.MaxValue {
		return wire.NewProblem(http.StatusRequestEntityTooLarge, "",
			"the notification of the record's expiry would have %d bytes, and at most %d are allowed: send less in blocks, their headers and tags", size, store.MaxValue)
	}
	return nil
}

// expireSubscription notifies a subscription's owner of its end, if asked to, and deletes the
// subscription once it has ended.
func (a *API) expireSubscription(ctx context.Context, space string, r *store.Record) error {
	s, err := loadSubscription(r)
	if err != nil {
		return err
	}
	now := a.Clock()
	if s.Expiry == nil || now.Before(s.due()) {
		return nil
	}
	var letter *due.Letter
	if s.ExpiryCallbackReference != "" && !s.notified {
		if letter, err = a.endLetter(space, s); err != nil {
			return err
		}
	}
	op := store.Op{Action: store.Delete, Name: r.Key.Name}
	if !s.expired(now) {
		s.notified = true
		if op, err = s.op(); err != nil {
			return err
		}
	}
	op.If = store.Condition{Version: r.Version}
	ops := []store.Op{op}
	if letter != nil {
		ops = append(ops, letter.Op())
	}
	if err := a.Engine.Write(ctx, space, ops...); err != nil {
		return fmt.Errorf("expire subscription %s: %w", s.id, err)
	}
	a.forget(space)
	if letter != nil {
		a.Agenda.Post(ctx, space, letter, &ops[1])
	}
	if !s.expired(now) {
		a.Agenda.Planned(space, s.due())
	}
	return nil
}

func (a *API) endLetter(space string, s *subscription) (*due.Letter, error) {
	body, err := json.Marshal(wire.NotificationInfo{ExpiredSubscriptions: []wire.Subscription{s.Subscription}})
	if err != nil {
		return nil, fmt.Errorf("write the end of subscription %s: %w", s.id, err)
	}
	return a.Agenda.Letter(due.Delivery{
		Target: s.ExpiryCallbackReference, Kind: subscriptionExpiry, ContentType: wire.TypeJSON,
		Key: rest.Path(space, "subs-to-notify", s.id), Body: body,
	})
}
