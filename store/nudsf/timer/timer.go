package timer

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// A timer is a timer as the engine keeps it. Its tags are engine tags, the rest is JSON.
type timer struct {
	wire.Timer
	id      string
	fired   bool // the expiry was handled; the timer stays for DeleteAfter
	version uint64
}

// timerMeta is kept as JSON in the engine's meta.
type timerMeta struct {
	Fired bool `json:"fired,omitempty"`
}

// maxTimer bounds the body of a timer or a patch, in bytes.
const maxTimer = 128 << 10

func load(r *store.Record) (*timer, error) {
	t := &timer{id: strings.TrimPrefix(r.Key.Name, kindTimer), version: r.Version}
	var meta timerMeta
	if err := rest.Load("timer "+t.id, r, &t.Timer, &meta); err != nil {
		return nil, err
	}
	t.MetaTags, t.fired = rest.Tags(r), meta.Fired
	return t, nil
}

// op returns the Op that stores the timer.
func (t *timer) op() (store.Op, error) {
	kept := t.Timer
	kept.TimerID, kept.MetaTags = "", nil
	op, err := rest.Put("timer "+t.id, kindTimer+t.id, kept, timerMeta{Fired: t.fired})
	op.Tags = rest.Index(t.MetaTags)
	if at := t.due(); !at.IsZero() {
		op.Tags = append(op.Tags, due.At(at))
	}
	return op, err
}

// due returns when the timer needs an action next: its expiry, or its deletion; zero: never.
func (t *timer) due() time.Time {
	if !t.fired {
		return t.Expires
	}
	return t.ends()
}

// ends returns when an expired timer is deleted: DeleteAfter after the expiry. Without
// DeleteAfter, a timer with a callback is deleted at the expiry. A timer without a callback
// is never deleted, because only a search can show that it expired.
func (t *timer) ends() time.Time {
	switch {
	case t.DeleteAfter != nil:
		return t.Expires.Add(time.Duration(*t.DeleteAfter) * time.Second)
	case t.CallbackReference != "":
		return t.Expires
	}
	return time.Time{}
}

// ended reports whether the timer is past its end. Consumers do not see such a timer.
func (t *timer) ended(now time.Time) bool {
	end := t.ends()
	return !end.IsZero() && !now.Before(end)
}

type place struct{ space, id string }

func (p place) key() store.Key { return store.Key{Space: p.space, Name: kindTimer + p.id} }

func (a *API) place(r *http.Request) (place, error) {
	space, id, err := a.Resource(service, "timerId", r)
	return place{space, id}, err
}

// read returns the stored timer, past its end or not; nil if there is none.
func (a *API) read(ctx context.Context, at place) (*timer, error) {
	return rest.Read(ctx, a.Engine, at.key(), "timer", at.id, load)
}

func notFound(id string) error {
	return wire.NewProblem(http.StatusNotFound, wire.CauseTimerNotFound, "there is no timer %q", id)
}

func (a *API) getTimer(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	t, err := a.read(r.Context(), at)
	if err != nil {
		return err
	}
	if t == nil || t.ended(a.Clock()) {
		return notFound(at.id)
	}
	return rest.JSON(w, http.StatusOK, t.Timer)
}

func (a *API) putTimer(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	body, err := rest.Body(w, r, wire.TypeJSON, maxTimer)
	if err != nil {
		return err
	}
	wanted, err := wire.ParseTimer(body, a.Limits)
	if err == nil {
		err = a.check(at.id, &wanted)
	}
	if err != nil {
		return err
	}
	before, err := a.change(r.Context(), at, func(*timer) (*timer, error) {
		return &timer{Timer: wanted, id: at.id}, nil
	})
	if err != nil {
		return err
	}
	if before != nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	w.Header().Set("Location", a.APIRoot+rest.Path(at.space, "timers", at.id))
	w.WriteHeader(http.StatusCreated)
	return nil
}

