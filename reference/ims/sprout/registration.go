package sprout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"vitrine/reference/ims"
	"vitrine/reference/ims/replica"
)

// A registration is the cluster's state of one public identity: its contacts and
// the subscriptions to its changes. It is a JSON record of the replicated store.
type registration struct {
	Identities    []string       `json:"identities"` // the implicit registration set, the default first
	Bindings      []binding      `json:"bindings"`
	Subscriptions []subscription `json:"subscriptions,omitempty"`
	Version       int            `json:"version"` // version of the reg event document
}

// A binding is a contact with the path to it.
type binding struct {
	URI     string   `json:"uri"`
	Path    []string `json:"path"` // URIs, the nearest to Sprout first (RFC 3327)
	CallID  string   `json:"call_id"`
	CSeq    uint32   `json:"cseq"`
	Expires int64    `json:"expires"` // Unix milliseconds
}

// A subscription is a dialog in which changes are notified (RFC 3680).
type subscription struct {
	CallID  string   `json:"call_id"`
	Local   string   `json:"local"`  // our name-addr with tag: the From of NOTIFYs
	Remote  string   `json:"remote"` // the subscriber's name-addr: the To of NOTIFYs
	Target  string   `json:"target"` // contact of the subscriber
	Route   []string `json:"route"`
	CSeq    uint32   `json:"cseq"` // CSeq of the last NOTIFY
	Expires int64    `json:"expires"`
}

// keepAfter is how long a record outlives its last binding, so that the timer
// still finds it.
const keepAfter = time.Minute

func registrationKey(impu string) string { return "reg/" + impu }
func timerKey(impu string) string        { return "timer/" + impu }

// parseRegistration parses a record.
func parseRegistration(value []byte) (registration, error) {
	var r registration
	if len(value) == 0 {
		return r, nil
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("not a registration: %w", err)
	}
	return r, nil
}

// prune removes expired bindings and subscriptions, and reports whether there
// were any.
func (r *registration) prune(now time.Time) bool {
	at := now.UnixMilli()
	bindings, subscriptions := len(r.Bindings), len(r.Subscriptions)
	r.Bindings = slices.DeleteFunc(r.Bindings, func(b binding) bool { return b.Expires <= at })
	r.Subscriptions = slices.DeleteFunc(r.Subscriptions, func(s subscription) bool { return s.Expires <= at })
	return len(r.Bindings) != bindings || len(r.Subscriptions) != subscriptions
}

// expiry returns when the first and the last binding expire, or zero times
// without bindings.
func (r *registration) expiry() (next, last time.Time) {
	for _, b := range r.Bindings {
		at := time.UnixMilli(b.Expires)
		if next.IsZero() || at.Before(next) {
			next = at
		}
		if at.After(last) {
			last = at
		}
	}
	return next, last
}

// errStale is the error for a REGISTER that a later one has overtaken.
var errStale = errors.New("a later REGISTER of this call has been seen")

// update replaces the binding of b's contact, or removes it if b has expired.
func (r *registration) update(b binding, now time.Time) error {
	i := slices.IndexFunc(r.Bindings, func(have binding) bool { return have.URI == b.URI })
	if i >= 0 {
		if have := r.Bindings[i]; have.CallID == b.CallID && have.CSeq >= b.CSeq {
			return errStale // RFC 3261 section 10.3, step 7
		}
		r.Bindings = slices.Delete(r.Bindings, i, i+1)
	}
	if b.Expires > now.UnixMilli() {
		r.Bindings = append(r.Bindings, b)
	}
	return nil
}

// registered returns an identity's registration and the version of its record.
// Without bindings the identity is not registered.
func (s *server) registered(ctx context.Context, impu string) (registration, uint64, error) {
	record, err := s.store.Get(ctx, registrationKey(impu))
	if err != nil {
		return registration{}, 0, err
	}
	r, err := parseRegistration(record.Value)
	if err != nil {
		return r, record.Version, err
	}
	r.prune(time.Now())
	return r, record.Version, nil
}

// updateRegistration reads, edits and writes an identity's registration, and sets its timer.
// It starts again, up to ten times, if the record has changed in the meantime.
func (s *server) updateRegistration(ctx context.Context, impu string, edit func(*registration, time.Time) error) (registration, error) {
	for range 10 {
		r, version, err := s.registered(ctx, impu)
		if err != nil {
			return r, err
		}
		before, _ := r.expiry()
		if err := edit(&r, time.Now()); err != nil {
			return r, err
		}
		next, last := r.expiry()
		if next.IsZero() {
			err = s.store.Delete(ctx, registrationKey(impu), version)
		} else {
			r.Version++
			var value []byte
			if value, err = json.Marshal(r); err == nil {
				_, err = s.store.Put(ctx, registrationKey(impu), replica.Record{Value: value, Expires: last.Add(keepAfter)}, version)
			}
		}
		switch {
		case errors.Is(err, replica.ErrConflict):
			continue
		case err != nil:
			return r, err
		case next.IsZero() && !before.IsZero():
			return r, s.store.Cancel(ctx, timerKey(impu))
		case !next.Equal(before):
			return r, s.store.Schedule(ctx, timerKey(impu), next, []byte(impu))
		}
		return r, nil
	}
	return registration{}, fmt.Errorf("registration of %s: too many conflicting changes", impu)
}

// expire is called when an identity's timer is due, on one Sprout only.
func (s *server) expire(ctx context.Context, _ string, value []byte) {
	impu := string(value)
	s.counts.expired.Inc()
	var watchers []subscription
	r, err := s.updateRegistration(ctx, impu, func(r *registration, _ time.Time) error {
		r.advance()
		watchers = slices.Clone(r.Subscriptions)
		return nil
	})
	if err != nil {
		s.log.Warn("an expired registration was not cleared", "identity", impu, "error", err)
		return
	}
	next, _ := r.expiry()
	if next.IsZero() {
		if _, err := s.assign(ctx, impu, ims.RequestDeregTimeout); err != nil {
			s.log.Warn("cannot report an expired registration to Homestead", "identity", impu, "error", err)
		}
	} else if err := s.store.Schedule(ctx, timerKey(impu), next, value); err != nil {
		s.log.Warn("a timer was not set", "identity", impu, "error", err)
	}
	s.notify(impu, r, watchers)
}

// advance increments the CSeq of every subscription for the next NOTIFY.
func (r *registration) advance() {
	for i := range r.Subscriptions {
		r.Subscriptions[i].CSeq++
	}
}
