package mme_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/ue"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// A made is what became of a dedicated bearer that the network wanted.
type made struct {
	bearer mme.DedicatedBearer
	err    error
}

// wanted has the network make a dedicated bearer for a UE.
func (p *phone) wanted() chan made {
	done := make(chan made, 1)
	b := mme.DedicatedBearer{
		QoS:    s1ap.QoS{QCI: 1, Priority: 2, GBR: true, MaxUp: 64_000, MaxDown: 64_000, GuaranteedUp: 64_000, GuaranteedDown: 64_000},
		Uplink: s1ap.Tunnel{V4: p.at.Address, TEID: 99},
	}
	tft := nas.AppendTFT(nil, nas.CreateTFT, nas.Filter{Direction: 3, Components: nas.AppendFlow(nil, 17, [4]byte{192, 0, 2, 1}, 5004)})
	go func() {
		got, err := p.at.bed.mme.CreateBearer(context.Background(), p.IMSI, 0, b, tft)
		done <- made{got, err}
	}()
	return done
}

// unwanted has the network remove a dedicated bearer.
func (p *phone) unwanted(id uint8) chan error {
	done := make(chan error, 1)
	go func() { done <- p.at.bed.mme.DeleteBearer(context.Background(), p.IMSI, 0, id) }()
	return done
}

// activate takes the request for a bearer at UE and eNodeB.
func (p *phone) activate() {
	p.t.Helper()
	m := p.at.expect(s1ap.Initiating, s1ap.ERABSetup)
	reply := p.take(m, ue.Activated)
	p.at.send(p.at.AppendBearerSetUp(nil, p.ids, m.Bearer))
	p.uplink(reply)
}

func await[T any](t *testing.T, what string, from chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatal("no end of " + what)
		panic("unreachable")
	}
}

// TestDedicatedBearers makes bearers for a connected UE and for an idle one, and removes
// them. The bearers come with each connection and each handover.
func TestDedicatedBearers(t *testing.T) {
	b := start(t, nil)
	from, to := b.enodeb(1), b.enodeb(2)
	p := from.phone(1)
	p.attach()
	done := p.wanted()
	p.activate()
	first := await(t, "the first bearer", done)
	if first.err != nil || first.bearer.ID != 6 || first.bearer.Downlink != (s1ap.Tunnel{V4: from.Address, TEID: p.ids.ENB}) {
		t.Fatalf("%+v", first)
	}

	p.idle()
	done = p.wanted()
	if m := from.expect(s1ap.Initiating, s1ap.Paging); m.Paged != p.GUTI.STMSI() {
		t.Fatalf("got paging of %v", m.Paged)
	}
	p.begin(p.AppendService(nil))
	m := from.expect(s1ap.Initiating, s1ap.InitialContextSetup)
	if got := m.Bearers(); string(got) != string([]byte{5, 6}) {
		t.Errorf("bearers in the context: got %v", got)
	}
	p.ids.MME = m.IDs.MME
	p.Serve()
	from.send(from.AppendContextSetUp(nil, p.ids, m.Bearers()...))
	p.activate()
	if second := await(t, "the second bearer", done); second.err != nil || second.bearer.ID != 7 {
		t.Fatalf("%+v", second)
	}

	ids := p.ids
	ids.ENB = 201
	to.send(to.AppendPathSwitch(nil, ids, 5, 7)) // the bearer 6 is not admitted
	to.expect(s1ap.Successful, s1ap.PathSwitchRequest)
	p.at, p.ids = to, ids
	if err := await(t, "the removal of a bearer that is gone", p.unwanted(6)); err == nil {
		t.Error("the bearer that the target did not admit still exists")
	}
	gone := p.unwanted(7)
	m = to.expect(s1ap.Initiating, s1ap.ERABRelease)
	if m.Bearer != 7 {
		t.Errorf("got the release of bearer %d, want 7", m.Bearer)
	}
	reply := p.take(m, ue.Deactivated)
	to.send(to.AppendBearerReleased(nil, p.ids, m.Bearer))
	p.uplink(reply)
	if err := await(t, "the removal", gone); err != nil {
		t.Error(err)
	}
	for procedure, want := range map[string]int{"dedicated-bearer": 2, "bearer-deactivation": 1, "paging": 1, "path-switch": 1} {
		if got := b.ended(procedure, "success"); got != want {
			t.Errorf("%d of %s succeeded, want %d", got, procedure, want)
		}
	}
}

// TestDedicatedBearersThatFail has the eNodeB and the UE refuse a bearer, asks for one
// while another is made, and for a UE that is not there.
func TestDedicatedBearersThatFail(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()

	done := p.wanted()
	m := e.expect(s1ap.Initiating, s1ap.ERABSetup)
	e.send(e.AppendBearerRefused(nil, p.ids, m.Bearer, s1ap.CauseNoRadioResources))
	if got := await(t, "the bearer without radio resources", done); got.err == nil || b.ended("dedicated-bearer", "radio-failure") != 1 {
		t.Errorf("%+v", got)
	}

	done = p.wanted()
	if m = e.expect(s1ap.Initiating, s1ap.ERABSetup); m.Bearer != 6 {
		t.Errorf("got bearer identity %d, want the lowest free one, 6", m.Bearer)
	}
	if got := await(t, "a bearer at the same time", p.wanted()); got.err == nil {
		t.Errorf("a second bearer at the same time succeeded: %+v", got)
	}
	e.send(e.AppendReleaseRequest(nil, p.ids, s1ap.CauseConnectionLost))
	if got := await(t, "the bearer of a lost UE", done); got.err == nil {
		t.Errorf("%+v", got)
	}
	p.hangUp()
	stranger := e.phone(2)
	if got := await(t, "the bearer of a stranger", stranger.wanted()); got.err == nil {
		t.Errorf("%+v", got)
	}
}

