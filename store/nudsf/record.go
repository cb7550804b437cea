package nudsf

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// A place is the record that a request addresses.
type place struct {
	space, id string
}

func (p place) key() store.Key { return store.Key{Space: p.space, Name: kindRecord + p.id} }

func (a *API) place(r *http.Request) (place, error) {
	space, id, err := a.Resource(service, "recordId", r)
	return place{space, id}, err
}

// read returns the stored record, expired or not; nil if there is none.
func (a *API) read(ctx context.Context, at place) (*entry, error) {
	return rest.Read(ctx, a.Engine, at.key(), "record", at.id, load)
}

// live returns the record, or a 404 problem if it is absent or expired.
func (a *API) live(ctx context.Context, at place) (*entry, error) {
	e, err := a.read(ctx, at)
	if err != nil {
		return nil, err
	}
	if e == nil || e.expired(a.Clock()) {
		return nil, noRecord(at.id)
	}
	return e, nil
}

func noRecord(id string) error {
	return wire.NewProblem(http.StatusNotFound, wire.CauseRecordNotFound, "there is no record %q", id)
}

func (a *API) getRecord(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	e, err := a.live(r.Context(), at)
	if err != nil || conditional(w, r, e.etag(), e.modified()) {
		return err
	}
	return sendRecord(w, http.StatusOK, e)
}

// conditional sets the validators of an entity. It answers with 304 or 412 if the request's conditions
// require it, and reports whether it did.
func conditional(w http.ResponseWriter, r *http.Request, etag string, modified time.Time) bool {
	wire.Validators(w.Header(), etag, modified)
	switch status := wire.ReadPrecondition(r.Header).Status(etag, modified); status {
	case http.StatusNotModified:
		w.WriteHeader(status)
	case http.StatusPreconditionFailed:
		unmetProblem().Write(w)
	default:
		return false
	}
	return true
}

func unmetProblem() *wire.Problem {
	return wire.NewProblem(http.StatusPreconditionFailed, "", "a condition of the request does not hold; the ETag header has the present tag")
}

func sendRecord(w http.ResponseWriter, status int, e *entry) error {
	contentType, body, err := e.Encode()
	if err != nil {
		return err
	}
	send(w, status, contentType, body)
	return nil
}

