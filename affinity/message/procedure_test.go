package message

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"vitrine/internal/capturetest"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
	"vitrine/wire/ngap"
	"vitrine/wire/s1ap"
)

// TestProceduresOfClass1 checks which procedures have an outcome (tables 1 of TS 36.413 and TS 38.413
// clause 8.1).
func TestProceduresOfClass1(t *testing.T) {
	s1 := []s1ap.Procedure{0, 1, 3, 4, 5, 6, 7, 9, 14, 17, 21, 23, 29, 30, 36, 43, 48, 50, 53, 55, 56, 63}
	for p := range s1ap.Procedure(67) {
		want := slices.Contains(s1, p)
		if got, named := s1apAnswered(p), s1apNames(p)[1] != ""; got != want || named != want {
			t.Errorf("S1AP procedure %v has an outcome: got %t, with a name %t, want %t", p, got, named, want)
		}
	}
	ng := []ngap.Procedure{0, 10, 12, 13, 14, 20, 21, 25, 26, 27, 28, 29, 32, 35, 40, 41, 43, 51, 58, 59, 60, 66, 67, 68, 69, 70, 71, 72, 73}
	for p := range ngap.Procedure(76) {
		want := slices.Contains(ng, p)
		if got, named := ngapAnswered(p), ngapNames(p)[1] != ""; got != want || named != want {
			t.Errorf("NGAP procedure %v has an outcome: got %t, with a name %t, want %t", p, got, named, want)
		}
	}
}

// TestOutcomesOfNGAPFindTheirRequests checks pairs, and names of TS 38.413 clause 9.2.
func TestOutcomesOfNGAPFindTheirRequests(t *testing.T) {
	for procedure, names := range map[byte][2]string{
		10: {"HandoverCancel", "HandoverCancelAcknowledge"},
		12: {"HandoverRequired", "HandoverCommand"},
		13: {"HandoverRequest", "HandoverRequestAcknowledge"},
		20: {"NGReset", "NGResetAcknowledge"},
		21: {"NGSetupRequest", "NGSetupResponse"},
		25: {"PathSwitchRequest", "PathSwitchRequestAcknowledge"},
		27: {"PDUSessionResourceModifyIndication", "PDUSessionResourceModifyConfirm"},
		28: {"PDUSessionResourceReleaseCommand", "PDUSessionResourceReleaseResponse"},
		35: {"RANConfigurationUpdate", "RANConfigurationUpdateAcknowledge"},
		41: {"UEContextReleaseCommand", "UEContextReleaseComplete"},
		60: {"UERadioCapabilityIDMappingRequest", "UERadioCapabilityIDMappingResponse"},
		68: {"BroadcastSessionSetupRequest", "BroadcastSessionSetupResponse"},
	} {
		lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
			var b capturetest.Frames
			one, other := end("192.0.2.7:38412"), end("192.0.2.8:38412")
			f.Add(start, b.SCTP(one, other, 1, ppidNGAP, []byte{0x00, procedure, 0, 3, 0, 0, 0})) // no elements
			f.Add(start+1e6, b.SCTP(other, one, 2, ppidNGAP, []byte{0x20, procedure, 0, 3, 0, 0, 0}))
		}))
		expect(t, lines, fmt.Sprintf("NGAP request %q", names[0]), fmt.Sprintf("NGAP answer %q| of 1", names[1]))
	}
}

// TestRejectsAreFailures reads the rejects of 5GMM (TS 24.501 table 9.7.1).
func TestRejectsAreFailures(t *testing.T) {
	for kind, want := range map[byte]string{0x44: "Registration reject", 0x4d: "Service reject", 0x58: "Authentication reject"} {
		lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
			m := []byte{0x00, 4, 0x40, 11, 0, 0, 1, 0, 38, 0, 4, 3, 0x7e, 0, kind}
			f.Add(start, (&capturetest.Frames{}).SCTP(end("192.0.2.8:38412"), end("192.0.2.7:38412"), 1, ppidNGAP, m))
		}))
		expect(t, lines, fmt.Sprintf("NGAP notice %q 15 B failed", "DownlinkNASTransport: "+want))
	}
}

// TestNamesOfNotificationsOfGTP checks names of TS 29.274 table 6.1-1.
func TestNamesOfNotificationsOfGTP(t *testing.T) {
	for first, name := range map[gtpc.Type]string{40: "Remote UE Report", 103: "PGW Downlink Triggering", 149: "Detach"} {
		if got := gtpNames[first]; got != name+" Notification" {
			t.Errorf("type %d: got %q", first, got)
		}
		if got := gtpNames[first+1]; got != name+" Acknowledge" {
			t.Errorf("type %d: got %q", first+1, got)
		}
	}
}

