package mme

import (
	"context"
	"errors"

	"vitrine/reference/epc/gtp"
	"vitrine/wire/gtpc"
	"vitrine/wire/s1ap"
)

// RequestBearer sends a Bearer Resource Command. It returns when the S-GW has refused the
// command, or has sent the request that the command triggers. The method request handles
// that request.
func (s *s11) RequestBearer(ctx context.Context, of Session, r ResourceRequest) error {
	command := gtpc.BearerResource{Linked: of.Bearer, PTI: r.PTI, TAD: r.Aggregate, Bearer: r.Bearer, QoS: gtpc.QoS{
		QCI: r.QoS.QCI, MaxUp: uint64(r.QoS.MaxUp), MaxDown: uint64(r.QoS.MaxDown),
		GuaranteedUp: uint64(r.QoS.GuaranteedUp), GuaranteedDown: uint64(r.QoS.GuaranteedDown),
	}}
	var failure gtpc.BearerFailure
	refused, err := s.endpoint.DoCommand(ctx, of.Peer, of.Control, 0, &command, &failure)
	if err == nil && refused {
		err = failure.Result
	}
	return err
}

// createBearer handles a Create Bearer Request (TS 29.274 clause 7.2.3) of one bearer.
func (s *s11) createBearer(ctx context.Context, r *gtp.Request, of leg) *gtpc.Answer {
	var m gtpc.CreateBearer
	if err := m.Parse(&r.Message); err != nil {
		return gtpc.Refuse(r.Type, err)
	}
	if len(m.Bearers) != 1 {
		return gtpc.Refuse(r.Type, gtpc.Result{Cause: gtpc.ServiceNotSupported})
	}
	b := &m.Bearers[0]
	switch {
	case b.QoS.QCI == 0:
		return gtpc.Refuse(r.Type, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.BearerQoS})
	case len(b.TFT) == 0:
		return gtpc.Refuse(r.Type, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.BearerTFT})
	case !b.SGW.Addr().IsValid():
		return gtpc.Refuse(r.Type, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.FTEID})
	}
	made, err := s.makeBearer(ctx, of, m.PTI, b)
	result := changeResult(err)
	answered := gtpc.Bearer{EBI: made.ID, Result: result, SGW: b.SGW}
	if err == nil {
		answered.ENB = toEndpoint(made.Downlink)
	}
	return &gtpc.Answer{Type: gtpc.CreateBearerResponse, Result: result, Bearers: []gtpc.Bearer{answered}}
}

func (s *s11) makeBearer(ctx context.Context, of leg, pti uint8, b *gtpc.Bearer) (DedicatedBearer, error) {
	const kilo = 1000
	return s.bearers.CreateBearer(ctx, of.imsi, pti, DedicatedBearer{
		Uplink: toTunnel(b.SGW),
		QoS: s1ap.QoS{
			QCI: b.QoS.QCI, Priority: b.QoS.Priority, MayPreempt: b.QoS.MayPreempt, Preemptable: b.QoS.Preemptable,
			GBR: b.QoS.GuaranteedUp != 0 || b.QoS.GuaranteedDown != 0, MaxUp: b.QoS.MaxUp * kilo, MaxDown: b.QoS.MaxDown * kilo,
			GuaranteedUp: b.QoS.GuaranteedUp * kilo, GuaranteedDown: b.QoS.GuaranteedDown * kilo,
		},
	}, b.TFT)
}

// deleteBearer handles a Delete Bearer Request (clause 7.2.9.2) for dedicated bearers.
func (s *s11) deleteBearer(ctx context.Context, r *gtp.Request, of leg) *gtpc.Answer {
	var m gtpc.DeleteBearer
	if err := m.Parse(&r.Message); err != nil {
		return gtpc.Refuse(r.Type, err)
	}
	if m.Linked != 0 { // the default bearer: its removal would detach the UE
		return gtpc.Refuse(r.Type, gtpc.Result{Cause: gtpc.ServiceNotSupported})
	}
	answer := &gtpc.Answer{Type: gtpc.DeleteBearerResponse}
	failed := 0
	for _, ebi := range m.Bearers {
		result := changeResult(s.bearers.DeleteBearer(ctx, of.imsi, m.PTI, ebi))
		if !accepted(result) {
			failed++
		}
		answer.Bearers = append(answer.Bearers, gtpc.Bearer{EBI: ebi, Result: result})
	}
	if answer.Result.Cause = gtp.Sum(len(m.Bearers), failed); failed == len(m.Bearers) {
		answer.Result = answer.Bearers[0].Result
	}
	return answer
}

// changeResult returns the GTP cause for the error of a change (TS 29.274 table 7.2.4-1).
func changeResult(err error) gtpc.Result {
	cause := gtpc.RequestRejected
	switch {
	case err == nil:
		cause = gtpc.RequestAccepted
	case errors.Is(err, errNoContext):
		cause = gtpc.ContextNotFound
	case errors.Is(err, errIdentity), errors.Is(err, errRadio):
		cause = gtpc.NoResourcesAvailable
	case errors.Is(err, errPaged):
		cause = gtpc.UnableToPage
	case errors.Is(err, errSilent):
		cause = gtpc.UENotResponding
	case errors.Is(err, errRefused):
		cause = gtpc.UERefuses
	}
	return gtpc.Result{Cause: cause}
}
