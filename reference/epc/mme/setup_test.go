package mme_test

import (
	"testing"

	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// TestConfigurationUpdateChangesTheAreas moves an eNodeB to another tracking area. The MME must page there, and
// refuse an update to areas of another network.
func TestConfigurationUpdateChangesTheAreas(t *testing.T) {
	b := start(t, nil)
	e := b.enodeb(1)
	update := func(elements func(b []byte) []byte) {
		m := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.ENBConfigurationUpdate, s1ap.Reject)
		e.send(s1ap.End(elements(m), 0))
	}
	to := func(area identity.TAI) func(b []byte) []byte {
		return func(b []byte) []byte { return s1ap.AppendAreas(b, s1ap.Reject, area) }
	}
	e.TAI.TAC = 77
	update(to(e.TAI))
	e.expect(s1ap.Successful, s1ap.ENBConfigurationUpdate)
	foreign := e.TAI
	foreign.PLMN, _ = identity.MakePLMN("262", "01")
	update(to(foreign))
	if m := e.expect(s1ap.Unsuccessful, s1ap.ENBConfigurationUpdate); m.Cause != s1ap.CauseUnknownPLMN {
		t.Errorf("update to areas of another network: got cause %+v", m.Cause)
	}
	update(func(b []byte) []byte { return s1ap.AppendName(b, s1ap.ENBName, s1ap.Ignore, "renamed") })
	e.expect(s1ap.Successful, s1ap.ENBConfigurationUpdate)

	p := e.phone(1)
	p.attach()
	p.idle()
	b.mme.Page(t.Context(), p.IMSI)
	if m := e.expect(s1ap.Initiating, s1ap.Paging); m.Paged != p.GUTI.STMSI() {
		t.Errorf("paging: got %+v, want %+v", m.Paged, p.GUTI.STMSI())
	}
	p.serve()
}
