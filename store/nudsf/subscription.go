package nudsf

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"vitrine/store"
	"vitrine/store/nudsf/due"
	"vitrine/store/nudsf/rest"
	"vitrine/store/nudsf/wire"
)

// A subscription as the engine keeps it.
type subscription struct {
	wire.Subscription
	id       string
	modified time.Time
	notified bool // the owner was notified of the end
	version  uint64
}

// subscriptionMeta is kept as JSON in the engine's meta.
type subscriptionMeta struct {
	Modified int64 `json:"modified"`           // Unix seconds
	Notified bool  `json:"notified,omitempty"` // of the expiry
}

// maxSubscription bounds a subscription's body, in bytes.
const maxSubscription = 64 << 10

func loadSubscription(r *store.Record) (*subscription, error) {
	s := &subscription{id: strings.TrimPrefix(r.Key.Name, kindSubscription), version: r.Version}
	var meta subscriptionMeta
	if err := rest.Load("subscription "+s.id, r, &s.Subscription, &meta); err != nil {
		return nil, err
	}
	s.modified, s.notified = time.Unix(meta.Modified, 0), meta.Notified
	return s, nil
}

// op returns the Op that stores the subscription.
func (s *subscription) op() (store.Op, error) {
	op, err := rest.Put("subscription "+s.id, kindSubscription+s.id, s.Subscription, subscriptionMeta{Modified: s.modified.Unix(), Notified: s.notified})
	if at := s.due(); !at.IsZero() {
		op.Tags = []store.Tag{due.At(at)}
	}
	return op, err
}

// due returns when the subscription needs an action next: a notification of its end, or the end;
// zero: never.
func (s *subscription) due() time.Time {
	if s.Expiry == nil {
		return time.Time{}
	}
	if s.notified || s.ExpiryCallbackReference == "" || s.ExpiryNotification == nil {
		return *s.Expiry
	}
	return s.Expiry.Add(-time.Duration(*s.ExpiryNotification) * time.Second)
}

func (s *subscription) expired(now time.Time) bool { return s.Expiry != nil && !now.Before(*s.Expiry) }

func (s *subscription) etag() string {
	if s == nil {
		return ""
	}
	return wire.ETag(s.version)
}

func (a *API) subscriptionPlace(r *http.Request) (space, id string, err error) {
	return a.Resource(service, "subscriptionId", r)
}

// readSubscription returns a subscription that exists and has not ended, else nil. kept is
// the version of the stored subscription, even if it has ended; 0: none.
func (a *API) readSubscription(ctx context.Context, space, id string) (s *subscription, kept uint64, err error) {
	s, err = rest.Read(ctx, a.Engine, store.Key{Space: space, Name: kindSubscription + id}, "subscription", id, loadSubscription)
	if err != nil || s == nil {
		return nil, 0, err
	}
	if s.expired(a.Clock()) {
		return nil, s.version, nil
	}
	return s, s.version, nil
}

func noSubscription(id string) error {
	return wire.NewProblem(http.StatusNotFound, wire.CauseSubscriptionNotFound, "there is no subscription %q", id)
}

func (a *API) getSubscription(w http.ResponseWriter, r *http.Request) error {
	space, id, err := a.subscriptionPlace(r)
	if err != nil {
		return err
	}
	s, _, err := a.readSubscription(r.Context(), space, id)
	if err != nil {
		return err
	}
	if s == nil {
		return noSubscription(id)
	}
	if conditional(w, r, s.etag(), s.modified) {
		return nil
	}
	return rest.JSON(w, http.StatusOK, s.Subscription)
}

func (a *API) listSubscriptions(w http.ResponseWriter, r *http.Request) error {
	space, err := a.Storages.Space(service, r)
	if err != nil {
		return err
	}
	q := rest.ReadQuery(r)
	limit := q.Count("limit-range", a.maxSubscriptions)
	if err := q.Err(); err != nil {
		return err
	}
	ctx, hold, end := a.Begin(r)
	defer end()
	list := []wire.Subscription{}
	now := a.Clock()
	for record, err := range a.Engine.Scan(ctx, store.Query{Space: space, Prefix: kindSubscription}) {
		if err != nil {
			return fmt.Errorf("read subscriptions: %w", err)
		}
		s, err := loadSubscription(record)
		if err != nil {
			return err
		}
		if len(list) >= limit {
			break
		}
		if s.expired(now) {
			continue
		}
		if err := hold.Take(2 * record.Held()); err != nil { // the list, and the answer
			return err
		}
		list = append(list, s.Subscription)
	}
	return rest.JSON(w, http.StatusOK, list)
}

