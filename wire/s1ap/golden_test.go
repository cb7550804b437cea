package s1ap_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"net/netip"
	"os"
	"strings"
	"testing"

	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// golden returns the messages of testdata/golden.txt, which pycrate made.
func golden(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := os.Open("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	messages := map[string][]byte{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, octets, ok := strings.Cut(lines.Text(), " ")
		if !ok || name == "#" {
			continue
		}
		if messages[name], err = hex.DecodeString(octets); err != nil {
			t.Fatal(err)
		}
	}
	if len(messages) < 35 {
		t.Fatalf("got %d messages, want at least 35", len(messages))
	}
	return messages
}

var (
	test   = identity.PLMN{0x00, 0xf1, 0x10}
	other  = identity.PLMN{0x13, 0x00, 0x14}
	tai    = identity.TAI{PLMN: test, TAC: 12345}
	ecgi   = identity.ECGI{PLMN: test, Cell: 0x19b01}
	stmsi  = identity.STMSI{Code: 3, TMSI: 0xdeadbeef}
	gummei = identity.GUMMEI{PLMN: test, Group: 0x8001, Code: 3}
	enb    = s1ap.ENB{PLMN: test, ID: 0x19b}
	home   = s1ap.ENB{PLMN: other, ID: 0x1234567, Kind: s1ap.HomeENB}
	v4     = netip.MustParseAddr("127.0.0.7")
	v6     = netip.MustParseAddr("2001:db8::1")
	tunnel = s1ap.Tunnel{V4: v4, TEID: 0x01020304}
	over6  = s1ap.Tunnel{V6: v6, TEID: 0x01020304}
	both   = s1ap.Tunnel{V4: v4, V6: v6, TEID: 0x01020304}
	plain  = s1ap.QoS{QCI: 9, Priority: 8, Preemptable: true}
	gbr    = s1ap.QoS{QCI: 1, Priority: 2, MayPreempt: true, Preemptable: true, GBR: true, MaxDown: 10_000_000_000, MaxUp: 64_000, GuaranteedDown: 255}
	nas, _ = hex.DecodeString("07417108091010103254769802a0200003000000")
	key    = func() (k [32]byte) {
		for i := range k {
			k[i] = byte(i)
		}
		return k
	}()
	long = func() []byte {
		b := make([]byte, 512)
		for i := range b {
			b[i] = byte(i)
		}
		return b
	}()
)

// ids appends the identities of a UE.
func ids(b []byte, c s1ap.Criticality, mme, enb uint32) []byte {
	return s1ap.AppendENBUEID(s1ap.AppendMMEUEID(b, s1ap.MMEUEID, c, mme), c, enb)
}

// list appends a list of E-RABs.
func list(b []byte, id s1ap.ID, c s1ap.Criticality, item s1ap.ID, rabs ...s1ap.ERAB) []byte {
	start := len(b)
	b = s1ap.BeginList(b, id, c, len(rabs))
	for _, r := range rabs {
		b = s1ap.AppendERAB(b, item, c, r)
	}
	return s1ap.EndElement(b, start)
}

// A sample is a golden message and the elements that make it.
type sample struct {
	name        string
	kind        s1ap.Kind
	procedure   s1ap.Procedure
	criticality s1ap.Criticality
	elements    func(b []byte) []byte
}

const (
	reject = s1ap.Reject
	ignore = s1ap.Ignore
)

