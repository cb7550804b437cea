package diameter

import (
	"context"
	"net"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/prometheus/client_golang/prometheus"
)

// Rules decide about sessions. An error is a Result, or another error for
// DIAMETER_UNABLE_TO_COMPLY.
type Rules interface {
	Begin(session string, r GxRequest) (Policy, error)
	End(session string) error
}

// A PCRF is the server of Gx in a PCRF.
type PCRF struct{ *server }

// NewPCRF returns a PCRF.
func NewPCRF(host string, rules Rules, registry prometheus.Registerer) *PCRF {
	p := &PCRF{newServer(host, gxApplication, registry, "pcrf")}
	p.handle(creditControl, "credit-control", func(_ diam.Conn, _ string, s set) ([]*diam.AVP, error) {
		session, ok := s.text(avp.SessionID)
		if !ok {
			return nil, MissingAVP
		}
		switch kind, _ := s.number(avp.CCRequestType); kind {
		case initialRequest:
			var r GxRequest
			if err := r.parse(s); err != nil {
				return nil, err
			}
			policy, err := rules.Begin(session, r)
			if err != nil {
				return nil, err
			}
			return policy.avps(), nil
		case terminationRequest:
			return nil, rules.End(session)
		}
		return nil, wrong(s, avp.CCRequestType)
	})
	return p
}

// Serve serves a listener until ctx is done.
func (p *PCRF) Serve(ctx context.Context, l net.Listener) error { return p.serve(ctx, l) }
