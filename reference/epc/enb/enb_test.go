package enb_test

import (
	"bytes"
	"net/netip"
	"testing"

	"vitrine/reference/epc/enb"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

func cell() *enb.Cell {
	plmn, _ := identity.MakePLMN("001", "01")
	return &enb.Cell{
		ID: s1ap.ENB{PLMN: plmn, ID: 1}, Name: "enb", TAI: identity.TAI{PLMN: plmn, TAC: 1}, Address: netip.AddrFrom4([4]byte{192, 0, 2, 1}),
	}
}

// messages returns what an eNodeB sends.
func messages() [][]byte {
	c, ids := cell(), enb.IDs{MME: 0x01020304, ENB: 0x050607}
	return [][]byte{
		c.AppendSetup(nil), c.AppendInitial(nil, 7, []byte{7, 0x41}, &identity.STMSI{Code: 1, TMSI: 2}),
		c.AppendUplink(nil, ids, []byte{7, 0x43}), c.AppendContextSetUp(nil, ids, 5), c.AppendContextFailure(nil, ids, s1ap.CauseUnknownERAB),
		c.AppendReleaseRequest(nil, ids, s1ap.CauseUserInactivity), c.AppendReleased(nil, ids), c.AppendPathSwitch(nil, ids, 5),
		c.AppendHandoverRequired(nil, ids, c, []byte{1}), c.AppendHandoverAdmitted(nil, ids, []byte{2}, 5),
		c.AppendHandoverRefused(nil, ids.MME, s1ap.CauseUnknownERAB), c.AppendHandoverCancel(nil, ids), c.AppendHandoverNotify(nil, ids),
	}
}

// TestMessagesAreWellFormed checks each message behind another one, as buffers are
// used.
func TestMessagesAreWellFormed(t *testing.T) {
	for i, m := range messages() {
		var s s1ap.Message
		if err := s.Parse(m); err != nil || s.Check() != nil {
			t.Errorf("message %d cannot be parsed: %v, %v", i, err, s.Check())
		}
	}
	c := cell()
	before := c.AppendSetup(nil)
	after := c.AppendReleased(bytes.Clone(before), enb.IDs{MME: 1, ENB: 2})
	if !bytes.Equal(after[:len(before)], before) || !bytes.Equal(after[len(before):], c.AppendReleased(nil, enb.IDs{MME: 1, ENB: 2})) {
		t.Error("the appended message is wrong")
	}
}

// TestIdentifiersOfARelease gives an eNodeB the element ENBUEID, and then UEIDs as a pair or
// with the MME's identifier alone.
func TestIdentifiersOfARelease(t *testing.T) {
	for name, c := range map[string]struct {
		ids  func(b []byte) []byte
		want enb.IDs
	}{
		"pair":      {func(b []byte) []byte { return s1ap.AppendUEIDs(b, s1ap.Reject, 3, 4) }, enb.IDs{MME: 3, ENB: 4}},
		"MME alone": {func(b []byte) []byte { return s1ap.AppendElement(b, s1ap.UEIDs, s1ap.Reject, []byte{0x40, 3}) }, enb.IDs{MME: 3, ENB: 7}},
	} {
		b := s1ap.AppendENBUEID(s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.UEContextRelease, s1ap.Reject), s1ap.Reject, 7)
		var m enb.Message
		if err := m.Parse(s1ap.End(c.ids(b), 0)); err != nil || m.IDs != c.want || !m.HasMME || !m.HasENB {
			t.Errorf("%s: got %+v, error %v", name, m, err)
		}
	}
}

// FuzzParse checks that any octets are read or refused, and not changed.
func FuzzParse(f *testing.F) {
	for _, m := range messages() {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		var m enb.Message
		_ = m.Parse(data)
		if !bytes.Equal(before, data) {
			t.Fatal("the message was changed")
		}
	})
}

func BenchmarkUplink(b *testing.B) {
	c := cell()
	pdu := make([]byte, 40)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = c.AppendUplink(out[:0], enb.IDs{MME: 0x01020304, ENB: 7}, pdu)
	}
}
