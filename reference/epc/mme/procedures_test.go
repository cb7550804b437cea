package mme_test

import (
	"bytes"
	"testing"
	"time"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/ue"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

func TestServiceRequestSetsUpTheBearer(t *testing.T) {
	for _, workers := range []int{1, 3} {
		b := start(t, func(c *mme.Config) { c.Workers, c.Cipher = workers, aka.AES })
		e, other := b.enodeb(1), b.enodeb(2)
		p := e.phone(1)
		p.attach()
		for n := range 40 { // more than the short sequence number counts
			p.idle()
			if of := b.gateway.Sessions(p.IMSI); len(of) != 1 || of[0].ENodeB.V4.IsValid() {
				t.Fatalf("sessions at the gateway in idle mode: got %+v", of)
			}
			p.at = []*base{e, other}[n%2]
			p.serve()
		}
		p.uplink(p.AppendDetach(nil, false))
		p.download(ue.Detached)
		p.hangUp()
		b.until("40 services are counted", func() bool { return b.ended("service-request", "success") == 40 })
	}
}

// TestReleaseRequestWaitsForTheGateway asks for the release before the gateway has
// the bearer.
func TestReleaseRequestWaitsForTheGateway(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	p.idle()
	for range 20 {
		p.begin(p.AppendService(nil))
		m := e.expect(s1ap.Initiating, s1ap.InitialContextSetup)
		p.ids.MME = m.IDs.MME
		p.Serve()
		e.send(e.AppendContextSetUp(nil, p.ids, m.Bearer))
		p.idle()
	}
	if got := b.ended("service-request", "success"); got != 20 {
		t.Errorf("%d service requests succeeded, want 20", got)
	}
}

func TestServiceRequestWithoutProofIsRejected(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	p.idle()
	wrong := p.AppendService(nil)
	wrong[3] ^= 1
	p.begin(wrong)
	m := e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
	var r nas.Reject
	if err := r.Parse(m.NAS); err != nil || r.Type != nas.ServiceRejectType || r.Cause != nas.CauseIdentityUnderived {
		t.Errorf("got answer %+v, error %v", r, err)
	}
	p.hangUp()
	p.serve() // the UE itself is as before

	p.GUTI.TMSI++
	p.begin(p.AppendService(nil))
	p.ids.MME = 0
	p.rejected(nas.CauseIdentityUnderived)
	if b.ended("service-request", "unknown-identity") != 2 {
		t.Error("the rejections were not counted")
	}
}

func TestTrackingAreaUpdate(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Cipher = aka.AES })
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	p.uplink(p.AppendUpdate(nil, false)) // connected
	p.download(ue.Updated)
	p.idle()

	p.at = other
	p.Connect()
	p.begin(p.AppendUpdate(nil, false))
	p.ids.MME = 0
	p.download(ue.Updated)
	p.hangUp()
	b.until("the UE is idle", func() bool { return b.ended("release", "success") == 2 })

	p.Connect()
	p.begin(p.AppendUpdate(nil, true))
	p.ids.MME = 0
	p.take(other.expect(s1ap.Initiating, s1ap.InitialContextSetup), ue.Updated)
	other.send(other.AppendContextSetUp(nil, p.ids, 5))
	p.reached(other)

	stranger := e.phone(2)
	stranger.attach()
	stranger.idle()
	stranger.GUTI.TMSI++
	stranger.Connect()
	stranger.begin(stranger.AppendUpdate(nil, false))
	stranger.ids.MME = 0
	stranger.rejected(nas.CauseIdentityUnderived)
	if b.ended("tracking-area-update", "success") != 3 {
		t.Errorf("%d tracking area updates succeeded, want 3", b.ended("tracking-area-update", "success"))
	}
}

