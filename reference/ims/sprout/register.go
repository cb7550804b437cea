package sprout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"vitrine/reference/ims"
	"vitrine/reference/ims/sipudp"
	wiresip "vitrine/wire/sip"
)

// defaultExpires applies to contacts without an expiry time.
const defaultExpires = 300 * time.Second

// A refusal is an error that holds the answer to the request.
type refusal struct {
	status  int
	reason  string
	headers []sip.Header
}

func (r *refusal) Error() string { return fmt.Sprintf("%d %s", r.status, r.reason) }

func refuse(status int, reason string, headers ...sip.Header) error {
	return &refusal{status, reason, headers}
}

// register handles a REGISTER (RFC 3261 section 10.3, TS 24.229 section 5.4.1).
func (s *server) register(ctx context.Context, tx *sipudp.Transaction) error {
	req := tx.Request
	impu, err := identity(&req.To().Address)
	if err != nil {
		return err
	}
	credentials, err := parseCredentials(req.GetHeader("Authorization"))
	if err != nil {
		return refuse(sip.StatusBadRequest, "Bad Authorization")
	}
	contacts, err := s.contacts(req, time.Now())
	if err != nil {
		return err
	}
	until := time.Now()
	for _, b := range contacts.bindings {
		if at := time.UnixMilli(b.Expires); at.After(until) {
			until = at
		}
	}
	verdict, err := s.authenticate(ctx, string(req.Method), impu, credentials, until)
	switch {
	case err != nil:
		return err
	case verdict == wrong:
		s.counts.wrong.Inc()
		return refuse(sip.StatusForbidden, "Forbidden")
	case verdict != accepted:
		impi := credentials.Username
		if impi == "" {
			impi = ims.UserOf(impu) + "@" + ims.Domain
		}
		header, err := s.challenge(ctx, impi, impu, verdict == stale)
		if err != nil {
			return err
		}
		s.counts.challenges.Inc()
		s.respond(tx, sipudp.Reply(req, sip.StatusUnauthorized, "Unauthorized", header))
		return nil
	}
	if !contacts.all && len(contacts.bindings) == 0 {
		return s.query(ctx, tx, impu)
	}
	return s.bind(ctx, tx, impu, contacts)
}

// identity returns the public identity in a To, From or request URI.
func identity(uri *sip.Uri) (string, error) {
	if !strings.EqualFold(uri.Host, ims.Domain) || uri.User == "" { // host names are compared without regard to case (RFC 3261 section 19.1.4)
		return "", refuse(sip.StatusNotFound, "Not Found")
	}
	return ims.PublicID(uri.User), nil
}