// TestNamesOfNASMessages checks which messages with a header for ciphering are read: those that
// begin with a known type of their protocol, as with EEA0.
func TestNamesOfNASMessages(t *testing.T) {
	ciphered := func(body ...byte) []byte { return append([]byte{0x27, 1, 2, 3, 4, 5}, body...) }
	for name, c := range map[string]struct {
		pdu  []byte
		want string
	}{
		"no header":                      {ciphered(0x99, 0x99, 0x99), "ciphered"},
		"unknown type of EMM":            {ciphered(0x07, 0x6f, 0), "ciphered"},
		"unknown type of ESM":            {ciphered(0x52, 0, 0xff), "ciphered"},
		"ESM type in a header of EMM":    {ciphered(0x07, 0xc2, 0), "ciphered"},
		"EMM type in a header of ESM":    {ciphered(0x52, 0, 0x43), "ciphered"},
		"protected extended service":     {append([]byte{0x17, 1, 2, 3, 4, 5}, 0x07, 0x4c, 0), "Extended Service Request"},
		"control plane service":          {[]byte{0x07, 0x4d, 0}, "Control Plane Service Request"},
		"EMM with EEA0":                  {ciphered(0x07, 0x43, 0), "Attach Complete"},
		"ESM with EEA0":                  {ciphered(0x52, 0, 0xc2), "Activate Default EPS Bearer Context Accept"},
		"plain message of unknown type":  {[]byte{0x07, 0x6f, 0}, "Message 111"},
		"plain message without its type": {[]byte{0x52, 0}, ""},
	} {
		lines, _ := read(t, Options{}, built(t, func(f *capturetest.File) {
			m := s1ap.AppendHeader(nil, s1ap.Initiating, s1ap.UplinkNASTransport, s1ap.Ignore)
			m = s1ap.AppendMMEUEID(m, s1ap.MMEUEID, s1ap.Reject, 1)
			m = s1ap.End(s1ap.AppendNAS(m, s1ap.NASPDU, s1ap.Reject, c.pdu), 0)
			f.Add(start, (&capturetest.Frames{}).SCTP(end("192.0.2.7:36412"), end("192.0.2.8:36412"), 1, ppidS1AP, m))
		}))
		want := "Uplink NAS Transport"
		if c.want != "" {
			want += ": " + c.want
		}
		if len(lines) != 1 {
			t.Fatalf("%s: got %d messages", name, len(lines))
		}
		expect(t, lines, fmt.Sprintf("S1AP notice %q", want))
	}
}

// TestAnMMEAsksAnotherForAUser: a tracking area update or handover goes to another MME (TS 29.274 clauses
// 7.3.1, 7.3.5 and 7.3.6). It names the user as NAS does, and learns the tunnels of its connections.
func TestAnMMEAsksAnotherForAUser(t *testing.T) {
	var nas slot
	nas.guti(identity.STMSI{Code: 0x56, TMSI: 0xa0b1c2d3})
	request := gtpc.AppendElement(gtpc.AppendHeader(nil, gtpc.ContextRequest, 0, 7), gtpc.GUTI, 0,
		0x00, 0xf1, 0x10, 0x12, 0x34, 0x56, 0xa0, 0xb1, 0xc2, 0xd3) // PLMN 001-01, group 0x1234
	tunnel := func(b []byte, i gtpc.Interface, teid uint32) []byte {
		return gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: i, TEID: teid, V4: netip.MustParseAddr("198.51.100.4")})
	}
	for _, answer := range []gtpc.Type{gtpc.ContextResponse, gtpc.ForwardRelocationRequest} {
		answered := gtpc.AppendHeader(nil, answer, 5, 7)
		connection := len(answered)
		answered = tunnel(gtpc.BeginGroup(answered, gtpc.PDNConnection, 0), gtpc.S5PGW, 0x43)
		bearer := len(answered)
		answered = tunnel(gtpc.BeginGroup(answered, gtpc.BearerContext, 0), gtpc.S1USGW, 0x44)
		answered = gtpc.EndGroup(gtpc.EndGroup(answered, bearer), connection)
		found := hashes(t, built(t, func(f *capturetest.File) {
			var b capturetest.Frames
			one, other := end("192.0.2.7:2123"), end("192.0.2.8:2123")
			f.Add(start, b.UDP(one, other, gtpc.End(request, 0)))
			f.Add(start+1e6, b.UDP(other, one, gtpc.End(answered, 0)))
		}))
		if want := nas.m.Identifiers[0].Hash; found["GUTI 56-a0b1c2d3"] != want {
			t.Errorf("the user is not the one of NAS: %v", found)
		}
		if found["TEID 0x43"] == 0 || found["TEID 0x44"] == 0 {
			t.Errorf("%s: the tunnels of P-GW and S-GW are missing: %v", gtpNames[answer], found)
		}
	}
}

// TestNGAPNamesNoUser: the summary warns if a capture also has HTTP/2, with which a 5G core works for users.
func TestNGAPNamesNoUser(t *testing.T) {
	both := []Count{{Protocol: HTTP2.String(), Messages: 30}, {Protocol: NGAP.String(), Messages: 7}}
	for _, c := range []struct {
		protocols []Count
		want      uint64
	}{{both, 7}, {both[:1], 0}, {both[1:], 0}} {
		s := Summary{Protocols: c.protocols}
		counted := uint64(0)
		for _, g := range s.Gaps() {
			counted += g.Count
		}
		if counted != c.want {
			t.Errorf("of %+v %d messages need care, want %d", c.protocols, counted, c.want)
		}
	}
}
