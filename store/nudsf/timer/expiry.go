package timer

import (
	"context"
	"encoding/json"
	"fmt"

	"vitrine/store"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// timerExpiry is the kind of the callback in its 3gpp-Sbi-Callback header.
const timerExpiry = "Nudsf_Timer_timerExpiry"

// expire handles an expired timer. One write marks or deletes the timer and stores its
// notification.
func (a *API) expire(ctx context.Context, space string, r *store.Record) error {
	t, err := load(r)
	if err != nil {
		return err
	}
	now := a.Clock()
	if at := t.due(); at.IsZero() || now.Before(at) {
		return nil
	}
	at := place{space, t.id}
	if t.ended(now) {
		return a.replace(ctx, at, t, nil, true)
	}
	next := *t
	next.fired = true
	return a.replace(ctx, at, t, &next, true)
}

// letter returns the notification of a timer's expiry: the Timer with its ID and without the
// callback URI.
func (a *API) letter(space string, t *timer) (*due.Letter, error) {
	notification := t.Timer
	notification.TimerID, notification.CallbackReference = t.id, ""
	body, err := json.Marshal(notification)
	if err != nil {
		return nil, fmt.Errorf("write the expiry of timer %s: %w", t.id, err)
	}
	path := rest.Path(space, "timers", t.id)
	return a.Agenda.Letter(due.Delivery{Target: t.CallbackReference, Kind: timerExpiry, ContentType: wire.TypeJSON, Key: path, Body: body})
}
