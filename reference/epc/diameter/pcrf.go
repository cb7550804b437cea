package diameter

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"
	"github.com/prometheus/client_golang/prometheus"
)

// Rules make the PCRF's decisions for sessions. An error is a Result; any other error
// is answered with DIAMETER_UNABLE_TO_COMPLY.
type Rules interface {
	// Begin admits a session. pgw is the Diameter identity of the session's P-GW.
	Begin(session, pgw string, r GxRequest) (Policy, error)
	// Update decides how a UE's request for bearer resources changes the session's
	// rules.
	Update(session string, r ResourceRequest) (Change, error)
	End(session string) error
	// Restarted is called when a P-GW has restarted, and has lost its sessions.
	Restarted(pgw string)
}

// A PCRF is the server side of Gx.
type PCRF struct {
	*server
	changes *prometheus.CounterVec
	waiting map[uint32]chan *diam.Message // under the server's mu
}

// changeTime limits the time of a change. It includes the time to page a UE.
const changeTime = 30 * time.Second

// NewPCRF returns a PCRF.
func NewPCRF(host string, rules Rules, registry prometheus.Registerer) *PCRF {
	p := &PCRF{
		server: newServer(host, gxApplication, registry, "pcrf"), waiting: map[uint32]chan *diam.Message{},
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pcrf_changes_total", Help: "Re-Auth-Requests, by result. A result of 0 is no answer.",
		}, []string{"result"}),
	}
	registry.MustRegister(p.changes)
	p.restarted = rules.Restarted
	p.handle(creditControl, "credit-control", func(origin string, s set) ([]*diam.AVP, error) {
		session, ok := s.text(avp.SessionID)
		if !ok {
			return nil, MissingAVP
		}
		return decide(rules, session, origin, s)
	})
	p.machine.HandleIdx(diam.CommandIndex{AppID: gxApplication, Code: reAuth}, diam.HandlerFunc(p.changed))
	return p
}

// decide returns the answer to a Credit-Control-Request.
func decide(rules Rules, session, pgw string, s set) ([]*diam.AVP, error) {
	switch kind, _ := s.number(avp.CCRequestType); kind {
	case initialRequest:
		var r GxRequest
		if err := r.parse(s); err != nil {
			return nil, err
		}
		policy, err := rules.Begin(session, pgw, r)
		if err != nil {
			return nil, err
		}
		return policy.avps(), nil
	case updateRequest:
		var r ResourceRequest
		if err := r.parse(s); err != nil {
			return nil, err
		}
		change, err := rules.Update(session, r)
		if err != nil {
			return nil, err
		}
		return change.avps(), nil
	case terminationRequest:
		return nil, rules.End(session)
	}
	return nil, wrong(s, avp.CCRequestType)
}

// Change makes a P-GW change the rules of a session (Re-Auth-Request, TS 29.212 clause
// 4.5.12), and waits for the result. The error is a Result if the P-GW refuses;
// otherwise it is ErrUnreachable, ErrTimeout or the context's error.
func (p *PCRF) Change(ctx context.Context, session, pgw string, c Change) error {
	err := p.change(ctx, session, pgw, c)
	code := uint32(0)
	if err == nil {
		code = Success.Code()
	} else if refused, ok := errors.AsType[Result](err); ok {
		code = refused.Code()
	}
	p.changes.WithLabelValues(resultLabel(code)).Inc()
	return err
}

func (p *PCRF) change(ctx context.Context, session, pgw string, c Change) error {
	p.mu.Lock()
	conn := p.peers[pgw].conn
	if conn == nil || len(p.waiting) >= maxWaiting {
		p.mu.Unlock()
		return ErrUnreachable
	}
	p.next++
	id, wait := p.next, make(chan *diam.Message, 1)
	p.waiting[id] = wait
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.waiting, id)
		p.mu.Unlock()
	}()
	m := newRequest(reAuth, gxApplication, id, append([]*diam.AVP{
		base(avp.SessionID, datatype.UTF8String(session)),
		base(avp.AuthApplicationID, number(uint32(gxApplication))),
		base(avp.OriginHost, datatype.DiameterIdentity(p.host)),
		base(avp.OriginRealm, datatype.DiameterIdentity(p.realm)),
		base(avp.DestinationRealm, datatype.DiameterIdentity(p.realm)),
		base(avp.DestinationHost, datatype.DiameterIdentity(pgw)),
		base(avp.ReAuthRequestType, datatype.Enumerated(authorizeOnly)),
	}, c.avps()...)...)
	if _, err := m.WriteTo(conn); err != nil {
		return ErrUnreachable
	}
	of := p.Messages.Begin()
	logBegun(p.Messages, conn, m, of, c.event())
	timer := time.NewTimer(changeTime)
	defer timer.Stop()
	select {
	case answer := <-wait:
		logReceived(p.Messages, conn, answer, of)
		return set(answer.AVP).result()
	case <-timer.C:
		return ErrTimeout
	case <-ctx.Done():
		return ctx.Err()
	}
}

// event returns the type of the network event that a change begins.
func (c *Change) event() string {
	if len(c.Install) > 0 {
		return "BEARER-CRT"
	}
	return "BEARER-DEL"
}

// changed passes a Re-Auth-Answer to the change that waits for it.
func (p *PCRF) changed(_ diam.Conn, m *diam.Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait, ok := p.waiting[m.Header.HopByHopID]; ok {
		delete(p.waiting, m.Header.HopByHopID)
		wait <- m
	}
}

// Serve serves a listener until ctx is done.
func (p *PCRF) Serve(ctx context.Context, l net.Listener) error { return p.serve(ctx, l) }