// TestUpdateOnANewConnectionReleasesTheBearer updates the tracking area of a UE whose old
// connection the MME has not released.
func TestUpdateOnANewConnectionReleasesTheBearer(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	b.until("the UE is attached", func() bool { return b.ended("attach", "success") == 1 })
	old := p.ids
	p.Connect()
	p.begin(p.AppendUpdate(nil, false))
	if m := e.expect(s1ap.Initiating, s1ap.UEContextRelease); m.IDs != old {
		t.Errorf("the MME released %+v, want the old connection %+v", m.IDs, old)
	}
	e.send(e.AppendReleased(nil, old))
	p.download(ue.Updated)
	p.hangUp()
	if of := b.gateway.Sessions(p.IMSI); len(of) != 1 || of[0].ENodeB.V4.IsValid() {
		t.Errorf("sessions at the gateway in idle mode: got %+v", of)
	}
}

func TestDetachFromIdle(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	p.idle()
	for _, off := range []bool{true, false} {
		forged := nas.DetachRequest{Detach: 1, SwitchOff: off, KSI: 0, Identity: nas.Identity{Kind: nas.KindGUTI, GUTI: p.GUTI}}
		p.begin(forged.Append(nil))
		if !off { // a UE that switches off gets no answer
			e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
		}
		p.hangUp()
	}
	if b.gateway.Len() != 1 {
		t.Fatal("an unprotected Detach Request detached the UE")
	}
	p.Connect()
	p.begin(p.AppendDetach(nil, false))
	p.ids.MME = 0
	p.download(ue.Detached)
	p.hangUp()
	b.until("the UE is gone", func() bool { return b.count("contexts") == 0 && b.gateway.Len() == 0 })
}

func TestSilentIdleUEIsDetached(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Timers.Reachable = 50 * time.Millisecond })
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	p.idle()
	b.until("the UE is gone", func() bool { return b.count("contexts") == 0 && b.gateway.Len() == 0 && b.hss.Located() == 0 })
	if b.ended("detach", "implicit") != 1 {
		t.Error("the implicit detach was not counted")
	}
}

// TestLostAssociationMakesItsUEsIdle ends the association of an attached UE and of
// one that attaches.
func TestLostAssociationMakesItsUEsIdle(t *testing.T) {
	b := start(t, nil)
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	half := e.phone(2)
	half.begin(half.AppendAttach(nil))
	half.download(ue.Asked)
	e.conn.Close()
	b.until("the half attached UE is gone", func() bool { return b.count("contexts") == 1 && b.count("enodebs") == 1 })
	b.until("the bearer is released", func() bool { return b.ended("release", "success") == 1 })
	p.at = other
	p.ids.MME = 0
	p.serve()
}

func TestPathSwitch(t *testing.T) {
	b := start(t, nil)
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	chain := uint8(0)
	for _, to := range []*base{other, e, other} {
		to.last++
		p.at, p.ids.ENB = to, to.last
		to.send(to.AppendPathSwitch(nil, p.ids, p.Bearer))
		m := to.expect(s1ap.Successful, s1ap.PathSwitchRequest)
		if chain++; m.IDs != p.ids || m.Chain != chain || m.Key == [32]byte{} {
			t.Errorf("path switch for %+v with chain %d, want %+v and %d", m.IDs, m.Chain, p.ids, chain)
		}
		p.reached(to)
	}
	p.idle()
	e.send(e.AppendPathSwitch(nil, enb.IDs{MME: 0x07ffffff, ENB: 9}, 5))
	if m := e.expect(s1ap.Unsuccessful, s1ap.PathSwitchRequest); m.Cause != s1ap.CauseUnknownMMEUEID {
		t.Errorf("path switch of an unknown UE: got cause %+v", m.Cause)
	}
	if b.ended("path-switch", "success") != 3 {
		t.Errorf("%d path switches succeeded, want 3", b.ended("path-switch", "success"))
	}
}

