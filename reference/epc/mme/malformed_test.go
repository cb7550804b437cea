package mme_test

import (
	"testing"

	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// TestMalformedS1APIsAnsweredWithErrorIndication sends messages that cannot be
// handled, and checks that the association survives them.
func TestMalformedS1APIsAnsweredWithErrorIndication(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	lacking := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.UplinkNASTransport, s1ap.Ignore)
	lacking = s1ap.End(s1ap.AppendMMEUEID(lacking, s1ap.MMEUEID, s1ap.Reject, 0x07000001), 0)
	unknown := s1ap.End(s1ap.AppendHeader(nil, s1ap.Initiating, 99, s1ap.Reject), 0)
	ids := enb.IDs{MME: 0x07001234, ENB: 5}
	for name, c := range map[string]struct {
		message []byte
		cause   s1ap.Cause
		mme     bool
	}{
		"octets":            {[]byte{0xff, 1, 2, 3}, s1ap.CauseTransferSyntax, false},
		"length":            {append(e.AppendReleased(nil, ids), 0), s1ap.CauseTransferSyntax, false},
		"missing elements":  {lacking, s1ap.CauseAbstractSyntax, true},
		"unknown procedure": {unknown, s1ap.CauseAbstractSyntax, false},
		"unknown UE":        {e.AppendUplink(nil, ids, []byte{7, 0x43}), s1ap.CauseUnknownMMEUEID, true},
	} {
		e.send(c.message)
		m := e.expect(s1ap.Initiating, s1ap.ErrorIndication)
		if m.Cause != c.cause || m.HasMME != c.mme {
			t.Errorf("%s: got cause %+v, with MME UE S1AP ID %v", name, m.Cause, m.HasMME)
		}
	}
	if b.count("malformed_s1ap_total") != 3 || b.count("error_indications_sent_total") != 5 {
		t.Errorf("counted %d malformed messages, %d error indications, want 3 and 5", b.count("malformed_s1ap_total"), b.count("error_indications_sent_total"))
	}
	e.phone(1).attach()
}

// TestContainersAboveTheBoundAreRefused sends containers that make a message to the other
// eNodeB longer than S1AP allows, or nearly. The MME must survive them, and forward
// the longest container that it accepts.
func TestContainersAboveTheBoundAreRefused(t *testing.T) {
	const bound, statusContainer = 12 << 10, 90
	b := start(t, nil)
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	refused := func(at *base, what string) {
		t.Helper()
		if m := at.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseAbstractSyntax {
			t.Errorf("%s: got cause %+v", what, m.Cause)
		}
	}
	for _, size := range []int{16_320, bound + 1} {
		e.send(e.AppendHandoverRequired(nil, p.ids, &other.Cell, make([]byte, size)))
		refused(e, "source to target")
	}
	e.send(e.AppendHandoverRequired(nil, p.ids, &other.Cell, make([]byte, bound)))
	if m := other.expect(s1ap.Initiating, s1ap.HandoverResourceAllocation); len(m.Container) != bound {
		t.Errorf("the target got a container of %d octets, want %d", len(m.Container), bound)
	}
	other.last++
	ids := enb.IDs{MME: p.ids.MME, ENB: other.last}
	other.send(other.AppendHandoverAdmitted(nil, ids, make([]byte, bound+1), p.Bearer))
	refused(other, "target to source")
	other.send(other.AppendHandoverAdmitted(nil, ids, make([]byte, bound), p.Bearer))
	if m := e.expect(s1ap.Successful, s1ap.HandoverPreparation); len(m.Container) != bound {
		t.Errorf("the source got a container of %d octets, want %d", len(m.Container), bound)
	}
	for _, size := range []int{bound + 1, bound} {
		m := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ENBStatusTransfer, s1ap.Ignore)
		m = s1ap.AppendMMEUEID(m, s1ap.MMEUEID, s1ap.Reject, p.ids.MME)
		m = s1ap.AppendENBUEID(m, s1ap.Reject, p.ids.ENB)
		e.send(s1ap.End(s1ap.AppendElement(m, statusContainer, s1ap.Reject, make([]byte, size)), 0))
		if size > bound {
			refused(e, "status")
		}
	}
	other.expect(s1ap.Initiating, s1ap.MMEStatusTransfer)
}

