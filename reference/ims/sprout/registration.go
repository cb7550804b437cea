package sprout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
	"vitrine/reference/keep"
)

// A registration is the cluster's state of one public identity: its contacts and
// the subscriptions to its changes. It is a JSON record of the keeper.
type registration struct {
	Identities    []string       `json:"identities"` // the implicit registration set, the default first
	Bindings      []binding      `json:"bindings"`
	Subscriptions []subscription `json:"subscriptions,omitempty"`
	Due           int64          `json:"due"`               // when the timer is due, Unix milliseconds
	Claimed       bool           `json:"claimed,omitempty"` // a Sprout is sending the NOTIFYs of an expiry
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

const registrationPrefix = "reg/"

func registrationKey(impu string) string { return registrationPrefix + impu }

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

// registered returns an identity's registration and the tag of its record.
// Without bindings the identity is not registered.
func (s *server) registered(ctx context.Context, impu string) (registration, string, error) {
	have, err := s.records.Get(ctx, registrationKey(impu))
	if err != nil {
		return registration{}, "", err
	}
	r, err := parseRegistration(have.Value)
	if err != nil {
		return r, have.Tag, err
	}
	r.prune(s.records.Now())
	return r, have.Tag, nil
}

const (
	updateWithin = 5 * time.Second       // for all tries
	updateAfter  = 50 * time.Millisecond // longest pause between two tries
)

// updateRegistration reads, edits and writes an identity's registration, and moves its
// timer. If the record has changed in the meantime, it tries again after a random pause
// that grows with each try, so that concurrent requests of one user do not keep disturbing
// each other.
func (s *server) updateRegistration(ctx context.Context, impu string, edit func(*registration, time.Time) error) (registration, error) {
	ctx, cancel := context.WithTimeout(ctx, updateWithin)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, updateAfter) {
		r, tag, err := s.registered(ctx, impu)
		if err != nil {
			return r, err
		}
		timer := keep.Move{From: r.timer()}
		now := time.Now()
		if err := edit(&r, now); err != nil {
			return r, err
		}
		last := r.schedule(now)
		if timer.To = r.timer(); timer.To.IsZero() {
			err = s.records.Delete(ctx, registrationKey(impu), tag, timer)
		} else {
			var value []byte
			if value, err = json.Marshal(r); err == nil {
				err = s.records.Put(ctx, registrationKey(impu), keep.Record{Value: value, Tag: tag, Expires: last.Add(keepAfter)}, timer)
			}
		}
		if !errors.Is(err, keep.ErrChanged) {
			return r, err
		}
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return r, refuse(sip.StatusServiceUnavailable, "Too Many Changes")
		}
	}
}

// timer returns when the registration's timer is due, or a zero time.
func (r *registration) timer() time.Time {
	if r.Due == 0 {
		return time.Time{}
	}
	return time.UnixMilli(r.Due)
}

// schedule sets when the timer is due: at the next expiry or, after a claim, when the claim
// ends. It returns when the registration itself expires.
func (r *registration) schedule(now time.Time) time.Time {
	next, last := r.expiry()
	if r.Claimed {
		next = now.Add(claimFor)
	}
	r.Due = 0
	if !next.IsZero() {
		r.Due = next.UnixMilli()
	}
	if last.Before(next) {
		last = next
	}
	return last
}

// claimFor is how long a Sprout may take to notify an expiry before another one
// does. It exceeds the time for Homestead's answer.
const claimFor = 10 * time.Second

// errMoved is the error for a timer that is no longer due.
var errMoved = errors.New("the timer has moved")

// expire handles a registration's timer. It first claims the expiry in the record, which
// only one Sprout can do. If that Sprout fails before it has sent the NOTIFYs, the timer is
// due again after claimFor.
func (s *server) expire(ctx context.Context, key string, at time.Time) {
	ctx = truth.With(ctx, s.transactions.Messages.Begin())
	impu := strings.TrimPrefix(key, registrationPrefix)
	var watchers []subscription
	r, err := s.updateRegistration(ctx, impu, func(r *registration, _ time.Time) error {
		switch {
		case r.Due != at.UnixMilli():
			return errMoved
		case len(r.Subscriptions) > 0 && len(s.directors) > 0 && s.edge.Load() == nil:
			return errNoEdge // another Sprout handles the timer, or this one later
		}
		r.Claimed = true
		r.advance()
		watchers = slices.Clone(r.Subscriptions)
		return nil
	})
	if err != nil {
		s.failedExpiry(impu, err)
		return
	}
	s.counts.expired.Inc()
	if len(r.Bindings) == 0 {
		if _, err := s.assign(ctx, impu, ims.RequestDeregTimeout); err != nil {
			s.log.Warn("cannot report an expired registration to Homestead", "identity", impu, "error", err)
		}
	}
	s.notify(impu, r, watchers, truth.From(ctx))
	if _, err := s.updateRegistration(ctx, impu, func(r *registration, _ time.Time) error {
		if !r.Claimed {
			return errMoved // a REGISTER was faster
		}
		r.Claimed = false
		return nil
	}); err != nil {
		s.failedExpiry(impu, err)
	}
}

func (s *server) failedExpiry(impu string, err error) {
	if !errors.Is(err, errMoved) && !errors.Is(err, errNoEdge) {
		s.log.Warn("an expired registration was not cleared", "identity", impu, "error", err)
	}
}

// advance increments the CSeq of every subscription for the next NOTIFY.
func (r *registration) advance() {
	for i := range r.Subscriptions {
		r.Subscriptions[i].CSeq++
	}
}
