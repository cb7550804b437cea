package mme_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/ue"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// A slowGateway holds the requests that release or ask for bearers or delete sessions until
// the gate is closed.
type slowGateway struct {
	mme.Gateway
	held     chan struct{} // a token for each request that waits
	gate     chan struct{}
	modifies atomic.Bool // hold the requests that modify bearers too
}

func (g *slowGateway) wait(ctx context.Context) {
	g.held <- struct{}{}
	select {
	case <-g.gate:
	case <-ctx.Done():
	}
}

func (g *slowGateway) ModifyBearer(ctx context.Context, s mme.Session, enodeb s1ap.Tunnel) error {
	if g.modifies.Load() {
		g.wait(ctx)
	}
	return g.Gateway.ModifyBearer(ctx, s, enodeb)
}

func (g *slowGateway) ReleaseAccessBearers(ctx context.Context, s mme.Session) error {
	g.wait(ctx)
	return g.Gateway.ReleaseAccessBearers(ctx, s)
}

func (g *slowGateway) RequestBearer(ctx context.Context, s mme.Session, r mme.ResourceRequest) error {
	g.wait(ctx)
	return g.Gateway.RequestBearer(ctx, s, r)
}

func (g *slowGateway) DeleteSession(ctx context.Context, s mme.Session) error {
	g.wait(ctx)
	return g.Gateway.DeleteSession(ctx, s)
}

// startSlow starts an MME with a slow gateway.
func startSlow(t *testing.T) (*bed, *slowGateway) {
	t.Helper()
	g := &slowGateway{held: make(chan struct{}, 16), gate: make(chan struct{})}
	return start(t, func(c *mme.Config) {
		g.Gateway, c.Gateway, c.CallTime = c.Gateway, g, patience
		c.Timers.NAS = time.Hour // a UE that answers late is not asked again
	}), g
}

// TestRequestsOfABusyUEAreRefusedForNow requests service and an update while the
// gateway releases the UE's bearer. The UE keeps its identity, and is served later.
func TestRequestsOfABusyUEAreRefusedForNow(t *testing.T) {
	b, g := startSlow(t)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	ids := p.ids
	e.send(e.AppendReleaseRequest(nil, ids, s1ap.CauseUserInactivity))
	<-g.held
	p.begin(p.AppendService(nil))
	p.rejected(nas.CauseCongestion)
	p.Connect()
	p.begin(p.AppendUpdate(nil, false))
	p.rejected(nas.CauseCongestion)
	if b.ended("service-request", "congestion") != 1 || b.ended("tracking-area-update", "congestion") != 1 {
		t.Error("the refusals were not counted")
	}
	close(g.gate)
	p.ids = ids
	p.hangUp()
	b.until("the UE is idle", func() bool { return b.ended("release", "success") == 1 })
	p.serve()
}

// TestBusyUEIsDetached detaches while the gateway releases the UE's bearer.
func TestBusyUEIsDetached(t *testing.T) {
	b, g := startSlow(t)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	ids := p.ids
	e.send(e.AppendReleaseRequest(nil, ids, s1ap.CauseUserInactivity))
	<-g.held
	p.Connect()
	p.begin(p.AppendDetach(nil, false))
	if m := e.expect(s1ap.Initiating, s1ap.UEContextRelease); m.IDs != ids {
		t.Errorf("the MME released %+v, want the old connection %+v", m.IDs, ids)
	}
	e.send(e.AppendReleased(nil, ids))
	p.download(ue.Detached)
	p.hangUp()
	close(g.gate)
	b.until("the UE is gone", func() bool {
		return b.count("contexts") == 0 && b.gateway.Len() == 0 && b.hss.Located() == 0
	})
}

// TestSubscriberThatAttachesAgainIsNotPurged attaches while the gateway deletes the
// session of the detached context, whose location is purged after that.
func TestSubscriberThatAttachesAgainIsNotPurged(t *testing.T) {
	b, g := startSlow(t)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	p.uplink(p.AppendDetach(nil, false))
	p.download(ue.Detached)
	p.hangUp()
	<-g.held
	p.Forget()
	p.Connect()
	p.begin(p.AppendAttach(nil))
	p.answerChallenge()
	complete := p.take(e.expect(s1ap.Initiating, s1ap.InitialContextSetup), ue.Accepted)
	e.send(e.AppendContextSetUp(nil, p.ids, e.message.Bearer))
	p.uplink(complete)
	b.until("the UE has attached again", func() bool { return b.ended("attach", "success") == 2 })
	close(g.gate)
	b.until("the old context is gone", func() bool { return b.count("contexts") == 1 })
	if b.hss.Located() != 1 || b.gateway.Len() != 1 {
		t.Errorf("got %d registered subscribers, %d sessions, want 1 each", b.hss.Located(), b.gateway.Len())
	}
}

