package diameter

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"

	"vitrine/internal/truth"
)

// A PCEF is the client side of Gx, in a P-GW (TS 29.212 clause 4.5). Run keeps its
// connection to the PCRF. Its methods return the same errors as an MME's.
type PCEF struct {
	*client
	changed func(ctx context.Context, session string, c Change) error

	room  chan struct{} // a token for each change in progress
	tasks sync.WaitGroup
}

// maxChanges limits the PCRF's changes that are in progress. Further ones are refused
// with DIAMETER_TOO_BUSY.
const maxChanges = 1 << 10

// NewPCEF returns a PCEF. The caller runs Run. changed makes a change that the PCRF
// requests (Re-Auth-Request). It runs in its own goroutine, until the context of Run
// is done. Its error is a Result; any other error is answered with
// DIAMETER_UNABLE_TO_COMPLY.
func NewPCEF(c ClientConfig, changed func(ctx context.Context, session string, c Change) error) *PCEF {
	p := &PCEF{client: newClient(c, gxApplication, "gx"), changed: changed, room: make(chan struct{}, maxChanges)}
	p.late = p.dismiss
	p.state = uint32(time.Now().Unix()) // this process knows no session of an earlier one (RFC 6733 clause 8.16)
	return p
}

// Run connects to the PCRF, and reconnects after each loss of the connection, until
// ctx is done.
func (p *PCEF) Run(ctx context.Context) error {
	defer p.tasks.Wait()
	p.handlers[reAuth] = func(conn diam.Conn, request *diam.Message) { p.reauthorize(ctx, conn, request) }
	return p.run(ctx)
}

// reauthorize handles a Re-Auth-Request (clause 4.5.12). The answer waits until the
// bearers have changed (TS 23.401 clause 5.4.1 step 12).
func (p *PCEF) reauthorize(ctx context.Context, conn diam.Conn, request *diam.Message) {
	log := p.config.Messages
	of := log.Begin()
	logReceived(log, conn, request, of)
	answer := func(result Result) { reply(conn, request, p.config.Host, p.realm, log, of, result) }
	var change Change
	session, ok := set(request.AVP).text(avp.SessionID)
	err := change.parse(request.AVP)
	if !ok || err != nil {
		answer(MissingAVP)
		return
	}
	select {
	case p.room <- struct{}{}:
	default:
		answer(TooBusy)
		return
	}
	p.tasks.Go(func() {
		defer func() { <-p.room }()
		answer(resultOf(p.changed(truth.With(ctx, of), session, change)))
	})
}

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

// dismiss ends a session that the PCRF has admitted after Begin stopped waiting. It does not
// wait for the answer, so that a slow PCRF cannot fill the table of waiting requests.
func (p *PCEF) dismiss(conn diam.Conn, answer *diam.Message) {
	s := set(answer.AVP)
	kind, _ := s.number(avp.CCRequestType)
	session, ok := s.text(avp.SessionID)
	if answer.Header.CommandCode != creditControl || kind != initialRequest || !ok || s.result() != nil {
		return
	}
	p.mu.Lock()
	p.next++
	id := p.next
	p.mu.Unlock()
	m := p.request(creditControl, id, session, terminationAVPs("", 1))
	p.requests.WithLabelValues(strconv.Itoa(creditControl), resultLabel(0)).Inc()
	if _, err := m.WriteTo(conn); err == nil { // run notices if the connection is lost
		logSent(p.config.Messages, conn, m, p.config.Messages.Begin())
	}
}

// Update asks the PCRF to change a session's rules (CC-Request-Type UPDATE_REQUEST).
// The caller numbers the requests of a session from 1.
func (p *PCEF) Update(ctx context.Context, session string, requestNumber uint32, r ResourceRequest) (Change, error) {
	answer, err := p.call(ctx, creditControl, session, r.avps(requestNumber))
	if err != nil {
		return Change{}, err
	}
	var c Change
	return c, c.parse(answer)
}

// End ends a Gx session (CC-Request-Type TERMINATION_REQUEST).
func (p *PCEF) End(ctx context.Context, session, imsi string, requestNumber uint32) error {
	_, err := p.call(ctx, creditControl, session, terminationAVPs(imsi, requestNumber))
	return err
}