// check returns an error if a timer's callback target is not allowed or its expiry is past.
func (a *API) check(id string, t *wire.Timer) error {
	if t.TimerID != "" && t.TimerID != id {
		return wire.BadParam(wire.CauseOptionalIncorrect, "/timerId", "is %q, the path says %q", t.TimerID, id)
	}
	if t.CallbackReference != "" {
		if err := a.Sender.Check(t.CallbackReference); err != nil {
			return wire.BadParam(wire.CauseOptionalIncorrect, "/callbackReference", "%v", err)
		}
	}
	if now := a.Clock(); !t.Expires.After(now) {
		return wire.NewProblem(http.StatusForbidden, wire.CauseExpiresNotAllowed, "expires is %s, which is past: it is %s here",
			t.Expires.UTC().Format(time.RFC3339Nano), now.UTC().Format(time.RFC3339Nano))
	}
	return nil
}

// change reads a timer, calls decide for its new state (nil: deleted), and writes that state if
// nobody else has changed the timer meanwhile; otherwise it tries again. before is nil if consumers
// see no timer.
func (a *API) change(ctx context.Context, at place, decide func(before *timer) (*timer, error)) (before *timer, err error) {
	err = rest.Retry(func() error {
		kept, err := a.read(ctx, at)
		if err != nil {
			return err
		}
		before = kept
		if kept != nil && kept.ended(a.Clock()) {
			before = nil
		}
		after, err := decide(before)
		if err != nil {
			return err
		}
		return a.replace(ctx, at, kept, after, before == nil)
	})
	return before, err
}

// replace writes a timer's new state. With settled, the same write also stores the
// notification of the old timer's expiry, if there is a callback and the expiry was not
// handled yet.
func (a *API) replace(ctx context.Context, at place, kept, after *timer, settled bool) error {
	op := store.Op{Action: store.Delete, Name: kindTimer + at.id}
	if after != nil {
		var err error
		if op, err = after.op(); err != nil {
			return err
		}
		if err := a.Agenda.Register(ctx, at.space); err != nil {
			return err
		}
	}
	op.If = store.Condition{Absent: true}
	if kept != nil {
		op.If = store.Condition{Version: kept.version}
	}
	ops := []store.Op{op}
	var letter *due.Letter
	if settled && kept != nil && !kept.fired && kept.CallbackReference != "" {
		var err error
		if letter, err = a.letter(at.space, kept); err != nil {
			return err
		}
		ops = append(ops, letter.Op())
	}
	if err := a.Engine.Write(ctx, at.space, ops...); err != nil {
		return fmt.Errorf("write timer %s: %w", at.id, err)
	}
	if letter != nil {
		a.Agenda.Post(ctx, at.space, letter, &ops[1])
	}
	if after != nil {
		if when := after.due(); !when.IsZero() {
			a.Agenda.Planned(at.space, when)
		}
	}
	return nil
}

func (a *API) patchTimer(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	items, err := rest.Patch(w, r, maxTimer, a.Limits)
	if err != nil {
		return err
	}
	var report []wire.ReportItem
	_, err = a.change(r.Context(), at, func(before *timer) (*timer, error) {
		if before == nil {
			return nil, notFound(at.id)
		}
		next := *before
		patched, left, err := wire.ApplyPatch(before.Timer, items, maxTimer, func(t wire.Timer) error {
			if err := t.Check(a.Limits); err != nil {
				return err
			}
			if t.Expires.Equal(before.Expires) { // may be past, because the timer is kept
				t.Expires = a.Clock().Add(time.Second)
			}
			return a.check(at.id, &t)
		})
		report = left
		next.Timer = patched
		if !patched.Expires.Equal(before.Expires) {
			next.fired = false
		}
		return &next, err
	})
	if err != nil {
		return err
	}
	return rest.Patched(w, report)
}

func (a *API) deleteTimer(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	_, err = a.change(r.Context(), at, func(before *timer) (*timer, error) {
		if before == nil {
			return nil, notFound(at.id)
		}
		return nil, nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
