package mme

import (
	"context"
	"errors"
	"net/netip"
	"sync"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// s11 is the Gateway over GTPv2-C: one S-GW, and one P-GW behind it.
type s11 struct {
	endpoint *gtp.Endpoint
	sgw      netip.AddrPort
	pgw      gtpc.Endpoint

	bearers *MME                                               // creates and deletes dedicated bearers
	page    func(context.Context, identity.Digits) bool        // pages a subscriber; false: there is no such subscriber
	find    func(ctx context.Context, teid uint32) (leg, bool) // finds a session in the store; nil: sessions are in teids

	mu    sync.Mutex
	teids *gtp.Table[leg] // by this MME's TEID
}

// A leg is a session on S11.
type leg struct {
	imsi identity.Digits
	sgw  uint32 // S-GW's TEID; 0: not known yet
}

var errTEIDs = errors.New("mme: all TEIDs for S11 are taken")

// errBearer is the error for an S-GW that accepts a session but gives no bearer.
var errBearer = errors.New("mme: the S-GW gave no bearer")

// CreateSession sends a Create Session Request.
func (s *s11) CreateSession(ctx context.Context, r SessionRequest) (Session, error) {
	if r.TEID != 0 {
		return s.create(ctx, r, r.TEID)
	}
	s.mu.Lock()
	teid, ok := s.teids.Add(r.IMSI.Bytes(), leg{imsi: r.IMSI})
	s.mu.Unlock()
	if !ok {
		return Session{}, errTEIDs
	}
	created, err := s.create(ctx, r, teid)
	if err != nil {
		s.forget(teid)
		return created, err
	}
	s.mu.Lock()
	s.teids.Set(teid, leg{r.IMSI, created.Control})
	s.mu.Unlock()
	return created, nil
}

func (s *s11) create(ctx context.Context, r SessionRequest, teid uint32) (Session, error) {
	of := &r.Subscription
	request := gtpc.CreateSession{
		IMSI: r.IMSI, Location: gtpc.Location{TAI: r.TAI, ECGI: r.ECGI, HasTAI: true, HasECGI: true}, Serving: r.TAI.PLMN, RAT: gtpc.RATEUTRAN,
		Sender: s.endpoint.Own(gtpc.S11MME, teid), PGW: s.pgw, APN: nas.AppendAPN(nil, of.APN), PDN: gtpc.PDNv4,
		Address: gtpc.Address{Type: gtpc.PDNv4}, AMBR: gtpc.Rates{Up: uint32(of.APNUp / 1000), Down: uint32(of.APNDown / 1000)},
		Bearers:  []gtpc.Bearer{{EBI: r.Bearer, QoS: gtpc.QoS{QCI: of.QCI, Priority: of.Priority, Preemptable: true}}},
		Recovery: s.endpoint.Restart(),
	}
	var answer gtpc.CreateSessionAnswer
	if err := s.endpoint.Do(ctx, s.sgw, 0, &request, &answer); err != nil {
		return Session{}, err
	}
	if !accepted(answer.Result) && answer.Result.Cause != gtpc.NewPDNTypePreferred {
		return Session{}, answer.Result
	}
	if len(answer.Bearers) != 1 || answer.Bearers[0].EBI != r.Bearer || !answer.Bearers[0].SGW.Addr().IsValid() || !answer.Address.V4.IsValid() {
		return Session{}, errBearer
	}
	return Session{
		Peer: netip.AddrPortFrom(s.endpoint.Reach(answer.Sender).Addr(), s.sgw.Port()), Control: answer.Sender.TEID, Own: teid,
		Uplink: toTunnel(answer.Bearers[0].SGW), Address: answer.Address.V4, Bearer: r.Bearer,
	}, nil
}

// toTunnel returns the tunnel of an F-TEID.
func toTunnel(f gtpc.Endpoint) s1ap.Tunnel {
	return s1ap.Tunnel{V4: f.V4, V6: f.V6, TEID: f.TEID}
}

// toEndpoint returns the F-TEID of a tunnel.
func toEndpoint(t s1ap.Tunnel) gtpc.Endpoint {
	return gtpc.Endpoint{V4: t.V4, V6: t.V6, TEID: t.TEID}
}

// ModifyBearer sends a Modify Bearer Request. It reports dedicated bearers without an
// eNodeB tunnel as removed, because the eNodeB did not admit them.
func (s *s11) ModifyBearer(ctx context.Context, of Session, enodeb s1ap.Tunnel) error {
	var request gtpc.ModifyBearer
	if end := toEndpoint(enodeb); end.Addr().IsValid() {
		request.Bearers = []gtpc.Bearer{{EBI: of.Bearer, ENB: end}}
		for _, b := range of.Dedicated {
			own := gtpc.Bearer{EBI: b.ID, ENB: toEndpoint(b.Downlink)}
			if own.ENB.Addr().IsValid() {
				request.Bearers = append(request.Bearers, own)
			} else {
				request.Removed = append(request.Removed, own)
			}
		}
	}
	if s.find != nil { // the S-GW may still have another MME's address
		request.Sender = s.endpoint.Own(gtpc.S11MME, of.Own)
	}
	return s.ask(ctx, of, &request)
}

// ReleaseAccessBearers sends a Release Access Bearers Request.
func (s *s11) ReleaseAccessBearers(ctx context.Context, of Session) error {
	return s.ask(ctx, of, &gtpc.ReleaseAccessBearers{})
}

// DeleteSession sends a Delete Session Request. The S-GW forwards it to the P-GW.
func (s *s11) DeleteSession(ctx context.Context, of Session) error {
	defer s.forget(of.Own)
	return s.ask(ctx, of, &gtpc.DeleteSession{Linked: of.Bearer, Flags: gtpc.Operation})
}

// ask sends a request about a session.
func (s *s11) ask(ctx context.Context, of Session, request gtp.Message) error {
	var answer gtpc.Answer
	if err := s.endpoint.Do(ctx, of.Peer, of.Control, request, &answer); err != nil {
		return err
	}
	if !accepted(answer.Result) {
		return answer.Result
	}
	return nil
}

// leg returns the session with a TEID.
func (s *s11) leg(ctx context.Context, teid uint32) (leg, bool) {
	if s.find != nil {
		return s.find(ctx, teid)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.teids.Get(teid)
}

// esmCause returns the ESM cause for a UE whose request the gateway refused (TS 24.301
// clause 6.5.1.4).
func esmCause(err error) nas.ESMCause {
	var refused gtpc.Result
	if !errors.As(err, &refused) {
		return nas.ESMCauseNetworkFailure
	}
	switch refused.Cause {
	case gtpc.AddressesOccupied, gtpc.NoResourcesAvailable, gtpc.EntityCongestion:
		return nas.ESMCauseResources
	case gtpc.UnknownAPN:
		return nas.ESMCauseUnknownAPN
	case gtpc.RequestRejected:
		return nas.ESMCauseGateway
	}
	return nas.ESMCauseNetworkFailure
}

// isLost reports whether the S-GW no longer has the session, such as after its restart.
func isLost(err error) bool {
	var refused gtpc.Result
	return errors.As(err, &refused) && refused.Cause == gtpc.ContextNotFound
}

func accepted(r gtpc.Result) bool { return r.Cause == gtpc.RequestAccepted }

func (s *s11) forget(teid uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.teids.Remove(teid)
}

// request handles a request from the S-GW. A Downlink Data Notification pages the UE.
func (s *s11) request(ctx context.Context, r *gtp.Request) {
	kind, ok := r.Type.Response()
	if !ok { // a message of this type has no response
		return
	}
	of, ok := s.leg(ctx, r.TEID)
	answer := &gtpc.Answer{Type: kind, Result: gtpc.Result{Cause: gtpc.RequestAccepted}}
	switch {
	case !ok:
		answer.Result.Cause = gtpc.ContextNotFound
	case r.Type == gtpc.CreateBearerRequest:
		answer = s.createBearer(ctx, r, of)
	case r.Type == gtpc.DeleteBearerRequest:
		answer = s.deleteBearer(ctx, r, of)
	case r.Type != gtpc.DownlinkData:
		answer.Result.Cause = gtpc.ServiceNotSupported
	case !s.page(ctx, of.imsi):
		answer.Result.Cause = gtpc.UnableToPage
	}
	r.Answer(of.sgw, answer)
}
