package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/emiago/sipgo/sip"

	"vitrine/internal/truth"
	"vitrine/reference/ims/sipudp"
	"vitrine/reference/keep"
)

// A record is what the store has of a user.
type record struct {
	locations []location
	tag       string // version; "" if there is no record
}

func (s *sidecar) read(ctx context.Context, of user) (record, error) {
	r, err := s.store.Get(ctx, of.name)
	if err != nil {
		return record{}, err
	}
	all, err := readLocations(r.Value, s.store.Now())
	return record{all, r.Tag}, err
}

// restore makes the function's locations of a user those of the store, and returns them.
// The caller holds the user's lock.
func (s *sidecar) restore(ctx context.Context, of user) (record, error) {
	r, err := s.read(ctx, of)
	if err != nil {
		return r, err
	}
	if tag, ok := s.known.Get(of.name); ok && tag == r.tag {
		return r, nil
	}
	s.known.Remove(of.name)
	if err := s.replace(ctx, of, r.locations, s.store.Now()); err != nil {
		return r, err
	}
	s.known.Add(of.name, r.tag)
	return r, nil
}

// replace makes the function's locations of a user the given ones, at now. The REGISTER for a
// location that the function has gets a new Call-ID, because the function refuses the one
// that bound the location a second time (RFC 3261 section 10.3, step 7).
func (s *sidecar) replace(ctx context.Context, of user, all []location, now time.Time) error {
	present, err := s.bind(ctx, of, nil, 0)
	if err != nil {
		return err
	}
	for _, c := range present {
		if find(all, c.uri) != nil {
			continue
		}
		if _, err := s.bind(ctx, of, &location{Contact: c.text}, 0); err != nil {
			return err
		}
	}
	for _, l := range all {
		if findContact(present, l.uri()) != nil {
			l.CallID = ""
		}
		if _, err := s.bind(ctx, of, &l, l.Expires.Sub(now)); err != nil {
			return err
		}
	}
	return nil
}

// bind sends a REGISTER of the sidecar's own, which binds a location for a lifetime, or
// removes it if that is 0. Without a location it changes nothing. bind returns the
// contacts that the function has afterwards.
func (s *sidecar) bind(ctx context.Context, of user, l *location, life time.Duration) ([]contact, error) {
	res, err := s.sendRegister(ctx, of, l, life)
	if err == nil && res.StatusCode == sip.StatusIntervalToBrief && life > 0 {
		// The rest of the lifetime is below the function's minimum. The function then has the
		// location for longer than the client asked, by less than that minimum.
		res, err = s.sendRegister(ctx, of, l, max(life, minExpires(res)))
	}
	if err != nil {
		return nil, err
	}
	if !res.IsSuccess() {
		hint := ""
		switch res.StatusCode {
		case sip.StatusUnauthorized, sip.StatusForbidden, sip.StatusProxyAuthRequired:
			hint = fmt.Sprintf(": it must accept REGISTERs from %s without credentials", s.own.Local())
		}
		return nil, fmt.Errorf("the function answers %d %s to a REGISTER of the sidecar%s", res.StatusCode, res.Reason, hint)
	}
	if l != nil {
		s.counts.restored.Inc()
	}
	return contacts(res.GetHeaders("Contact")), nil
}

// sendRegister sends the REGISTER of bind and returns the function's answer.
func (s *sidecar) sendRegister(ctx context.Context, of user, l *location, life time.Duration) (*sip.Response, error) {
	req := registerOf(of.uri, l, life)
	return s.exchange(ctx, sipudp.Begin(req, truth.Event(0)), req, sipudp.Peer{Socket: s.own, To: s.function})
}

// minExpires returns the shortest lifetime that a registrar accepts, by its 423 (RFC 3261 section
// 21.4.17). A registrar that does not say so gets a minute.
func minExpires(res *sip.Response) time.Duration {
	var least string
	if h := res.GetHeader("Min-Expires"); h != nil {
		least = h.Value()
	}
	return lifetime(least, "60")
}

// registerOf returns a REGISTER as bind sends it. It has the Call-ID and CSeq of the REGISTER
// that bound the location, so that the function takes the client's next one for a newer
// one (RFC 3261 section 10.3, step 7). If the location has no Call-ID, they are new.
func registerOf(user sip.Uri, l *location, life time.Duration) *sip.Request {
	req := sip.NewRequest(sip.REGISTER, sip.Uri{Scheme: "sip", Host: user.Host})
	hops := sip.MaxForwardsHeader(70)
	id, sequence := sip.CallIDHeader(sipudp.NewToken()), uint32(1)
	if l != nil && l.CallID != "" {
		id, sequence = sip.CallIDHeader(l.CallID), l.CSeq
	}
	req.AppendHeader(&hops)
	req.AppendHeader(&sip.FromHeader{Address: user, Params: sip.HeaderParams{{K: "tag", V: sipudp.NewToken()}}})
	req.AppendHeader(&sip.ToHeader{Address: user})
	req.AppendHeader(&id)
	req.AppendHeader(&sip.CSeqHeader{SeqNo: sequence, MethodName: sip.REGISTER})
	if l != nil {
		seconds := max(int64((life+time.Second-1)/time.Second), 0) // the location may have expired by now
		req.AppendHeader(sip.NewHeader("Contact", l.Contact+";expires="+strconv.FormatInt(seconds, 10)))
		for _, p := range l.Path {
			req.AppendHeader(sip.NewHeader("Path", p))
		}
		if len(l.Path) > 0 {
			req.AppendHeader(sip.NewHeader("Supported", "path"))
		}
	}
	req.SetBody(nil)
	return req
}

// publishAttempts is how often publish writes when other instances write the same record.
const publishAttempts = 5

// publish writes the user's locations after a successful REGISTER. had is the record
// before it.
func (s *sidecar) publish(ctx context.Context, of user, had record, req *sip.Request, res *sip.Response) error {
	s.known.Remove(of.name) // until the store has what the function has
	asked := contacts(req.GetHeaders("Contact"))
	now := granted(req, res, had.locations, time.Now())
	has := had
	var err error
	for range publishAttempts {
		next := merge(had.locations, has.locations, now, asked)
		var tag string
		if tag, err = s.write(ctx, of.name, next, has.tag); err == nil {
			s.counts.published.Inc()
			if has.tag == had.tag {
				s.known.Add(of.name, tag)
			}
			return nil
		}
		if !errors.Is(err, keep.ErrChanged) {
			return err
		}
		if has, err = s.read(ctx, of); err != nil {
			return err
		}
	}
	return keep.ErrChanged
}

// write replaces the version tag of a record, and returns the new version.
func (s *sidecar) write(ctx context.Context, name string, all []location, tag string) (string, error) {
	if len(all) == 0 {
		if tag == "" {
			return "", nil
		}
		return "", s.store.Delete(ctx, name, tag, keep.Move{})
	}
	value, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("write the locations of %s: %w", strings.TrimPrefix(name, "sip:"), err)
	}
	return s.store.Write(ctx, name, keep.Record{Value: value, Tag: tag, Expires: lastExpiry(all)}, keep.Move{})
}
