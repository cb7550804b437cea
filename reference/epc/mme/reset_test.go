package mme_test

import (
	"testing"

	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/ue"
	"vitrine/wire/s1ap"
)

// TestResetMakesUEsIdle resets some connections of an eNodeB, by either identifier, and
// then all. The UEs become idle, and request service again. The UE of another eNodeB stays.
func TestResetMakesUEsIdle(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Workers = 3 })
	e, other := b.enodeb(1), b.enodeb(2)
	var phones []*phone
	for n := range 4 {
		p := e.phone(n + 1)
		p.attach()
		phones = append(phones, p)
	}
	far := other.phone(9)
	far.attach()

	connected := func(p *phone) bool { return b.gateway.Sessions(p.IMSI)[0].ENodeB.V4.IsValid() }
	e.send(e.AppendReset(nil, s1ap.CauseIntervention,
		s1ap.Connection{MME: phones[0].ids.MME, ENB: phones[0].ids.ENB, HasMME: true, HasENB: true},
		s1ap.Connection{ENB: phones[1].ids.ENB, HasENB: true},
		s1ap.Connection{MME: far.ids.MME, HasMME: true}, // of another eNodeB
		s1ap.Connection{ENB: 7, HasENB: true}))          // of nobody
	e.expect(s1ap.Successful, s1ap.Reset)
	b.until("two UEs are idle", func() bool { return !connected(phones[0]) && !connected(phones[1]) })
	if !connected(phones[2]) || !connected(phones[3]) || !connected(far) {
		t.Error("the Reset of some connections ended other connections")
	}
	phones[0].serve()

	e.send(e.AppendReset(nil, s1ap.CauseIntervention))
	e.expect(s1ap.Successful, s1ap.Reset)
	b.until("all UEs of the eNodeB are idle", func() bool {
		return !connected(phones[0]) && !connected(phones[2]) && !connected(phones[3])
	})
	if !connected(far) || b.count("resets_total") != 2 {
		t.Errorf("counted %d resets, want 2", b.count("resets_total"))
	}
	for _, p := range phones {
		p.serve()
	}
}

func errorIndication(ids enb.IDs, cause s1ap.Cause) []byte {
	m := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ErrorIndication, s1ap.Ignore)
	m = s1ap.AppendENBUEID(s1ap.AppendMMEUEID(m, s1ap.MMEUEID, s1ap.Ignore, ids.MME), s1ap.Ignore, ids.ENB)
	return s1ap.End(s1ap.AppendCause(m, s1ap.Ignore, cause), 0)
}

// TestErrorIndicationMakesTheUEIdle has the eNodeB of a UE say that it does not know the UE. The UE must be paged
// after that. Another eNodeB and another cause must change nothing.
func TestErrorIndicationMakesTheUEIdle(t *testing.T) {
	b := start(t, func(c *mme.Config) { c.Workers = 3 })
	e, other := b.enodeb(1), b.enodeb(2)
	p := e.phone(1)
	p.attach()
	other.send(errorIndication(p.ids, s1ap.CauseUnknownPair))
	e.send(errorIndication(p.ids, s1ap.CauseSemantic))
	b.until("the MME has both", func() bool { return b.count("error_indications_received_total") == 2 })
	p.uplink(p.AppendUpdate(nil, false))
	p.download(ue.Updated)
	if b.ended("release", "success") != 0 {
		t.Error("an Error Indication about another problem ended the connection")
	}
	e.send(errorIndication(p.ids, s1ap.CauseUnknownENBUEID))
	b.until("the UE is idle", func() bool { return b.ended("release", "success") == 1 })
	if of := b.gateway.Sessions(p.IMSI); len(of) != 1 || of[0].ENodeB.V4.IsValid() {
		t.Errorf("sessions at the gateway in idle mode: got %+v", of)
	}
	b.mme.Page(t.Context(), p.IMSI)
	if m := e.expect(s1ap.Initiating, s1ap.Paging); m.Paged != p.GUTI.STMSI() {
		t.Errorf("paging: got %+v, want %+v", m.Paged, p.GUTI.STMSI())
	}
	p.serve()
}

// TestMalformedResets are answered with Error Indication.
func TestMalformedResets(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	for _, value := range [][]byte{{}, {0x80}, {0x40, 0}, {0x40, 1, 0, 91, 0, 2, 0x20, 1}} {
		m := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.Reset, s1ap.Reject)
		m = s1ap.AppendCause(m, s1ap.Ignore, s1ap.CauseIntervention)
		e.send(s1ap.End(s1ap.AppendElement(m, s1ap.ResetType, s1ap.Reject, value), 0))
		e.expect(s1ap.Initiating, s1ap.ErrorIndication)
	}
	if n := b.count("malformed_s1ap_total"); n != 4 {
		t.Errorf("counted %d malformed messages, want 4", n)
	}
}