// TestUEOfAnotherENodeBIsNotFound uses a UE's identifiers at the wrong association.
func TestUEOfAnotherENodeBIsNotFound(t *testing.T) {
	b := start(t, nil)
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	other.send(other.AppendReleaseRequest(nil, p.ids, s1ap.CauseUserInactivity))
	if m := other.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseUnknownPair {
		t.Errorf("got cause %+v", m.Cause)
	}
	p.uplink(p.AppendUpdate(nil, false))
	p.download(ue.Updated)
}

func TestNothingIsHandledBeforeS1Setup(t *testing.T) {
	b := start(t, nil)
	e := b.dial(1)
	p := e.phone(1)
	p.begin(p.AppendAttach(nil))
	if m := e.expect(s1ap.Initiating, s1ap.ErrorIndication); m.Cause != s1ap.CauseIncompatible {
		t.Errorf("got cause %+v", m.Cause)
	}
	foreign := e.Cell
	foreign.TAI.PLMN, _ = identity.MakePLMN("262", "01")
	e.send(foreign.AppendSetup(nil))
	if m := e.expect(s1ap.Unsuccessful, s1ap.S1Setup); m.Cause != s1ap.CauseUnknownPLMN {
		t.Errorf("got cause %+v", m.Cause)
	}
	e.send(e.AppendSetup(nil))
	e.expect(s1ap.Successful, s1ap.S1Setup)
	p.attach()
}

// TestSecondS1SetupMakesTheUEsIdle sets the same association up again, and then
// another association of the same eNodeB.
func TestSecondS1SetupMakesTheUEsIdle(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	e.send(e.AppendSetup(nil))
	e.expect(s1ap.Successful, s1ap.S1Setup)
	b.until("the bearer is released", func() bool { return b.ended("release", "success") == 1 })
	p.ids.MME = 0
	p.serve()
	again := b.enodeb(1)
	if e.receive() {
		t.Error("the old association did not end")
	}
	b.until("the bearer is released", func() bool { return b.ended("release", "success") == 2 })
	again.last = 500
	p.at, p.ids.MME = again, 0
	p.serve()
}

// TestMalformedNASIsDroppedOrRejected checks that bad NAS messages change nothing. A connection that begins with one is
// released, because its eNodeB cannot do so.
func TestMalformedNASIsDroppedOrRejected(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.begin([]byte{7, byte(nas.AttachRequestType), 0x71, 99})
	p.rejected(nas.CauseMandatory)
	for _, bad := range [][]byte{{0x0f}, {7}, {7, byte(nas.AttachCompleteType), 0, 0}, {7, byte(nas.DetachRequestType), 0x71, 99}} {
		p.begin(bad)
		if cause := p.hangUp(); cause != s1ap.CauseUnspecifiedNAS {
			t.Errorf("% x: released with cause %+v", bad, cause)
		}
	}

	p.begin(p.AppendAttach(nil))
	response := p.download(ue.Asked)
	p.uplink([]byte{7, byte(nas.AuthenticationResponseType), 99})
	p.uplink([]byte{0x0f})
	p.uplink((&nas.AttachComplete{ESM: []byte{}}).Append(nil))
	p.uplink(response)
	p.uplink(p.download(ue.Asked))
	p.uplink((&nas.AttachComplete{ESM: []byte{0x52, 0, byte(nas.DefaultBearerAcceptType)}}).Append(nil))
	p.accept()

	forged := p.AppendDetach(nil, true)
	forged[len(forged)-1] ^= 1
	p.uplink(forged)
	replayed := p.AppendUpdate(nil, false)
	p.uplink(replayed)
	p.download(ue.Updated)
	p.uplink(replayed)
	p.uplink(p.AppendUpdate(nil, false))
	p.download(ue.Updated)
	if got := b.count("malformed_nas_total"); got != 6 {
		t.Errorf("counted %d malformed messages, want 6", got)
	}
	if got := b.count("unprotected_nas_total"); got != 3 {
		t.Errorf("counted %d unprotected messages, want 3", got)
	}
}
