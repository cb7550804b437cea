package mme_test

import (
	"testing"

	"vitrine/reference/epc/mme"
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