// handOver plays an S1 handover up to the command, and returns the identifiers at
// the target.
func handOver(t *testing.T, p *phone, to *base) enb.IDs {
	t.Helper()
	p.at.send(p.at.AppendHandoverRequired(nil, p.ids, &to.Cell, []byte("source")))
	m := to.expect(s1ap.Initiating, s1ap.HandoverResourceAllocation)
	if m.IDs.MME != p.ids.MME || m.Bearer != p.Bearer || !m.Uplink.V4.IsValid() || !bytes.Equal(m.Container, []byte("source")) {
		t.Fatalf("handover request at the target: got %+v", m)
	}
	to.last++
	ids := enb.IDs{MME: p.ids.MME, ENB: to.last}
	to.send(to.AppendHandoverAdmitted(nil, ids, []byte("target"), p.Bearer))
	if m := p.at.expect(s1ap.Successful, s1ap.HandoverPreparation); m.IDs != p.ids || !bytes.Equal(m.Container, []byte("target")) {
		t.Fatalf("handover command at the source: got %+v", m)
	}
	return ids
}

func TestS1Handover(t *testing.T) {
	b := start(t, nil)
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	ids := handOver(t, p, other)
	other.send(other.AppendHandoverNotify(nil, ids))
	if m := e.expect(s1ap.Initiating, s1ap.UEContextRelease); m.IDs != p.ids || m.Cause != s1ap.CauseSuccessfulHandover {
		t.Errorf("release at the source: got %+v, cause %+v", m.IDs, m.Cause)
	}
	e.send(e.AppendReleased(nil, p.ids))
	p.at, p.ids = other, ids
	p.reached(other)
	p.uplink(p.AppendUpdate(nil, false))
	p.download(ue.Updated)
	if b.ended("handover", "success") != 1 {
		t.Error("the handover was not counted")
	}
}

func TestS1HandoverThatFailsLeavesTheUEWhereItIs(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Timers.S1 = 500 * time.Millisecond })
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()

	nowhere := other.Cell
	nowhere.ID.ID = 99
	e.send(e.AppendHandoverRequired(nil, p.ids, &nowhere, []byte("c")))
	if m := e.expect(s1ap.Unsuccessful, s1ap.HandoverPreparation); m.Cause != s1ap.CauseUnknownTarget {
		t.Errorf("handover to an unknown target: got cause %+v", m.Cause)
	}

	e.send(e.AppendHandoverRequired(nil, p.ids, &other.Cell, []byte("c")))
	m := other.expect(s1ap.Initiating, s1ap.HandoverResourceAllocation)
	other.send(other.AppendHandoverRefused(nil, m.IDs.MME, s1ap.CauseUnknownERAB))
	e.expect(s1ap.Unsuccessful, s1ap.HandoverPreparation)

	ids := handOver(t, p, other) // cancelled
	e.send(e.AppendHandoverCancel(nil, p.ids))
	if m := other.expect(s1ap.Initiating, s1ap.UEContextRelease); m.IDs != ids {
		t.Errorf("release at the target: got %+v, want %+v", m.IDs, ids)
	}
	other.send(other.AppendReleased(nil, ids))
	e.expect(s1ap.Successful, s1ap.HandoverCancel)

	ids = handOver(t, p, other) // the UE does not arrive
	if m := other.expect(s1ap.Initiating, s1ap.UEContextRelease); m.IDs != ids {
		t.Errorf("release at the target: got %+v, want %+v", m.IDs, ids)
	}
	p.uplink(p.AppendUpdate(nil, false))
	p.download(ue.Updated)
	p.reached(e)
	if b.ended("handover", "timeout") != 1 || b.ended("handover", "radio-failure") != 1 || b.ended("handover", "interrupted") != 1 {
		t.Error("the failures were not counted")
	}
}

func TestContextSetupFailureEndsTheAttach(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.begin(p.AppendAttach(nil))
	p.answerChallenge()
	p.take(e.expect(s1ap.Initiating, s1ap.InitialContextSetup), ue.Accepted)
	e.send(e.AppendContextFailure(nil, p.ids, s1ap.CauseUnknownERAB))
	p.hangUp()
	b.until("nothing is left", func() bool {
		return b.count("contexts") == 0 && b.gateway.Len() == 0 && b.hss.Located() == 0
	})
	if b.ended("attach", "radio-failure") != 1 {
		t.Error("the radio failure was not counted")
	}
}