// managementSamples returns the messages without a UE, the messages that begin and end a
// UE's connection, and the messages of a dedicated bearer.
func managementSamples() []sample {
	return []sample{
		{"s1-setup-request", s1ap.Initiating, s1ap.S1Setup, reject, nil},
		{"s1-setup-request-home", s1ap.Initiating, s1ap.S1Setup, reject, func(b []byte) []byte {
			b = s1ap.AppendENB(b, reject, home)
			b = s1ap.AppendAreas(b, reject, tai)
			return s1ap.AppendEnum(b, s1ap.DefaultPagingDRX, ignore, 3)
		}},
		{"s1-setup-response", s1ap.Successful, s1ap.S1Setup, reject, func(b []byte) []byte {
			b = s1ap.AppendName(b, s1ap.MMEName, ignore, "a name of an MME")
			b = s1ap.AppendServed(b, reject, gummei.PLMN, gummei.Group, gummei.Code)
			return s1ap.AppendElement(b, s1ap.RelativeCapacity, ignore, []byte{255})
		}},
		{"s1-setup-failure", s1ap.Unsuccessful, s1ap.S1Setup, reject, func(b []byte) []byte {
			return s1ap.AppendEnum(s1ap.AppendCause(b, ignore, s1ap.CauseUnknownPLMN), s1ap.TimeToWait, ignore, 3)
		}},
		{"initial-ue-message", s1ap.Initiating, s1ap.InitialUEMessage, ignore, func(b []byte) []byte {
			b = s1ap.AppendNAS(s1ap.AppendENBUEID(b, reject, 7), s1ap.NASPDU, reject, nas)
			b = s1ap.AppendECGI(s1ap.AppendTAI(b, reject, tai), ignore, ecgi)
			b = s1ap.AppendEnum(b, s1ap.EstablishmentCause, ignore, 3)
			return s1ap.AppendElement(s1ap.AppendSTMSI(b, reject, stmsi), s1ap.GUMMEI, reject, []byte{0, 0, 0xf1, 0x10, 0x80, 1, 3})
		}},
		{"initial-ue-message-extension", s1ap.Initiating, s1ap.InitialUEMessage, ignore, func(b []byte) []byte {
			b = s1ap.AppendNAS(s1ap.AppendENBUEID(b, reject, 0xffffff), s1ap.NASPDU, reject, []byte{1})
			b = s1ap.AppendECGI(s1ap.AppendTAI(b, reject, tai), ignore, ecgi)
			return s1ap.AppendEnum(b, s1ap.EstablishmentCause, ignore, 6)
		}},
		{"downlink-nas-transport", s1ap.Initiating, s1ap.DownlinkNASTransport, ignore, func(b []byte) []byte {
			return s1ap.AppendNAS(ids(b, reject, 0xffffffff, 0), s1ap.NASPDU, reject, long)
		}},
		{"uplink-nas-transport", s1ap.Initiating, s1ap.UplinkNASTransport, ignore, func(b []byte) []byte {
			b = s1ap.AppendNAS(ids(b, reject, 256, 65536), s1ap.NASPDU, reject, nas)
			return s1ap.AppendTAI(s1ap.AppendECGI(b, ignore, ecgi), ignore, tai)
		}},
		{"ue-context-release-request", s1ap.Initiating, s1ap.UEContextReleaseRequest, ignore, func(b []byte) []byte {
			return s1ap.AppendCause(ids(b, reject, 1, 2), ignore, s1ap.CauseUserInactivity)
		}},
		{"ue-context-release-command", s1ap.Initiating, s1ap.UEContextRelease, reject, func(b []byte) []byte {
			return s1ap.AppendCause(s1ap.AppendUEIDs(b, reject, 1, 2), ignore, s1ap.CauseDetach)
		}},
		{"ue-context-release-command-mme", s1ap.Initiating, s1ap.UEContextRelease, reject, nil},
		{"ue-context-release-complete", s1ap.Successful, s1ap.UEContextRelease, reject, func(b []byte) []byte { return ids(b, ignore, 1, 2) }},
		{"e-rab-setup-request", s1ap.Initiating, s1ap.ERABSetup, reject, func(b []byte) []byte {
			return list(ids(b, reject, 1, 2), s1ap.ToBeSetupBearer, reject, s1ap.ToBeSetupItemBearer, s1ap.ERAB{ID: 6, QoS: gbr, Tunnel: tunnel, NAS: nas})
		}},
		{"e-rab-setup-response", s1ap.Successful, s1ap.ERABSetup, reject, func(b []byte) []byte {
			return list(ids(b, ignore, 1, 2), s1ap.SetupListBearer, ignore, s1ap.SetupItemBearer, s1ap.ERAB{ID: 6, Tunnel: tunnel})
		}},
		{"e-rab-setup-response-failed", s1ap.Successful, s1ap.ERABSetup, reject, func(b []byte) []byte {
			return list(ids(b, ignore, 1, 2), s1ap.FailedToSetupBearer, ignore, s1ap.ERABItem, s1ap.ERAB{ID: 6, Cause: s1ap.CauseNoRadioResources})
		}},
		{"e-rab-release-command", s1ap.Initiating, s1ap.ERABRelease, reject, func(b []byte) []byte {
			b = s1ap.AppendBitRates(ids(b, reject, 1, 2), reject, 256_000_000, 48_000_000)
			b = list(b, s1ap.ToBeReleased, ignore, s1ap.ERABItem, s1ap.ERAB{ID: 6, Cause: s1ap.CauseNormalRelease})
			return s1ap.AppendNAS(b, s1ap.NASPDU, ignore, nas)
		}},
		{"e-rab-release-response", s1ap.Successful, s1ap.ERABRelease, reject, func(b []byte) []byte {
			return list(ids(b, ignore, 1, 2), s1ap.ReleasedBearer, ignore, s1ap.ReleaseItemBearerRel, s1ap.ERAB{ID: 6})
		}},
		{"reset", s1ap.Initiating, s1ap.Reset, reject, func(b []byte) []byte {
			return s1ap.AppendReset(s1ap.AppendCause(b, ignore, s1ap.CauseIntervention))
		}},
		{"reset-part", s1ap.Initiating, s1ap.Reset, reject, func(b []byte) []byte {
			b = s1ap.AppendCause(b, ignore, s1ap.Cause{Group: s1ap.RadioNetwork, Value: 3})
			return s1ap.AppendReset(b, someConnections...)
		}},
		{"reset-acknowledge", s1ap.Successful, s1ap.Reset, reject, func(b []byte) []byte { return b }},
		{"reset-acknowledge-part", s1ap.Successful, s1ap.Reset, reject, func(b []byte) []byte {
			return s1ap.AppendConnections(b, someConnections[:2]...)
		}},
		{"paging-imsi", s1ap.Initiating, s1ap.Paging, ignore, nil},
		{"error-indication", s1ap.Initiating, s1ap.ErrorIndication, ignore, func(b []byte) []byte {
			return s1ap.AppendCause(ids(b, ignore, 1, 2), ignore, s1ap.CauseTransferSyntax)
		}},
	}
}