func (a *API) putSubscription(w http.ResponseWriter, r *http.Request) error {
	space, id, err := a.subscriptionPlace(r)
	if err != nil {
		return err
	}
	body, err := rest.Body(w, r, wire.TypeJSON, maxSubscription)
	if err != nil {
		return err
	}
	wanted, err := wire.ParseSubscription(body)
	if err == nil {
		err = a.checkSubscription(&wanted)
	}
	if err != nil {
		return err
	}
	missing, err := a.missing(r.Context(), space, wanted.SubFilter)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return rest.JSON(w, http.StatusConflict, missing)
	}
	pre := wire.ReadPrecondition(r.Header)
	before, after, err := a.changeSubscription(r.Context(), space, id, func(before *subscription) (*subscription, error) {
		if before != nil {
			if err := before.Owned(*wanted.ClientID); err != nil {
				return nil, err
			}
		}
		if !pre.Holds(before.etag()) {
			return nil, errUnmet
		}
		return &subscription{Subscription: wanted}, nil
	})
	if errors.Is(err, errUnmet) {
		return unmetProblem()
	}
	if err != nil {
		return err
	}
	wire.Validators(w.Header(), after.etag(), after.modified)
	if before != nil {
		return rest.JSON(w, http.StatusOK, after.Subscription)
	}
	w.Header().Set("Location", a.uri(space, "subs-to-notify", id))
	return rest.JSON(w, http.StatusCreated, after.Subscription)
}

// checkSubscription returns an error if a callback target is not allowed or the expiry is past.
func (a *API) checkSubscription(s *wire.Subscription) error {
	if err := s.Check(); err != nil {
		return err
	}
	if err := a.Sender.Check(s.CallbackReference); err != nil {
		return wire.BadParam(wire.CauseIEIncorrect, "/callbackReference", "%v", err)
	}
	if s.ExpiryCallbackReference != "" {
		if err := a.Sender.Check(s.ExpiryCallbackReference); err != nil {
			return wire.BadParam(wire.CauseOptionalIncorrect, "/expiryCallbackReference", "%v", err)
		}
	}
	if s.Expiry != nil && !s.Expiry.After(a.Clock()) {
		return wire.BadParam(wire.CauseOptionalIncorrect, "/expiry", "is past")
	}
	return nil
}

// missing returns the monitored resources that are not records of the storage. They must exist: TS
// 29.598 clause 6.1.3.8.3.3.
func (a *API) missing(ctx context.Context, space string, f *wire.SubFilter) ([]string, error) {
	if f == nil {
		return nil, nil
	}
	var missing []string
	for _, uri := range f.MonitoredResourceURIs {
		id, ok := recordOf(space, uri)
		if ok {
			e, err := a.read(ctx, place{space, id})
			if err != nil {
				return nil, err
			}
			ok = e != nil && !e.expired(a.Clock())
		}
		if !ok {
			missing = append(missing, uri)
		}
	}
	return missing, nil
}

// recordOf returns the ID of the record that a URI or path names, if it is in the storage.
func recordOf(space, uri string) (string, bool) {
	u, err := url.Parse(uri)
	if err != nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(u.EscapedPath(), rest.Path(space, "records")+"/")
	if !ok || strings.Contains(rest, "/") {
		return "", false
	}
	id, err := url.PathUnescape(rest)
	return id, err == nil
}

// changeSubscription is like change, for subscriptions. If decide returns nil, it deletes the
// subscription.
func (a *API) changeSubscription(ctx context.Context, space, id string, decide func(before *subscription) (*subscription, error)) (before, after *subscription, err error) {
	err = rest.Retry(func() (err error) {
		var kept uint64
		if before, kept, err = a.readSubscription(ctx, space, id); err != nil {
			return err
		}
		if after, err = decide(before); err != nil {
			return err
		}
		if after != nil {
			after.id, after.modified = id, a.Clock()
			if before != nil {
				after.modified = changedAt(after.modified, before.modified)
			}
		}
		return a.writeSubscription(ctx, space, id, kept, after)
	})
	return before, after, err
}

