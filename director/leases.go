package director

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vitrine"
	"vitrine/director/client"
)

// leasedType returns the type in the request's path. If there is none, leasedType answers the
// request and returns false.
func (d *Director) leasedType(w http.ResponseWriter, r *http.Request) (name string, ok bool) {
	name = r.PathValue("type")
	c := d.config.Load()
	if c.Type(name) == nil {
		fail(w, &vitrine.BadInput{File: "lease", Found: "no type " + name, Want: "want one of " + strings.Join(c.typeNames(), ", ")})
		return "", false
	}
	return name, true
}

// leasedToken returns type and token in the request's path, or answers and returns false.
func (d *Director) leasedToken(w http.ResponseWriter, r *http.Request) (name string, token uint64, ok bool) {
	if name, ok = d.leasedType(w, r); !ok {
		return "", 0, false
	}
	token, err := strconv.ParseUint(r.PathValue("token"), 10, 64)
	if err != nil || token == 0 || token > maxToken {
		fail(w, badToken(name, r.PathValue("token")))
		return "", 0, false
	}
	return name, token, true
}

func badToken(typeName, token string) error {
	return &vitrine.BadInput{File: "lease of type " + typeName, Found: "token " + token, Want: fmt.Sprintf("want a number from 1 to %d", uint64(maxToken))}
}

func (d *Director) getLeases(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, d.roster.listLeases(d.now()))
}

func (d *Director) getLease(w http.ResponseWriter, r *http.Request) {
	if name, ok := d.leasedType(w, r); ok {
		answer(w, http.StatusOK, d.roster.viewLease(name, d.now()))
	}
}

func (d *Director) postLease(w http.ResponseWriter, r *http.Request) {
	name, ok := d.leasedType(w, r)
	var q client.LeaseRequest
	if !ok || !d.acceptsChanges(w) || !read(w, r, &q) {
		return
	}
	if err := checkRequest(name, q); err != nil {
		fail(w, err)
		return
	}
	err := d.roster.acquire(d.options.Clock, name, q)
	if err == nil {
		d.log.Info("lease begins", "type", name, "holder", q.Holder)
	}
	d.answerLease(w, r, http.StatusCreated, name, err)
}

func checkRequest(typeName string, q client.LeaseRequest) error {
	bad := func(found, want string) error {
		return &vitrine.BadInput{File: "lease of type " + typeName, Found: found, Want: want}
	}
	if q.Holder == "" || len(q.Holder) > maxHolder || strings.ContainsFunc(q.Holder, func(c rune) bool { return c < ' ' || c > '~' }) {
		return bad(fmt.Sprintf("holder %.80q", q.Holder), fmt.Sprintf("want 1 to %d printable ASCII characters", maxHolder))
	}
	if q.Token > maxToken {
		return badToken(typeName, strconv.FormatUint(q.Token, 10))
	}
	return checkTTL(typeName, q.TTL)
}

func checkTTL(typeName string, ttl float64) error {
	if !(ttl >= minTTL.Seconds() && ttl <= maxTTL.Seconds()) {
		return &vitrine.BadInput{File: "lease of type " + typeName, Found: fmt.Sprintf("ttl_seconds %v", ttl), Want: fmt.Sprintf("want %v to %v seconds", minTTL.Seconds(), maxTTL.Seconds())}
	}
	return nil
}

func (d *Director) patchLease(w http.ResponseWriter, r *http.Request) {
	name, token, ok := d.leasedToken(w, r)
	var c client.LeaseChange
	if !ok || !d.acceptsChanges(w) || !read(w, r, &c) {
		return
	}
	if c.TTL != 0 {
		if err := checkTTL(name, c.TTL); err != nil {
			fail(w, err)
			return
		}
	}
	d.answerLease(w, r, http.StatusOK, name, d.roster.renew(d.options.Clock, name, token, c))
}

func (d *Director) deleteLease(w http.ResponseWriter, r *http.Request) {
	name, token, ok := d.leasedToken(w, r)
	if !ok || !d.acceptsChanges(w) {
		return
	}
	err := d.roster.release(name, token)
	if err == nil {
		d.log.Info("lease ends", "type", name, "token", token)
	}
	d.answerLease(w, r, http.StatusOK, name, err)
}

// answerLease answers with the lease of the type, when it is on disk and in force.
func (d *Director) answerLease(w http.ResponseWriter, r *http.Request, status int, name string, err error) {
	if err == nil {
		err = d.putInForce(r.Context())
	}
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, status, d.roster.viewLease(name, d.now()))
}

// putInForce publishes the changes of the roster, and returns when that is done.
func (d *Director) putInForce(ctx context.Context) error {
	for {
		d.publishing.Lock()
		version := d.published
		d.publishing.Unlock()
		if d.roster.currentVersion() == version {
			return nil
		}
		wait, err := d.publish()
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}