// bearerSamples returns the messages of paging, initial contexts and handovers.
func bearerSamples() []sample {
	return []sample{
		{"paging", s1ap.Initiating, s1ap.Paging, ignore, func(b []byte) []byte {
			b = s1ap.AppendPaged(s1ap.AppendIndex(b, ignore, 777), ignore, stmsi)
			b = s1ap.AppendEnum(b, s1ap.CNDomain, ignore, 0)
			start := len(b)
			b = s1ap.AppendTAIItem(s1ap.BeginList(b, s1ap.TAIList, ignore, 2), ignore, tai)
			return s1ap.EndElement(s1ap.AppendTAIItem(b, ignore, identity.TAI{PLMN: other, TAC: 1}), start)
		}},
		{"initial-context-setup-request", s1ap.Initiating, s1ap.InitialContextSetup, reject, func(b []byte) []byte {
			b = s1ap.AppendBitRates(ids(b, reject, 1, 2), reject, 256_000_000, 48_000_000)
			b = list(b, s1ap.ToBeSetupContext, reject, s1ap.ToBeSetupItemContext,
				s1ap.ERAB{ID: 5, QoS: plain, Tunnel: tunnel, NAS: nas}, s1ap.ERAB{ID: 15, QoS: gbr, Tunnel: both})
			b = s1ap.AppendCapabilities(b, reject, 0xe000, 0x6000)
			return s1ap.AppendNAS(s1ap.AppendElement(b, s1ap.SecurityKey, reject, key[:]), s1ap.RadioCapability, ignore, long)
		}},
		{"initial-context-setup-response", s1ap.Successful, s1ap.InitialContextSetup, reject, func(b []byte) []byte {
			b = list(ids(b, ignore, 1, 2), s1ap.SetupListContext, ignore, s1ap.SetupItemContext, s1ap.ERAB{ID: 5, Tunnel: over6})
			return list(b, s1ap.FailedToSetupContext, ignore, s1ap.ERABItem, s1ap.ERAB{ID: 6, Cause: s1ap.Cause{Group: s1ap.RadioNetwork}})
		}},
		{"initial-context-setup-failure", s1ap.Unsuccessful, s1ap.InitialContextSetup, reject, func(b []byte) []byte {
			return s1ap.AppendCause(ids(b, ignore, 1, 2), ignore, s1ap.CauseConnectionLost)
		}},
		{"path-switch-request", s1ap.Initiating, s1ap.PathSwitchRequest, reject, func(b []byte) []byte {
			b = list(s1ap.AppendENBUEID(b, reject, 3), s1ap.ToBeSwitchedDL, reject, s1ap.ToBeSwitchedItemDL, s1ap.ERAB{ID: 5, Tunnel: tunnel})
			b = s1ap.AppendECGI(s1ap.AppendMMEUEID(b, s1ap.SourceMMEUEID, reject, 1), ignore, ecgi)
			return s1ap.AppendCapabilities(s1ap.AppendTAI(b, ignore, tai), ignore, 0xe000, 0x6000)
		}},
		{"path-switch-acknowledge", s1ap.Successful, s1ap.PathSwitchRequest, reject, func(b []byte) []byte {
			b = list(ids(b, ignore, 1, 3), s1ap.ToBeSwitchedUL, ignore, s1ap.ToBeSwitchedItemUL, s1ap.ERAB{ID: 5, Tunnel: tunnel})
			return s1ap.AppendNextHop(b, reject, 5, key)
		}},
		{"path-switch-failure", s1ap.Unsuccessful, s1ap.PathSwitchRequest, reject, func(b []byte) []byte {
			return s1ap.AppendCause(ids(b, ignore, 1, 3), ignore, s1ap.CauseSemantic)
		}},
		{"handover-required", s1ap.Initiating, s1ap.HandoverPreparation, reject, func(b []byte) []byte {
			b = s1ap.AppendEnum(ids(b, reject, 1, 2), s1ap.HandoverType, reject, 0)
			b = s1ap.AppendTarget(s1ap.AppendCause(b, ignore, s1ap.CauseHandoverDesirable), reject, enb, tai)
			return s1ap.AppendNAS(b, s1ap.SourceToTarget, reject, long)
		}},
		{"handover-request", s1ap.Initiating, s1ap.HandoverResourceAllocation, reject, func(b []byte) []byte {
			b = s1ap.AppendEnum(s1ap.AppendMMEUEID(b, s1ap.MMEUEID, reject, 9), s1ap.HandoverType, reject, 0)
			b = s1ap.AppendBitRates(s1ap.AppendCause(b, ignore, s1ap.CauseHandoverDesirable), reject, 256_000_000, 48_000_000)
			b = list(b, s1ap.ToBeSetupHO, reject, s1ap.ToBeSetupItemHO, s1ap.ERAB{ID: 5, Tunnel: tunnel, QoS: plain})
			b = s1ap.AppendCapabilities(s1ap.AppendNAS(b, s1ap.SourceToTarget, reject, long), reject, 0xe000, 0x6000)
			return s1ap.AppendNextHop(b, reject, 1, key)
		}},
		{"handover-request-acknowledge", s1ap.Successful, s1ap.HandoverResourceAllocation, reject, func(b []byte) []byte {
			b = list(ids(b, ignore, 9, 4), s1ap.AdmittedList, ignore, s1ap.AdmittedItem,
				s1ap.ERAB{ID: 5, Tunnel: tunnel, ForwardDown: tunnel, ForwardUp: over6}, s1ap.ERAB{ID: 6, Tunnel: tunnel})
			b = list(b, s1ap.FailedToSetupHO, ignore, s1ap.FailedToSetupItemHO, s1ap.ERAB{ID: 7, Cause: s1ap.Cause{Group: s1ap.Transport, Value: 1}})
			return s1ap.AppendNAS(b, s1ap.TargetToSource, reject, nas)
		}},
		{"handover-command", s1ap.Successful, s1ap.HandoverPreparation, reject, func(b []byte) []byte {
			b = s1ap.AppendEnum(ids(b, reject, 1, 2), s1ap.HandoverType, reject, 0)
			b = list(b, s1ap.SubjectToForwarding, ignore, s1ap.DataForwardingItem, s1ap.ERAB{ID: 5, ForwardDown: tunnel})
			return s1ap.AppendNAS(b, s1ap.TargetToSource, reject, nas)
		}},
		{"handover-notify", s1ap.Initiating, s1ap.HandoverNotification, ignore, func(b []byte) []byte {
			return s1ap.AppendTAI(s1ap.AppendECGI(ids(b, reject, 9, 4), ignore, ecgi), ignore, tai)
		}},
	}
}