func TestCancelDetachesTheSubscriber(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	b.mme.Cancel(p.IMSI)
	p.hangUp()
	b.until("the context is gone", func() bool { return b.count("contexts") == 0 && b.gateway.Len() == 0 })
	if b.hss.Located() != 1 {
		t.Error("the MME purged a subscriber that another MME serves")
	}
}

// TestPagingReachesTheIdleUE pages a UE that answers, and one that does not.
func TestPagingReachesTheIdleUE(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Timers.NAS = 100 * time.Millisecond })
	e, other := b.enodeb(1), b.enodeb(2) // of another tracking area
	p := e.phone(1)
	if b.mme.Page(t.Context(), p.IMSI) {
		t.Error("Page accepted an unknown subscriber")
	}
	p.attach()
	b.mme.Page(t.Context(), p.IMSI) // it is connected
	p.idle()
	if !b.mme.Page(t.Context(), p.IMSI) {
		t.Error("Page refused an idle subscriber")
	}
	if m := e.expect(s1ap.Initiating, s1ap.Paging); m.Paged != p.GUTI.STMSI() {
		t.Errorf("paging: got %+v, want %+v", m.Paged, p.GUTI.STMSI())
	}
	p.serve()
	if b.ended("paging", "success") != 1 {
		t.Error("the paging was not counted")
	}
	p.idle()
	b.mme.Page(t.Context(), p.IMSI)
	b.mme.Page(t.Context(), p.IMSI) // once is enough
	e.expect(s1ap.Initiating, s1ap.Paging)
	e.expect(s1ap.Initiating, s1ap.Paging)
	b.until("the MME gives up", func() bool { return b.ended("paging", "timeout") == 1 })
	p.serve()

	other.send(other.AppendSetup(nil)) // what comes first answers this
	other.expect(s1ap.Successful, s1ap.S1Setup)
}

// TestPagingWaitsUntilTheUEIsIdle pages a UE whose access bearers are released, but whose
// connection is not.
func TestPagingWaitsUntilTheUEIsIdle(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	e.send(e.AppendReleaseRequest(nil, p.ids, s1ap.CauseUserInactivity))
	m := e.expect(s1ap.Initiating, s1ap.UEContextRelease)
	if !b.mme.Page(t.Context(), p.IMSI) {
		t.Error("Page refused an idle subscriber")
	}
	e.send(e.AppendReleased(nil, m.IDs))
	if m := e.expect(s1ap.Initiating, s1ap.Paging); m.Paged != p.GUTI.STMSI() {
		t.Errorf("paging: got %+v, want %+v", m.Paged, p.GUTI.STMSI())
	}
	p.serve()
	p.idle()
	if n := b.ended("paging", "success"); n != 1 {
		t.Errorf("paged %v times, want once", n)
	}
}

// TestHandoverWhoseSourceIsLostReleasesTheTarget ends the source's association, and
// then its UE's connection, before the UE arrives.
func TestHandoverWhoseSourceIsLostReleasesTheTarget(t *testing.T) {
	for name, lose := range map[string]func(*phone){
		"association": func(p *phone) { p.at.conn.Close() },
		"connection":  func(p *phone) { p.idle() },
	} {
		b := start(t, nil)
		e, other := b.enodeb(1), b.enodeb(2)
		p := e.phone(1)
		p.attach()
		ids := handOver(t, p, other)
		lose(p)
		if m := other.expect(s1ap.Initiating, s1ap.UEContextRelease); m.IDs != ids || m.Cause != s1ap.CauseHandoverCancelled {
			t.Errorf("%s: release at the target: got %+v, cause %+v", name, m.IDs, m.Cause)
		}
		b.until("the UE is idle", func() bool { return b.ended("release", "success") == 1 })
		p.at, p.ids.MME = other, 0
		p.serve()
	}
}