// TestPathSwitchWhileABearerChanges moves a UE by X2 while a bearer is set up, and while it is removed. The handovers
// must succeed. The new eNodeB must release what it has of the bearer, and set the bearer up again.
func TestPathSwitchWhileABearerChanges(t *testing.T) {
	b := start(t, nil)
	from, to := b.enodeb(1), b.enodeb(2)
	p := from.phone(1)
	p.attach()
	move := func(e *base, id uint32) {
		t.Helper()
		p.at, p.ids.ENB = e, id
		e.send(e.AppendPathSwitch(nil, p.ids, 5, 6))
		if m := e.expect(s1ap.Successful, s1ap.PathSwitchRequest); m.Bearer != 6 || len(m.Bearers()) != 1 {
			t.Errorf("path switch: the eNodeB shall release the bearers %v, want 6", m.Bearers())
		}
	}
	done := p.wanted()
	if m := from.expect(s1ap.Initiating, s1ap.ERABSetup); m.Bearer != 6 {
		t.Fatalf("got the setup of bearer %d, want 6", m.Bearer)
	}
	from.send(from.AppendHandoverRequired(nil, p.ids, &to.Cell, []byte("c")))
	if m := from.expect(s1ap.Unsuccessful, s1ap.HandoverPreparation); m.Cause != s1ap.CauseInteraction {
		t.Errorf("S1 handover: got cause %+v", m.Cause)
	}
	move(to, 201)
	p.activate()
	want := s1ap.Tunnel{V4: to.Address, TEID: 201}
	if got := await(t, "the bearer", done); got.err != nil || got.bearer.ID != 6 || got.bearer.Downlink != want {
		t.Errorf("%+v", got)
	}
	gone := p.unwanted(6)
	to.expect(s1ap.Initiating, s1ap.ERABRelease)
	move(from, 102)
	if err := await(t, "the removal", gone); err != nil {
		t.Error(err)
	}
	p.reached(from)
}

// TestBearersThatAreGone loses a bearer at the eNodeB, and then three times at the UE, which says so in a tracking area
// update: while it is connected, and from idle without and with a request for bearers. The MME must use the identity again.
func TestBearersThatAreGone(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	again := func() {
		t.Helper()
		done := p.wanted()
		p.activate()
		if got := await(t, "the bearer", done); got.err != nil || got.bearer.ID != 6 {
			t.Fatalf("%+v", got)
		}
	}
	again()
	m := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ERABReleaseIndication, s1ap.Ignore)
	m = s1ap.AppendENBUEID(s1ap.AppendMMEUEID(m, s1ap.MMEUEID, s1ap.Reject, p.ids.MME), s1ap.Reject, p.ids.ENB)
	at := len(m)
	m = s1ap.BeginList(m, s1ap.ReleasedIndication, s1ap.Ignore, 1)
	m = s1ap.AppendERAB(m, s1ap.ERABItem, s1ap.Ignore, s1ap.ERAB{ID: 6, Cause: s1ap.CauseNoRadioResources})
	e.send(s1ap.End(s1ap.EndElement(m, at), 0))
	b.until("the bearer is gone", func() bool { return b.ended("bearer-deactivation", "success") == 1 })
	again()

	update := func(active bool) []byte {
		r := nas.UpdateRequest{Active: active, GUTI: nas.Identity{Kind: nas.KindGUTI, GUTI: p.GUTI}, Bearers: []byte{1 << 5, 0}}
		return p.AppendMessage(nil, r.Append(nil))
	}
	accepted := func(m *enb.Message) {
		t.Helper()
		var accept nas.UpdateAccept
		read(t, m.NAS, &accept)
		if !bytes.Equal(accept.Bearers, []byte{1 << 5, 0}) {
			t.Errorf("the MME has the bearers %x", accept.Bearers)
		}
		p.take(m, ue.Updated)
	}
	p.uplink(update(false))
	accepted(e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport))
	again()

	p.idle()
	p.Connect()
	p.begin(update(false))
	accepted(e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport))
	p.hangUp()
	b.until("the UE is idle", func() bool { return b.ended("release", "success") == 2 })
	p.serve()
	if got := e.message.Bearers(); len(got) != 1 {
		t.Errorf("bearers of the service request: got %v", got)
	}
	again()

	p.idle()
	p.Connect()
	p.begin(update(true))
	setup := e.expect(s1ap.Initiating, s1ap.InitialContextSetup)
	if got := setup.Bearers(); len(got) != 1 {
		t.Errorf("bearers of the update: got %v", got)
	}
	accepted(setup)
	e.send(e.AppendContextSetUp(nil, p.ids, 5))
	p.reached(e)
	again()
}

// TestBearerResourcesAreRefused has a UE ask for a bearer that the gateway refuses, and for
// the release of one that it does not have.
func TestBearerResourcesAreRefused(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	p.uplink(p.AppendAllocation(nil, nas.QoS{QCI: 1}, 17, [4]byte{192, 0, 2, 1}, 5004))
	p.download(ue.Refused)
	if p.ESM != nas.ESMCauseNetworkFailure { // the gateway of this test gives no cause
		t.Errorf("got ESM cause %d", p.ESM)
	}
	p.uplink(p.AppendRelease(nil, 9))
	p.download(ue.Refused)
	if p.ESM != nas.ESMCauseUnknownBearer {
		t.Errorf("got ESM cause %d", p.ESM)
	}
	if b.ended("dedicated-bearer", "network-failure") != 1 || b.ended("bearer-deactivation", "refused") != 1 {
		t.Error("the refusals were not counted")
	}
}