// someConnections are the connections in the golden Reset.
var someConnections = []s1ap.Connection{
	{MME: 70000, ENB: 2, HasMME: true, HasENB: true}, {ENB: 0xffffff, HasENB: true}, {MME: 1, HasMME: true},
}

// TestGolden checks the header of every message of pycrate, and that its values
// are appended as the same octets.
func TestGolden(t *testing.T) {
	g := golden(t)
	samples := append(managementSamples(), bearerSamples()...)
	if len(samples) != len(g) {
		t.Errorf("got %d samples for %d golden messages", len(samples), len(g))
	}
	for _, s := range samples {
		want := g[s.name]
		var m s1ap.Message
		if err := m.Parse(want); err != nil || m.Check() != nil {
			t.Errorf("%s: %v, %v", s.name, err, m.Check())
			continue
		}
		if m.Kind != s.kind || m.Procedure != s.procedure || m.Criticality != s.criticality || !bytes.Equal(m.Octets, want) {
			t.Errorf("%s: %d %v %d", s.name, m.Kind, m.Procedure, m.Criticality)
		}
		if s.elements == nil { // only decoded: this package does not append such values
			continue
		}
		b := s1ap.AppendHeader([]byte("start"), s.kind, s.procedure, s.criticality)
		if b = s1ap.End(s.elements(b), 5); !bytes.Equal(b[5:], want) {
			t.Errorf("%s: appended\n%x; want\n%x", s.name, b[5:], want)
		}
	}
}
