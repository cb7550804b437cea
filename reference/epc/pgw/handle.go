package pgw

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/nas"
)

// handle handles a request from an S-GW. It drops requests of other types (TS
// 29.274 clause 7.7.4).
func (s *server) handle(ctx context.Context, r *gtp.Request) {
	switch r.Type {
	case gtpc.CreateSessionRequest:
		s.create(ctx, r)
	case gtpc.ModifyBearerRequest:
		s.modify(r)
	case gtpc.DeleteSessionRequest:
		s.remove(ctx, r)
	case gtpc.BearerResourceCommand:
		s.resource(ctx, r)
	default:
		s.procedures.Count(r.Type, 0)
	}
}

// create handles a Create Session Request (clause 7.2.1).
func (s *server) create(ctx context.Context, r *gtp.Request) {
	var m gtpc.CreateSession
	err := m.Parse(&r.Message)
	var apn string
	if err == nil {
		apn, err = s.check(&m)
	}
	if err != nil {
		s.procedures.Refuse(r, m.Sender.TEID, err)
		return
	}
	made, over, err := s.open(sessionKey{m.IMSI, m.Bearers[0].EBI}, r.Peer(m.Sender))
	if over != nil {
		s.endGx(ctx, over)
	}
	if err != nil {
		s.procedures.Refuse(r, m.Sender.TEID, err)
		return
	}
	answer, err := s.accept(ctx, made, &m, apn)
	if err != nil {
		s.close(made)
		s.procedures.Refuse(r, m.Sender.TEID, err)
		return
	}
	s.procedures.Answer(r, m.Sender.TEID, answer, answer.Result.Cause)
}

// check checks whether a request can be served, and returns its access point
// name. The error is a gtpc.Result.
func (s *server) check(m *gtpc.CreateSession) (string, error) {
	name, ok := nas.AppendName(nil, m.APN)
	apn := strings.ToLower(string(name))
	switch {
	case m.Sender.Interface != gtpc.S5SGW || !m.Sender.Addr().IsValid():
		return "", gtpc.Result{Cause: gtpc.MandatoryIncorrect, Offending: gtpc.FTEID}
	case m.IMSI.Len() == 0:
		return "", gtpc.Result{Cause: gtpc.ConditionalMissing, Offending: gtpc.IMSI}
	case m.Bearers[0].QoS.QCI == 0:
		return "", gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.BearerQoS}
	case !ok:
		return "", gtpc.Result{Cause: gtpc.MandatoryIncorrect, Offending: gtpc.APN}
	case !slices.Contains(s.apns, apn):
		return "", gtpc.Result{Cause: gtpc.UnknownAPN, Offending: gtpc.APN}
	case m.PDN == gtpc.PDNv6:
		return "", gtpc.Result{Cause: gtpc.PDNTypeNotSupported, Offending: gtpc.PDNType}
	}
	return apn, nil
}

// accept asks the PCRF for the session's policy, and returns the positive answer.
// The error is a gtpc.Result.
func (s *server) accept(ctx context.Context, made *session, m *gtpc.CreateSession, apn string) (*gtpc.CreateSessionAnswer, error) {
	qos, ambr, gx := m.Bearers[0].QoS, m.AMBR, ""
	if s.pcef != nil {
		id, policy, err := s.pcef.Begin(ctx, made.gxRequest(m, apn))
		if err != nil {
			return nil, gxResult(err)
		}
		gx = id
		qos.QCI, qos.Priority, qos.MayPreempt, qos.Preemptable = policy.QoS.QCI, policy.QoS.Priority, policy.QoS.MayPreempt, policy.QoS.Preemptable
		ambr = gtpc.Rates{Up: policy.AMBR.Up / 1000, Down: policy.AMBR.Down / 1000}
	}
	own := gtpc.Bearer{
		EBI: made.key.ebi, Result: gtpc.Result{Cause: gtpc.RequestAccepted},
		S5PGW: s.endpoint.Own(gtpc.S5UPGW, made.teid), QoS: qos, ChargingID: s.chargingID(),
	}
	if !s.settle(made, gx, own) {
		s.endGx(ctx, &session{key: made.key, gx: gx}) // a copy, because made must not change
		return nil, gtpc.Result{Cause: gtpc.RequestRejected}
	}
	cause := gtpc.RequestAccepted
	if m.PDN == gtpc.PDNv4v6 { // the pool has only IPv4 addresses
		cause = gtpc.NewPDNTypePreferred
	}
	return &gtpc.CreateSessionAnswer{
		Result: gtpc.Result{Cause: cause}, PGW: s.endpoint.Own(gtpc.S5PGW, made.teid),
		Address: gtpc.Address{Type: gtpc.PDNv4, V4: made.address}, AMBR: ambr,
		Bearers: []gtpc.Bearer{own}, Recovery: s.endpoint.Restart(),
	}, nil
}