// TestUpdateWaitsForTheGateway hands a UE over, which updates its tracking area before
// the gateway has the target's tunnel.
func TestUpdateWaitsForTheGateway(t *testing.T) {
	b, g := startSlow(t)
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	ids := handOver(t, p, other)
	g.modifies.Store(true)
	other.send(other.AppendHandoverNotify(nil, ids))
	<-g.held
	p.at, p.ids = other, ids
	before := b.count("messages_received_total")
	p.uplink(p.AppendUpdate(nil, false))
	b.until("the MME has the update", func() bool { return b.count("messages_received_total") > before })
	if b.ended("handover", "success")+b.ended("tracking-area-update", "success") != 0 {
		t.Error("a procedure ended before the gateway answered")
	}
	close(g.gate)
	p.download(ue.Updated)
	if b.ended("handover", "success") != 1 || b.ended("tracking-area-update", "success") != 1 {
		t.Error("the handover and the update were not counted")
	}
}

// TestPathSwitchWaitsForTheGateway moves a UE by X2 while the gateway has its request for a bearer.
func TestPathSwitchWaitsForTheGateway(t *testing.T) {
	b, g := startSlow(t)
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	b.until("the UE is attached", func() bool { return b.ended("attach", "success") == 1 })
	p.uplink(p.AppendAllocation(nil, nas.QoS{QCI: 1}, 17, [4]byte{192, 0, 2, 1}, 5004))
	<-g.held
	ids := p.ids
	ids.ENB = 201
	before := b.count("messages_received_total")
	other.send(other.AppendPathSwitch(nil, ids, p.Bearer))
	b.until("the MME has the path switch", func() bool { return b.count("messages_received_total") > before })
	close(g.gate)
	p.download(ue.Refused)
	other.expect(s1ap.Successful, s1ap.PathSwitchRequest)
	p.at, p.ids = other, ids
	p.reached(other)
}

// TestPathSwitchThatWaitedInVainIsRefused moves a UE on by X2 while the gateway has its handover, which then fails. The
// eNodeB must get an answer to its Path Switch Request.
func TestPathSwitchThatWaitedInVainIsRefused(t *testing.T) {
	b, g := startSlow(t)
	e, other, last := b.enodeb(1), b.enodeb(2), b.enodeb(3)
	p := e.phone(1)
	p.attach()
	ids := handOver(t, p, other)
	g.modifies.Store(true)
	other.send(other.AppendHandoverNotify(nil, ids))
	<-g.held
	before := b.count("messages_received_total")
	ids.ENB = 301
	last.send(last.AppendPathSwitch(nil, ids, p.Bearer))
	b.until("the MME has the path switch", func() bool { return b.count("messages_received_total") > before })
	if err := b.gateway.DeleteSession(t.Context(), mme.Session{Control: 1}); err != nil {
		t.Fatal(err)
	}
	close(g.gate)
	if m := last.expect(s1ap.Unsuccessful, s1ap.PathSwitchRequest); m.IDs != ids || m.Cause != s1ap.CauseUnknownMMEUEID {
		t.Errorf("path switch after a handover that failed: got %+v, cause %+v", m.IDs, m.Cause)
	}
	other.expect(s1ap.Initiating, s1ap.UEContextRelease)
}

// TestReleaseOfALostAssociationIsCountedOnce ends the association of a UE while the gateway
// releases its bearer.
func TestReleaseOfALostAssociationIsCountedOnce(t *testing.T) {
	b, g := startSlow(t)
	e, other := b.enodeb(1), b.enodeb(2)
	half := e.phone(2)
	half.begin(half.AppendAttach(nil))
	half.download(ue.Asked)
	p := e.phone(1)
	p.attach()
	e.send(e.AppendReleaseRequest(nil, p.ids, s1ap.CauseUserInactivity))
	<-g.held
	e.conn.Close()
	b.until("the half attached UE, which comes last, is gone", func() bool { return b.count("contexts") == 1 })
	close(g.gate)
	b.until("the UE is idle", func() bool { return b.ended("release", "success") == 1 })
	p.at = other
	p.serve()
	p.idle()
	if got := b.ended("release", "success"); got != 2 {
		t.Errorf("counted %d releases, want 2", got)
	}
}