func (a *API) writeSubscription(ctx context.Context, space, id string, kept uint64, after *subscription) error {
	op := store.Op{Action: store.Delete, Name: kindSubscription + id}
	if after != nil {
		var err error
		if op, err = after.op(); err != nil {
			return err
		}
		if kept == 0 {
			if err := a.room(ctx, space); err != nil {
				return err
			}
		}
		if after.Expiry != nil {
			if err := a.Agenda.Register(ctx, space); err != nil {
				return err
			}
		}
	}
	op.If = store.Condition{Version: kept, Absent: kept == 0}
	ops := []store.Op{op}
	if err := a.Engine.Write(ctx, space, ops...); err != nil {
		return fmt.Errorf("write subscription %s: %w", id, err)
	}
	a.forget(space)
	if after != nil {
		after.version = ops[0].Version
		if at := after.due(); !at.IsZero() {
			a.Agenda.Planned(space, at)
		}
	}
	return nil
}

func (a *API) patchSubscription(w http.ResponseWriter, r *http.Request) error {
	space, id, err := a.subscriptionPlace(r)
	if err != nil {
		return err
	}
	items, err := rest.Patch(w, r, maxSubscription, a.Limits)
	if err != nil {
		return err
	}
	pre := wire.ReadPrecondition(r.Header)
	var report []wire.ReportItem
	_, after, err := a.changeSubscription(r.Context(), space, id, func(before *subscription) (*subscription, error) {
		if before == nil {
			return nil, noSubscription(id)
		}
		if !pre.Holds(before.etag()) {
			return nil, errUnmet
		}
		after, left, err := a.patched(r.Context(), space, before, items)
		report = left
		return after, err
	})
	if errors.Is(err, errUnmet) {
		return unmetProblem()
	}
	if err != nil {
		return err
	}
	wire.Validators(w.Header(), after.etag(), after.modified)
	return rest.Patched(w, report)
}

// patched returns a subscription after a patch. The monitored resources must be records if the patch
// changes them. The owner is notified of the same end once.
func (a *API) patched(ctx context.Context, space string, before *subscription, items []wire.PatchItem) (*subscription, []wire.ReportItem, error) {
	changed, report, err := wire.ApplyPatch(before.Subscription, items, maxSubscription, func(s wire.Subscription) error {
		if err := a.checkSubscription(&s); err != nil {
			return err
		}
		return before.Owned(*s.ClientID)
	})
	if err != nil {
		return nil, nil, err
	}
	if f, old := changed.SubFilter, before.SubFilter; f != nil && (old == nil || !slices.Equal(f.MonitoredResourceURIs, old.MonitoredResourceURIs)) {
		missing, err := a.missing(ctx, space, f)
		if err != nil {
			return nil, nil, err
		}
		if len(missing) > 0 {
			return nil, nil, wire.NewProblem(http.StatusConflict, "", "these monitored resources are not records of the storage: %s", strings.Join(missing, ", "))
		}
	}
	after, unnotified := &subscription{Subscription: changed}, subscription{Subscription: before.Subscription}
	after.notified = before.notified && after.due().Equal(unnotified.due()) && after.Expiry.Equal(*before.Expiry)
	return after, report, nil
}

// clientOf reads client-id. It is an object in exploded form style (nfId=...&nfSetId=...),
// OpenAPI's default, or JSON in one parameter.
func clientOf(r *http.Request) (wire.ClientID, error) {
	q := rest.ReadQuery(r)
	var c wire.ClientID
	c.NfID, _ = q.Text("nfId")
	c.NfSetID, _ = q.Text("nfSetId")
	if text, ok := q.Text("client-id"); ok {
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			return c, wire.BadParam(wire.CauseQueryInvalid, "client-id", "%v", err)
		}
	}
	if q.Err() == nil && c == (wire.ClientID{}) {
		return c, wire.BadParam(wire.CauseQueryMissing, "client-id", "nfId or nfSetId is needed")
	}
	return c, q.Err()
}

func (a *API) deleteSubscription(w http.ResponseWriter, r *http.Request) error {
	space, id, err := a.subscriptionPlace(r)
	if err != nil {
		return err
	}
	previous, err := getPrevious(r)
	if err != nil {
		return err
	}
	client, err := clientOf(r)
	if err != nil {
		return err
	}
	pre := wire.ReadPrecondition(r.Header)
	before, _, err := a.changeSubscription(r.Context(), space, id, func(before *subscription) (*subscription, error) {
		switch {
		case before == nil:
			return nil, noSubscription(id)
		case !pre.Holds(before.etag()):
			return nil, errUnmet
		}
		return nil, before.Owned(client)
	})
	if errors.Is(err, errUnmet) {
		if !previous || before == nil {
			return unmetProblem()
		}
		return rest.JSON(w, http.StatusPreconditionFailed, before.Subscription)
	}
	if err != nil {
		return err
	}
	if previous {
		return rest.JSON(w, http.StatusOK, []wire.Subscription{before.Subscription})
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
