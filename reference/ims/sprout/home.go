package sprout

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/emiago/sipgo/sip"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
	"vitrine/reference/ims/sipudp"
)

// homestead sends a request to Homestead. It returns a refusal with 408 for a
// late answer, which is what a client sees of an overloaded Homestead, and with
// 504 for no connection.
func (s *server) homestead(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	status, answer, err := s.home.Do(ctx, method, path, body)
	switch {
	case errors.Is(err, rest.ErrLate):
		s.counts.late.Inc()
		return nil, refuse(sip.StatusRequestTimeout, "Homestead Is Late")
	case err != nil:
		s.log.Warn("Homestead was not reached", "error", err)
		return nil, refuse(sip.StatusGatewayTimeout, "No Homestead")
	case status == http.StatusOK:
		return answer, nil
	case status == http.StatusNotFound:
		return nil, errNoSubscriber
	case status == http.StatusForbidden:
		return nil, refuse(sip.StatusForbidden, "Forbidden")
	case status == http.StatusServiceUnavailable:
		return nil, refuse(sip.StatusServiceUnavailable, "Homestead Is Unavailable")
	}
	return nil, fmt.Errorf("homestead answered %s %s with %d: %.200s", method, path, status, answer)
}

// errNoSubscriber is the error for an identity that Homestead does not have.
var errNoSubscriber = errors.New("no such subscriber")

// vector fetches an authentication vector.
func (s *server) vector(ctx context.Context, impi, impu string) (ims.AuthVector, error) {
	var v ims.AuthVector
	answer, err := s.homestead(ctx, http.MethodGet, "/impi/"+url.PathEscape(impi)+"/av?impu="+url.QueryEscape(impu), nil)
	if errors.Is(err, errNoSubscriber) {
		return v, refuse(sip.StatusForbidden, "Forbidden")
	}
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(answer, &v); err != nil {
		return v, fmt.Errorf("authentication vector of %s: %w", impi, err)
	}
	return v, nil
}

// assign reports a change to Homestead and returns the profile.
func (s *server) assign(ctx context.Context, impu, kind string) (ims.RegData, error) {
	var data ims.RegData
	body, err := json.Marshal(ims.RegRequest{Type: kind, Server: s.uri("")})
	if err != nil {
		return data, err
	}
	answer, err := s.homestead(ctx, http.MethodPut, "/impu/"+url.PathEscape(impu)+"/reg-data", body)
	if errors.Is(err, errNoSubscriber) {
		return data, refuse(sip.StatusNotFound, "Not Found")
	}
	if err != nil {
		return data, err
	}
	return parseRegData(answer)
}

// parseRegData parses Homestead's document.
func parseRegData(document []byte) (ims.RegData, error) {
	var data ims.RegData
	if err := xml.Unmarshal(document, &data); err != nil {
		return data, fmt.Errorf("not a reg-data document: %w", err)
	}
	return data, nil
}

// Session cases of TS 29.228 section B.2.
const (
	originating = 0
	terminating = 1
)

// usesTelephonyServer reports whether a profile's initial filter criteria (TS 29.228 annex
// C) send this request to the telephony server.
func usesTelephonyServer(p ims.Profile, method string, sessionCase int) bool {
	for _, c := range p.Criteria {
		if c.Server.Name == ims.TelephonyServer && matches(c.Trigger, method, sessionCase) {
			return true
		}
	}
	return false
}

// matches evaluates a trigger point over its groups: an AND of ORs with CNF,
// otherwise an OR of ANDs.
func matches(t ims.Trigger, method string, sessionCase int) bool {
	groups := map[int]bool{}
	for _, spot := range t.Spots {
		met := spot.Method == method
		if spot.Method == "" && spot.SessionCase != nil {
			met = *spot.SessionCase == sessionCase
		}
		met = met != spot.Negated
		if have, seen := groups[spot.Group]; !seen {
			groups[spot.Group] = met
		} else if t.CNF {
			groups[spot.Group] = have || met
		} else {
			groups[spot.Group] = have && met
		}
	}
	for _, met := range groups {
		if met != t.CNF {
			return met
		}
	}
	return t.CNF
}

// services returns a user's telephony settings. Without an answer from Homer
// nothing is barred, because the criteria's default handling is to continue the
// session.
func (s *server) services(ctx context.Context, impu string) ims.Services {
	if s.homer == nil {
		return ims.DefaultServices()
	}
	status, answer, err := s.homer.Do(ctx, http.MethodGet, ims.ServicesPath(url.PathEscape(impu)), nil)
	if err == nil && status == http.StatusOK {
		var settings ims.Services
		if settings, err = ims.ParseServices(answer); err == nil {
			return settings
		}
	}
	s.counts.homerFailed.Inc()
	s.log.Warn("no telephony settings: the session goes on without", "identity", impu, "status", status, "error", err)
	return ims.DefaultServices()
}

// charge queues a record for Ralf. If the queue is full, the record is lost and
// counted: charging is offline and must not delay calls.
func (s *server) charge(tx *sipudp.Transaction, kind, cause int) {
	if s.ralf == nil {
		return
	}
	req := tx.Request
	r := chargeable{event: tx.Event, callID: string(*req.CallID()), record: ims.ChargingRecord{
		Type: kind, Method: string(req.Method), Calling: req.From().Address.Addr(), Called: req.To().Address.Addr(),
		Node: s.uri(""), Time: time.Now(), Cause: cause,
	}}
	if h := req.GetHeader("P-Charging-Vector"); h != nil {
		r.record.ICID = h.Value()
	}
	select {
	case s.charges <- r:
	default:
		s.counts.unchargeable.Inc()
	}
}

type chargeable struct {
	event  truth.Event
	callID string
	record ims.ChargingRecord
}

// chargeGrace is how long records may still be sent to Ralf at the end.
const chargeGrace = time.Second

// sendCharges sends queued records to Ralf until the queue is closed. The records that
// are not sent within chargeGrace after ctx is done are lost.
func (s *server) sendCharges(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(chargeGrace, cancel) })()
	for c := range s.charges {
		body, err := json.Marshal(c.record)
		if err == nil {
			var status int
			status, _, err = s.ralf.Do(truth.With(sending, c.event), http.MethodPost, "/call-id/"+url.PathEscape(c.callID), body)
			if err == nil && status != http.StatusOK {
				err = fmt.Errorf("status %d", status)
			}
		}
		if err != nil {
			s.counts.unchargeable.Inc()
			s.log.Warn("a charging record was lost", "call", c.callID, "error", err)
		}
	}
}
