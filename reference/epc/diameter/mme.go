package diameter

import (
	"context"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"

	"vitrine/reference/epc/aka"
	"vitrine/wire/identity"
)

// An MME is the client side of S6a (TS 29.272 clause 5). Run keeps its
// connection to the HSS.
//
// The other methods block until the HSS answers. Their errors are a Result if
// the HSS refuses the request, otherwise ErrUnreachable, ErrTimeout, ErrAnswer
// or the context's error.
type MME struct{ *client }

// An MMEConfig configures an MME.
type MMEConfig struct {
	ClientConfig
	// Cancelled is called when the HSS cancels the location of a subscriber,
	// because another MME serves the subscriber now. It must not block.
	Cancelled func(imsi string)
}

// NewMME returns an MME. The caller runs Run.
func NewMME(c MMEConfig) *MME {
	m := &MME{newClient(c.ClientConfig, s6aApplication, "s6a")}
	m.handlers[cancelLocation] = func(conn diam.Conn, request *diam.Message) {
		of := c.Messages.Begin()
		logReceived(c.Messages, conn, request, of)
		var imsi string
		err := subscriber(request.AVP, &imsi)
		if err == nil {
			c.Cancelled(imsi)
		}
		reply(conn, request, c.Host, m.realm, c.Messages, of, resultOf(err))
	}
	return m
}

// Run connects to the HSS, and reconnects after each loss of the connection,
// until ctx is done.
func (m *MME) Run(ctx context.Context) error { return m.run(ctx) }

// Authenticate returns an authentication vector (Authentication-Information,
// clause 5.2.3.1). plmn is the MME's network. resync is nil unless the USIM
// answered the last challenge with AUTS.
func (m *MME) Authenticate(ctx context.Context, imsi string, plmn identity.PLMN, resync *Resync) (aka.Vector, error) {
	request := AuthenticationRequest{IMSI: imsi, PLMN: plmn, Vectors: 1, Resync: resync}
	answer, err := m.call(ctx, authenticationInformation, m.newSession(), request.avps())
	if err != nil {
		return aka.Vector{}, err
	}
	return parseVector(answer)
}

// UpdateLocation registers this MME as the subscriber's MME, and returns the
// subscription (Update-Location, clause 5.2.1.1).
func (m *MME) UpdateLocation(ctx context.Context, imsi string, plmn identity.PLMN) (Subscription, error) {
	request := LocationRequest{IMSI: imsi, PLMN: plmn, RAT: EUTRAN}
	answer, err := m.call(ctx, updateLocation, m.newSession(), request.avps())
	if err != nil {
		return Subscription{}, err
	}
	var s Subscription
	if err := s.parse(answer); err != nil {
		return Subscription{}, err
	}
	return s, nil
}

// Purge tells the HSS that this MME has deleted the subscriber (Purge-UE, clause
// 5.2.1.3).
func (m *MME) Purge(ctx context.Context, imsi string) error {
	_, err := m.call(ctx, purgeUE, m.newSession(), []*diam.AVP{base(avp.UserName, datatype.UTF8String(imsi))})
	return err
}
