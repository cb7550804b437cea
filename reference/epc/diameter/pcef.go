package diameter

import "context"

// A PCEF is the client of Gx in a P-GW (TS 29.212 clause 4.5). Run keeps its
// connection to the PCRF. The errors of its methods are those of an MME's.
type PCEF struct{ *client }

// NewPCEF returns a PCEF. The caller runs Run.
func NewPCEF(c ClientConfig) *PCEF { return &PCEF{newClient(c, gxApplication, "gx")} }

// Run connects to the PCRF, again whenever the connection is lost, until ctx is
// done.
func (p *PCEF) Run(ctx context.Context) error { return p.run(ctx) }

// Connected reports whether there is a connection to the PCRF.
func (p *PCEF) Connected() bool { return p.isConnected() }

// Begin asks for the policy of a session (CC-Request-Type INITIAL_REQUEST). It
// returns the identity of the Gx session.
func (p *PCEF) Begin(ctx context.Context, r GxRequest) (session string, policy Policy, err error) {
	session = p.newSession()
	answer, err := p.call(ctx, creditControl, session, r.avps())
	if err == nil {
		err = policy.parse(answer)
	}
	if err != nil {
		return "", Policy{}, err
	}
	return session, policy, nil
}

// End ends a Gx session (CC-Request-Type TERMINATION_REQUEST).
func (p *PCEF) End(ctx context.Context, session, imsi string) error {
	_, err := p.call(ctx, creditControl, session, terminationAVPs(imsi))
	return err
}