// gxResult returns the GTP cause for an error from the PCRF.
func gxResult(err error) gtpc.Result {
	if _, refused := errors.AsType[diameter.Result](err); refused {
		return gtpc.Result{Cause: gtpc.RequestRejected}
	}
	return gtpc.Result{Cause: gtpc.PeerNotResponding}
}

// chargingID returns a new charging identity, which is never 0.
func (s *server) chargingID() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.charging = max(s.charging+1, 1)
	return s.charging
}

// modify handles a Modify Bearer Request (clause 7.2.7): another S-GW has taken
// over the session, or the same S-GW reports the UE's location.
func (s *server) modify(r *gtp.Request) {
	var m gtpc.ModifyBearer
	found, peer := s.get(r.TEID)
	if !s.procedures.Take(r, &m, found != nil, peer) {
		return
	}
	s.mu.Lock()
	if m.Sender.Addr().IsValid() {
		found.sgw = r.Peer(m.Sender)
	}
	answer := gtpc.Answer{Type: gtpc.ModifyBearerResponse, Linked: found.key.ebi, Recovery: s.endpoint.Restart()}
	failed := 0
	for i := range m.Bearers {
		b := gtpc.Bearer{EBI: m.Bearers[i].EBI, Result: gtpc.Result{Cause: gtpc.RequestAccepted}}
		if own := found.find(b.EBI); own != nil {
			own.S5SGW = m.Bearers[i].S5SGW
			b.ChargingID = own.ChargingID
		} else {
			b.Result.Cause = gtpc.ContextNotFound
			failed++
		}
		answer.Bearers = append(answer.Bearers, b)
	}
	peer = found.sgw.TEID
	s.mu.Unlock()
	answer.Result.Cause = gtp.Sum(len(m.Bearers), failed)
	s.procedures.Answer(r, peer, &answer, answer.Result.Cause)
}

// remove handles a Delete Session Request (clause 7.2.9.1). It tells the PCRF
// after the answer (TS 23.401 clause 5.3.8.2.1).
func (s *server) remove(ctx context.Context, r *gtp.Request) {
	var m gtpc.DeleteSession
	found, peer := s.get(r.TEID)
	if !s.procedures.Take(r, &m, found != nil, peer) {
		return
	}
	if m.Linked != 0 && m.Linked != found.key.ebi || !s.close(found) {
		s.procedures.Refuse(r, 0, gtpc.Result{Cause: gtpc.ContextNotFound})
		return
	}
	s.procedures.Answer(r, peer, &gtpc.Answer{Type: gtpc.DeleteSessionResponse, Result: gtpc.Result{Cause: gtpc.RequestAccepted}}, gtpc.RequestAccepted)
	s.endGx(ctx, found)
}

// endGx ends the Gx session of a removed session, if it has one.
func (s *server) endGx(ctx context.Context, gone *session) {
	if s.pcef == nil || gone.gx == "" {
		return
	}
	if err := s.pcef.End(ctx, gone.gx, gone.key.imsi.String(), s.nextRequest(gone)); err != nil {
		s.gxFailed.Inc()
	}
}

// peerRestarted removes the sessions of an S-GW that restarted.
func (s *server) peerRestarted(ctx context.Context, peer netip.Addr) {
	lost := s.restarted(peer)
	s.lost.Add(float64(len(lost)))
	if s.pcef == nil {
		return
	}
	s.tasks.Go(func() error {
		for _, gone := range lost {
			s.endGx(ctx, gone)
		}
		return nil
	})
}
