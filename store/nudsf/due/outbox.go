package due

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/callback"
)

// A Delivery is a notification that is kept until it is sent.
type Delivery struct {
	Target          string    `json:"target"`
	Kind            string    `json:"kind"` // 3gpp-Sbi-Callback
	ContentType     string    `json:"contentType"`
	ContentLocation string    `json:"contentLocation,omitempty"`
	Key             string    `json:"key,omitempty"` // see callback.Message
	Since           time.Time `json:"since"`
	Written         time.Time `json:"written"` // when it was last written into the outbox
	Tries           int       `json:"tries"`

	Body []byte `json:"-"`
}

// A Letter is a delivery in the outbox.
type Letter struct {
	delivery Delivery
	op       store.Op
	until    time.Time // end of the lease, or time of the next try
	send     bool
}

// Letter encodes a delivery for the outbox. Put the letter's Op into the write that causes the
// notification, and call Post after that write.
func (a *Agenda) Letter(d Delivery) (*Letter, error) {
	d.Since = a.Clock()
	l := &Letter{delivery: d}
	l.op = store.Op{Action: store.Put, Name: kindOutbox + rand.Text(), If: store.Condition{Absent: true}}
	return l, a.address(l)
}

// Op returns the op that puts the letter into the outbox.
func (l *Letter) Op() store.Op { return l.op }

// Size returns the bytes of the letter that count against store.MaxValue.
func (l *Letter) Size() int { return len(l.op.Value) + len(l.op.Meta) }

// address decides when to send the letter. This service sends it now, unless the receiver has
// no room or is down. Then any service may send it after a delay.
func (a *Agenda) address(l *Letter) error {
	now := a.Clock()
	l.delivery.Written = now
	err := a.Sender.Ready(l.delivery.Target, true, 0)
	l.send = err == nil
	if l.send {
		l.until = now.Add(a.Lease)
	} else {
		l.until = now.Add(a.delay(l.delivery.Tries, err))
	}
	meta, err := json.Marshal(l.delivery)
	if err != nil {
		return fmt.Errorf("write notification: %w", err)
	}
	l.op.Meta, l.op.Value, l.op.Tags = meta, l.delivery.Body, []store.Tag{At(l.until)}
	return nil
}

// delay returns the wait before the next try.
func (a *Agenda) delay(tries int, why error) time.Duration {
	wait := callback.Backoff(max(0, tries-1), a.Backoff, a.Longest)
	if down, ok := errors.AsType[*callback.Down](why); ok {
		wait = max(wait, time.Until(down.Until)) // by the sender's monotonic clock, which cannot be set
	}
	return wait
}

// Post sends a letter after op put it into the outbox.
func (a *Agenda) Post(ctx context.Context, space string, l *Letter, op *store.Op) {
	l.op.Version = op.Version
	a.Planned(space, l.until)
	if !l.send {
		return
	}
	d := &l.delivery
	err := a.Sender.Send(callback.Message{
		Target: d.Target, Kind: d.Kind, ContentType: d.ContentType, ContentLocation: d.ContentLocation,
		Body: d.Body, Key: d.Key, Once: true, Deadline: time.Now().Add(l.until.Sub(a.Clock()) - a.Lease/4),
		Done: func(err error) { a.settle(context.WithoutCancel(ctx), space, l, err) },
	})
	if err != nil {
		a.settle(ctx, space, l, err)
	}
}

// settle records the outcome of a try.
func (a *Agenda) settle(ctx context.Context, space string, l *Letter, outcome error) {
	var refused *callback.Refused
	var denied *callback.Denied
	remove := true
	switch {
	case outcome == nil:
		a.delivered.Add(1)
	case errors.Is(outcome, callback.ErrClosed), errors.Is(outcome, callback.ErrLate):
		return // it falls due when the lease ends, or at the next start
	case errors.As(outcome, &refused), errors.As(outcome, &denied):
		a.refused.Add(1)
	case a.Sender.Check(l.delivery.Target) != nil: // the allow-list has changed
		a.refused.Add(1)
		a.Log.Warn("notification dropped: its target is not allowed", "target", l.delivery.Target)
	case a.Clock().Sub(l.delivery.Since) >= giveUp:
		a.givenUp.Add(1)
		a.Log.Warn("notification given up", "target", l.delivery.Target, "kind", l.delivery.Kind, "tries", l.delivery.Tries+1, "error", outcome)
	default:
		remove = false
		a.postponed.Add(1)
	}
	op := store.Op{Action: store.Delete, Name: l.op.Name, If: store.Condition{Version: l.op.Version}}
	if !remove {
		l.delivery.Tries++
		next := Letter{delivery: l.delivery, op: l.op}
		if err := a.address(&next); err != nil {
			a.Log.Error("cannot postpone a notification", "error", err)
			return
		}
		next.until = a.Clock().Add(a.delay(l.delivery.Tries, outcome))
		next.op.Tags = []store.Tag{At(next.until)}
		next.op.If = op.If
		op = next.op
		defer a.Planned(space, next.until)
	}
	err := a.Engine.Write(ctx, space, op)
	var conflict *store.Conflict
	if err != nil && !errors.As(err, &conflict) && !errors.Is(err, store.ErrClosed) {
		// The letter stays. It falls due again when the lease ends.
		a.Log.Error("cannot record the outcome of a notification", "target", l.delivery.Target, "error", err)
	}
}

// claim takes a letter that is due, and sends it. It also takes a letter with a due time
// beyond any lease or backoff, because then the clock was set back. With now, it also takes
// letters that the previous process began to send, and letters written before the clock was
// set back.
func (a *Agenda) claim(ctx context.Context, space string, r *store.Record, now bool) error {
	reached := Reached(r, a.Clock()) || !Reached(r, a.Clock().Add(2*max(a.Lease, a.Longest)))
	if !now && !reached {
		return nil
	}
	l := &Letter{op: store.Op{Action: store.Put, Name: r.Key.Name, If: store.Condition{Version: r.Version}}}
	if err := json.Unmarshal(r.Meta, &l.delivery); err != nil {
		return fmt.Errorf("read notification: %w", err)
	}
	clock := a.Clock()
	a.mu.Lock()
	began := a.began
	a.mu.Unlock()
	if !reached && !l.delivery.Written.Before(began) && !l.delivery.Written.After(clock) {
		return nil // this process took it and is sending it
	}
	if l.delivery.Since.After(clock) {
		l.delivery.Since = clock // the clock was set back, so the age counts from here
	}
	l.delivery.Body = append([]byte(nil), r.Value...)
	if err := a.address(l); err != nil {
		return err
	}
	if a.Clock().Sub(l.delivery.Since) >= giveUp && !l.send {
		l.op.Version = r.Version
		a.settle(ctx, space, l, errors.New("the receiver is not answering"))
		return nil
	}
	if !l.send { // count the try, so that a receiver that stays down costs fewer and fewer writes
		a.postponed.Add(1)
		l.delivery.Tries++
		if err := a.address(l); err != nil {
			return err
		}
	}
	op := l.op
	if err := a.write(ctx, space, &op); err != nil {
		return err
	}
	a.Post(ctx, space, l, &op)
	return nil
}

func (a *Agenda) write(ctx context.Context, space string, op *store.Op) error {
	ops := []store.Op{*op}
	if err := a.Engine.Write(ctx, space, ops...); err != nil {
		return err
	}
	*op = ops[0]
	return nil
}
