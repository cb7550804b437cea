package mme_test

import (
	"testing"

	"vitrine/reference/epc/ue"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// read parses the body of a NAS message of the MME, which EEA0 leaves readable.
func read(t *testing.T, pdu []byte, body interface{ Parse([]byte) error }) {
	t.Helper()
	var p nas.PDU
	err := p.Parse(pdu)
	if err == nil {
		err = body.Parse(p.Body)
	}
	if err != nil {
		t.Fatalf("% x: %v", pdu, err)
	}
}

// TestUnservedSessionRequestsAreRefused asks for a second PDN connection, as a phone with VoLTE does after its attach,
// for the end of the only one, and for something unknown. Without an answer the UE would repeat its request.
func TestUnservedSessionRequestsAreRefused(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	p.attach()
	second := nas.ConnectivityRequest{Header: nas.Bearer(0, 3), Request: 1, PDN: nas.PDNv4, APN: nas.AppendAPN(nil, "ims")}
	for _, c := range []struct {
		request []byte
		answer  nas.Header
		cause   nas.ESMCause
	}{
		{second.Append(nil), nas.Header{Discriminator: nas.ESM, Type: nas.ConnectivityRejectType, PTI: 3}, nas.ESMCauseUnsupported},
		{[]byte{0x02, 4, byte(nas.DisconnectRequestType), 5}, nas.Header{Discriminator: nas.ESM, Type: nas.DisconnectRejectType, PTI: 4}, nas.ESMCauseLastDisconnected},
		{[]byte{0x52, 0, 0xff}, nas.Header{Discriminator: nas.ESM, Type: nas.ESMStatusType, EBI: 5}, nas.ESMCauseTypeUnknown},
	} {
		p.uplink(p.AppendMessage(nil, c.request))
		m := e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
		var got nas.Release
		read(t, m.NAS, &got)
		if got.Header != c.answer || got.Cause != c.cause {
			t.Errorf("request % x: got %+v, want %+v with cause %d", c.request, got, c.answer, c.cause)
		}
		p.take(m, ue.None)
	}
	if got := b.count("unserved_total"); got != 3 {
		t.Errorf("counted %d requests that are not served, want 3", got)
	}
}

// TestUEsLearnThatThereIsNoCSDomain attaches a UE that also asks for the CS domain, as most phones do, and updates its
// tracking area in each way. Without the cause the UE would try again every few seconds.
func TestUEsLearnThatThereIsNoCSDomain(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	p := e.phone(1)
	esm := nas.ConnectivityRequest{Header: nas.Bearer(0, 1), Request: 1, PDN: nas.PDNv4}
	const combined = 2
	p.begin((&nas.AttachRequest{
		Attach: combined, KSI: 7, Identity: nas.Identity{Kind: nas.KindIMSI, Digits: p.IMSI}, Capability: []byte{0xa0, 0x20}, ESM: esm.Append(nil),
	}).Append(nil))
	p.answerChallenge()
	m := e.expect(s1ap.Initiating, s1ap.InitialContextSetup)
	var attached nas.AttachAccept
	read(t, m.NAS, &attached)
	if attached.Result != 1 || attached.Cause != nas.CauseCSUnavailable {
		t.Errorf("combined attach: got result %d, cause %d", attached.Result, attached.Cause)
	}
	complete := p.take(m, ue.Accepted)
	e.send(e.AppendContextSetUp(nil, p.ids, m.Bearer))
	p.uplink(complete)
	p.reached(e)
	for kind, want := range []nas.Cause{0, nas.CauseCSUnavailable, nas.CauseCSUnavailable, 0} {
		request := nas.UpdateRequest{Update: uint8(kind), GUTI: nas.Identity{Kind: nas.KindGUTI, GUTI: p.GUTI}}
		p.uplink(p.AppendMessage(nil, request.Append(nil)))
		m := e.expect(s1ap.Initiating, s1ap.DownlinkNASTransport)
		var updated nas.UpdateAccept
		read(t, m.NAS, &updated)
		if updated.Result != 0 || updated.Cause != want {
			t.Errorf("update of kind %d: got result %d, cause %d, want 0 and %d", kind, updated.Result, updated.Cause, want)
		}
		p.take(m, ue.Updated)
	}

	p.idle()
	p.Connect()
	p.begin(p.AppendMessage(nil, []byte{0x07, byte(nas.ExtendedServiceRequestType), 0}))
	p.rejected(nas.CauseCSUnavailable)
}