// expiresOf returns the time in the Expires header of a request, or otherwise if it has
// none.
func expiresOf(req *sip.Request, otherwise time.Duration) (time.Duration, error) {
	h := req.GetHeader("Expires")
	if h == nil {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(strings.TrimSpace(h.Value()), 10, 32)
	if err != nil {
		return 0, refuse(sip.StatusBadRequest, "Bad Expires")
	}
	return time.Duration(n) * time.Second, nil
}

// contacts holds the changes that a REGISTER requests.
type contacts struct {
	all      bool // "*": remove every binding
	bindings []binding
}

// contacts parses the Contact headers, and the Path that Bono added.
func (s *server) contacts(req *sip.Request, now time.Time) (contacts, error) {
	var out contacts
	expires, err := expiresOf(req, defaultExpires)
	if err != nil {
		return out, err
	}
	path, err := routes(req.GetHeaders("Path"))
	if err != nil {
		return out, refuse(sip.StatusBadRequest, "Bad Path")
	}
	for _, h := range req.GetHeaders("Contact") {
		contact, ok := h.(*sip.ContactHeader)
		if !ok {
			return out, refuse(sip.StatusBadRequest, "Bad Contact")
		}
		if contact.Address.Wildcard {
			out.all = true
			continue
		}
		life := expires
		if v, ok := contact.Params.Get("expires"); ok {
			n, err := strconv.ParseUint(v, 10, 32)
			if err != nil {
				return out, refuse(sip.StatusBadRequest, "Bad Contact")
			}
			life = time.Duration(n) * time.Second
		}
		out.bindings = append(out.bindings, binding{
			URI: contact.Address.String(), Path: path,
			CallID: string(*req.CallID()), CSeq: req.CSeq().SeqNo,
			Expires: now.Add(min(life, s.maxExpires)).UnixMilli(),
		})
	}
	if out.all && (expires != 0 || len(out.bindings) > 0) {
		return out, refuse(sip.StatusBadRequest, "Bad Wildcard Contact")
	}
	return out, nil
}

// routes parses Path, Route or Record-Route headers into URIs.
func routes(headers []sip.Header) ([]string, error) {
	var out []string
	for _, h := range headers {
		for rest, more := []byte(h.Value()), true; more; more = len(rest) > 0 {
			var element []byte
			element, rest = wiresip.CutElement(rest)
			var uri sip.Uri
			var params sip.HeaderParams
			if _, err := sip.ParseAddressValue(string(element), &uri, &params); err != nil {
				return nil, err
			}
			out = append(out, uri.String())
		}
	}
	return out, nil
}

// query answers an authenticated REGISTER that changes nothing (RFC 3261 section 10.3,
// step 6).
func (s *server) query(ctx context.Context, tx *sipudp.Transaction, impu string) error {
	r, _, err := s.registered(ctx, impu)
	if err == nil {
		s.respond(tx, s.registeredReply(tx.Request, r))
	}
	return err
}

// bind applies an authenticated REGISTER that has contacts.
func (s *server) bind(ctx context.Context, tx *sipudp.Transaction, impu string, c contacts) error {
	now := time.Now()
	leaving := c.all || !slices.ContainsFunc(c.bindings, func(b binding) bool { return b.Expires > now.UnixMilli() })
	kind := ims.RequestReg
	if leaving {
		have, _, err := s.registered(ctx, impu)
		if err != nil {
			return err
		}
		if kind = ims.RequestDeregUser; slices.ContainsFunc(have.Bindings, func(b binding) bool {
			return !c.all && !slices.ContainsFunc(c.bindings, func(gone binding) bool { return gone.URI == b.URI })
		}) {
			kind = ims.RequestReg // other contacts stay
		}
	}
	data, err := s.assign(ctx, impu, kind)
	if err != nil {
		return err
	}
	var watchers []subscription
	r, err := s.updateRegistration(ctx, impu, func(r *registration, now time.Time) error {
		r.Identities, r.Claimed = r.Identities[:0], false // this REGISTER also sends the NOTIFYs of an expiry
		for _, id := range data.Subscription.Profile.Identities {
			if !id.Barred {
				r.Identities = append(r.Identities, id.URI)
			}
		}
		if c.all {
			r.Bindings = nil
		}
		for _, b := range c.bindings {
			if err := r.update(b, now); err != nil {
				return err
			}
		}
		r.advance()
		watchers = slices.Clone(r.Subscriptions)
		return nil
	})
	switch {
	case errors.Is(err, errStale):
		return refuse(sip.StatusInternalServerError, "Out Of Order")
	case err != nil:
		return err
	}
	s.counts.registered.WithLabelValues(kind).Inc()
	s.respond(tx, s.registeredReply(tx.Request, r))
	s.notify(impu, r, watchers, tx.Event)
	s.charge(tx, ims.EventRecord, sip.StatusOK)
	return nil
}

// registeredReply returns the 200 that lists the present bindings.
func (s *server) registeredReply(req *sip.Request, r registration) *sip.Response {
	res := sipudp.Reply(req, sip.StatusOK, "OK")
	now := time.Now()
	for _, b := range r.Bindings {
		left := strconv.FormatInt(seconds(b.Expires, now), 10)
		res.AppendHeader(sip.NewHeader("Contact", "<"+b.URI+">;expires="+left))
	}
	sip.CopyHeaders("Path", req, res)
	if len(r.Bindings) > 0 {
		if len(s.directors) == 0 { // behind a director, any Sprout serves the phone's next request
			res.AppendHeader(sip.NewHeader("Service-Route", "<"+s.uri("orig")+">"))
		}
		for _, id := range r.Identities {
			res.AppendHeader(sip.NewHeader("P-Associated-URI", "<"+id+">"))
		}
	}
	return res
}