// send answers with a content and a type that a consumer chose. A browser must not run them as a page
// of this store.
func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func (a *API) putRecord(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	previous, err := getPrevious(r)
	if err != nil {
		return err
	}
	record, err := wire.ReadRecord(r.Header.Get("Content-Type"), http.MaxBytesReader(w, r.Body, int64(a.maxBody())), a.Limits)
	if err != nil {
		return err
	}
	if err := a.checkMeta(record.Meta); err != nil {
		return err
	}
	pre := wire.ReadPrecondition(r.Header)
	before, after, err := a.change(r.Context(), at, func(before *entry) (*entry, error) {
		if !pre.Holds(before.etag()) {
			return nil, errUnmet
		}
		return newEntry(record), nil
	}, pre.None() && !previous)
	if errors.Is(err, errUnmet) {
		return recordUnmet(w, before, previous)
	}
	if err != nil {
		return err
	}
	wire.Validators(w.Header(), after.etag(), after.modified())
	switch {
	case before == nil:
		w.Header().Set("Location", a.uri(at.space, "records", at.id))
		return sendRecord(w, http.StatusCreated, after)
	case previous:
		return sendRecord(w, http.StatusOK, before)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// getPrevious reports whether the request asks for the previous record in the answer.
func getPrevious(r *http.Request) (bool, error) {
	q := rest.ReadQuery(r)
	previous := q.Bool("get-previous")
	return previous, q.Err()
}

// checkMeta returns an error if the callback target is not allowed.
func (a *API) checkMeta(m wire.Meta) error {
	if m.CallbackReference == "" {
		return nil
	}
	if err := a.Sender.Check(m.CallbackReference); err != nil {
		return wire.BadParam(wire.CauseOptionalIncorrect, "/callbackReference", "%v", err)
	}
	return nil
}

// errUnmet means that a precondition of the request does not hold.
var errUnmet = errors.New("nudsf: precondition not met")

// recordUnmet answers with 412, and with the current record if whole.
func recordUnmet(w http.ResponseWriter, e *entry, whole bool) error {
	if e == nil {
		return unmetProblem()
	}
	wire.Validators(w.Header(), e.etag(), e.modified())
	if !whole {
		return unmetProblem()
	}
	return sendRecord(w, http.StatusPreconditionFailed, e)
}

func (a *API) deleteRecord(w http.ResponseWriter, r *http.Request) error {
	at, err := a.place(r)
	if err != nil {
		return err
	}
	previous, err := getPrevious(r)
	if err != nil {
		return err
	}
	pre := wire.ReadPrecondition(r.Header)
	before, _, err := a.change(r.Context(), at, func(before *entry) (*entry, error) {
		switch {
		case before == nil:
			return nil, noRecord(at.id)
		case !pre.Holds(before.etag()):
			return nil, errUnmet
		}
		return nil, nil
	}, false)
	if errors.Is(err, errUnmet) {
		return recordUnmet(w, before, previous)
	}
	if err != nil {
		return err
	}
	wire.Validators(w.Header(), before.etag(), before.modified())
	if previous {
		return sendRecord(w, http.StatusOK, before)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// change reads a record, calls decide for its new state (nil: deleted), and writes that state if
// nobody else has changed the record meanwhile; otherwise it tries again. An error of decide ends
// it. before is nil if consumers see no record. With blind, decide ignores before, and the last of
// several writers wins.
func (a *API) change(ctx context.Context, at place, decide func(before *entry) (*entry, error), blind bool) (before, after *entry, err error) {
	err = rest.Retry(func() error {
		kept, err := a.read(ctx, at)
		if err != nil {
			return err
		}
		before = kept
		expired := kept != nil && kept.expired(a.Clock())
		if expired {
			before = nil
		}
		if after, err = decide(before); err != nil {
			return err
		}
		existed, err := a.replace(ctx, at, kept, after, blind && !expired)
		switch {
		case err != nil || !blind || expired:
		case existed && before == nil: // another client created it meanwhile
			before = &entry{}
		case !existed: // another client deleted it meanwhile
			before = nil
		}
		return err
	})
	return before, after, err
}

// replace writes a record's new state. If the old record has expired and is not handled yet, the
// same write stores its notification.
func (a *API) replace(ctx context.Context, at place, kept, after *entry, blind bool) (existed bool, err error) {
	now := a.Clock()
	expired := kept != nil && kept.expired(now)
	op := store.Op{Action: store.Delete, Name: kindRecord + at.id}
	if after != nil {
		if op, err = after.op(at.id, changedAt(now, kept.modified())); err != nil {
			return false, err
		}
		if after.Meta.TTL != nil {
			if err := a.checkLetter(at, after, &op); err != nil {
				return false, err
			}
			if err := a.Agenda.Register(ctx, at.space); err != nil {
				return false, err
			}
		}
	}
	switch {
	case blind && !expired: // no condition; an expired record needs one, because its notification is made once
	case kept == nil:
		op.If = store.Condition{Absent: true}
	default:
		op.If = store.Condition{Version: kept.version}
	}
	ops := []store.Op{op}
	letter, err := a.expiryLetter(at, kept, expired)
	if err != nil {
		return false, err
	}
	if letter != nil {
		ops = append(ops, letter.Op())
	}
	if err := a.Engine.Write(ctx, at.space, ops...); err != nil {
		return false, fmt.Errorf("write record %s: %w", at.id, err)
	}
	if letter != nil {
		a.Agenda.Post(ctx, at.space, letter, &ops[1])
	}
	existed = ops[0].Existed && !expired
	if after != nil {
		after.version = ops[0].Version
		if after.Meta.TTL != nil {
			a.Agenda.Planned(at.space, *after.Meta.TTL)
		}
	}
	a.notifyChange(ctx, at, kept, after, existed, expired)
	return existed, nil
}

// notifyChange notifies subscribers of a change.
func (a *API) notifyChange(ctx context.Context, at place, kept, after *entry, existed, expired bool) {
	if expired {
		a.notify(ctx, at, wire.Deleted, &kept.Record)
	}
	switch {
	case after == nil && kept != nil && !expired:
		a.notify(ctx, at, wire.Deleted, &kept.Record)
	case after != nil && existed:
		a.notify(ctx, at, wire.Updated, &after.Record)
	case after != nil:
		a.notify(ctx, at, wire.Created, &after.Record)
	}
}
