package nas_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"

	"vitrine/wire/identity"
	"vitrine/wire/nas"
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
	if len(messages) < 44 {
		t.Fatalf("got %d messages, want at least 44", len(messages))
	}
	return messages
}

// A message is any message of the package.
type message interface {
	Parse(body []byte) error
	Append(b []byte) []byte
}

func digits(s string) identity.Digits {
	d, ok := identity.MakeDigits(s)
	if !ok {
		panic(s)
	}
	return d
}

func octets(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

var (
	test  = identity.PLMN{0x00, 0xf1, 0x10}
	guti  = identity.GUTI{GUMMEI: identity.GUMMEI{PLMN: test, Group: 0x8001, Code: 3}, TMSI: 0xdeadbeef}
	other = identity.GUTI{GUMMEI: identity.GUMMEI{PLMN: identity.PLMN{0x13, 0x00, 0x14}, Group: 2, Code: 255}, TMSI: 1}
	tai   = identity.TAI{PLMN: test, TAC: 12345}
	tais  = nas.AppendTAIs(nil, tai)
	apn   = nas.AppendAPN(nil, "internet.example")
	pco   = octets("80000d00001000")
	ambr  = nas.AMBR{Down: 256_000, Up: 48_000}.Append(nil)
	voice = nas.QoS{QCI: 1, MaxUp: 576, MaxDown: 576, GuaranteedUp: 64, GuaranteedDown: 64}.Append(nil)
	tft   = octets("2121000530115013c4")
	imsi  = nas.Identity{Kind: nas.KindIMSI, Digits: digits("001010123456789")}
	temp  = nas.Identity{Kind: nas.KindGUTI, GUTI: guti}
)

// esm returns the header of an ESM message of a type.
func esm(ebi, pti uint8, t nas.Type) nas.Header {
	return nas.Header{Discriminator: nas.ESM, Type: t, EBI: ebi, PTI: pti}
}

// emmMessages returns the values of the golden EMM messages.
func emmMessages(g map[string][]byte) map[string]message {
	return map[string]message{
		"attach-request-imsi": &nas.AttachRequest{Attach: 1, KSI: 7, Identity: imsi, Capability: octets("a020"), ESM: g["pdn-connectivity-request"]},
		"attach-request-guti": &nas.AttachRequest{
			Attach: 2, KSI: 2, Identity: temp, Capability: octets("e0e00000"), ESM: g["pdn-connectivity-request"],
			HasGUTI: true, GUTI: other, HasLastTAI: true, LastTAI: tai, DRX: octets("0a00"), MSCapability: octets("e5c0"),
			VoiceDomain: octets("03"), HasGUTIType: true, OldGUTIMapped: true,
		},
		"attach-accept": &nas.AttachAccept{
			Result: 1, T3412: nas.MakeTimer(54 * minute), TAIs: tais, ESM: g["default-bearer-request"], HasGUTI: true, GUTI: guti,
			Cause: 18, T3402: octets("2c"), T3423: octets("49"), Equivalents: octets("130014"), Features: octets("01"), ExtendedT3412: octets("21"),
		},
		"attach-complete": &nas.AttachComplete{ESM: g["default-bearer-accept"]},
		"attach-reject":   &nas.Reject{Type: nas.AttachRejectType, Cause: nas.CauseESMFailure, ESM: g["pdn-connectivity-reject"], T3346: octets("21")},
		"detach-request":  &nas.DetachRequest{Detach: 1, SwitchOff: true, KSI: 2, Identity: temp},
		"network-detach":  &nas.NetworkDetach{Detach: 1, Cause: nas.CauseIMSIUnknown},
		"detach-accept":   &nas.Empty{Type: nas.DetachAcceptType},
		"tau-accept": &nas.UpdateAccept{
			T3412: octets("49"), HasGUTI: true, GUTI: other, TAIs: tais, Bearers: octets("2000"), Cause: 18, T3402: octets("2c"),
			T3423: octets("49"), Features: octets("01"),
		},
		"tau-complete":               &nas.Empty{Type: nas.UpdateCompleteType},
		"tau-reject":                 &nas.Reject{Type: nas.UpdateRejectType, Cause: nas.CauseImplicitlyDetached, T3346: octets("21")},
		"service-reject":             &nas.Reject{Type: nas.ServiceRejectType, Cause: nas.CauseIdentityUnderived},
		"guti-reallocation-command":  &nas.ReallocationCommand{GUTI: guti, TAIs: tais},
		"guti-reallocation-complete": &nas.Empty{Type: nas.ReallocationCompleteType},
		"authentication-request": &nas.AuthenticationRequest{
			KSI: 2, RAND: octets("000102030405060708090a0b0c0d0e0f"), AUTN: octets("101112131415161718191a1b1c1d1e1f"),
		},
		"authentication-response": &nas.AuthenticationResponse{RES: octets("0001020304050607")},
		"authentication-reject":   &nas.Empty{Type: nas.AuthenticationRejectType},
		"authentication-failure":  &nas.Failure{Type: nas.AuthenticationFailureType, Cause: nas.CauseSynch, AUTS: octets("000102030405060708090a0b0c0d")},
		"identity-request":        &nas.IdentityRequest{Kind: nas.KindIMSI},
		"identity-response":       &nas.IdentityResponse{Identity: imsi},
		"security-mode-command":   &nas.SecurityModeCommand{Integrity: 2, KSI: 2, Capability: octets("a020"), IMEISV: true},
		"security-mode-complete": &nas.SecurityModeComplete{
			HasIMEISV: true, IMEISV: nas.Identity{Kind: nas.KindIMEISV, Digits: digits("3548020912345678")},
		},
		"security-mode-reject": &nas.Failure{Type: nas.SecurityModeRejectType, Cause: nas.CauseCapabilityMismatch},
		"emm-status":           &nas.Failure{Type: nas.EMMStatusType, Cause: nas.CauseTypeUnknown},
	}
}

// esmMessages returns the values of the golden ESM messages.
func esmMessages() map[string]message {
	return map[string]message{
		"pdn-connectivity-request": &nas.ConnectivityRequest{
			Header: esm(0, 1, nas.ConnectivityRequestType), Request: 1, PDN: nas.PDNv4, Transfer: true, APN: apn, PCO: pco,
		},
		"pdn-connectivity-reject": &nas.Release{Header: esm(0, 1, nas.ConnectivityRejectType), Cause: nas.ESMCauseUnknownAPN},
		"default-bearer-request": &nas.DefaultBearerRequest{
			Header: esm(5, 1, nas.DefaultBearerRequestType), QoS: nas.QoS{QCI: 9}.Append(nil), APN: apn,
			Address: nas.Address{Type: nas.PDNv4, V4: netip.MustParseAddr("45.45.0.2")}.Append(nil), AMBR: ambr, Cause: nas.ESMCauseIPv4Only, PCO: pco,
		},
		"default-bearer-accept": &nas.BearerAccept{Header: esm(5, 0, nas.DefaultBearerAcceptType)},
		"dedicated-bearer-request": &nas.DedicatedBearerRequest{
			Header: esm(6, 0, nas.DedicatedBearerRequestType), Linked: 5, QoS: voice, TFT: tft, PCO: pco,
		},
		"dedicated-bearer-accept":   &nas.BearerAccept{Header: esm(6, 0, nas.DedicatedBearerAcceptType)},
		"dedicated-bearer-reject":   &nas.Release{Header: esm(6, 0, nas.DedicatedBearerRejectType), Cause: nas.ESMCauseResources},
		"modify-bearer-accept":      &nas.BearerAccept{Header: esm(6, 0, nas.ModifyBearerAcceptType)},
		"deactivate-bearer-request": &nas.Release{Header: esm(6, 3, nas.DeactivateRequestType), Cause: nas.ESMCauseRegular},
		"deactivate-bearer-accept":  &nas.BearerAccept{Header: esm(6, 0, nas.DeactivateAcceptType)},
		"bearer-resource-allocation-request": &nas.ResourceRequest{
			Header: esm(0, 2, nas.AllocationRequestType), Bearer: 5, Aggregate: tft, QoS: voice, PCO: pco,
		},
		"bearer-resource-allocation-reject": &nas.Release{Header: esm(0, 2, nas.AllocationRejectType), Cause: nas.ESMCauseResources},
		"bearer-resource-modification-request": &nas.ResourceRequest{
			Header: esm(0, 3, nas.ModificationRequestType), Bearer: 6, Aggregate: octets("a101"), Cause: nas.ESMCauseRegular,
		},
		"bearer-resource-modification-reject": &nas.Release{Header: esm(0, 3, nas.ModificationRejectType), Cause: nas.ESMCauseUnknownBearer},
		"esm-information-request":             &nas.ESMInformationRequest{Header: esm(0, 1, nas.ESMInformationRequestType)},
		"esm-information-response":            &nas.ESMInformationResponse{Header: esm(0, 1, nas.ESMInformationResponseType), APN: apn, PCO: pco},
		"esm-status":                          &nas.Release{Header: esm(5, 0, nas.ESMStatusType), Cause: nas.ESMCauseUnknownBearer},
	}
}

// TestGolden checks that every message of pycrate is parsed to the values that
// pycrate was given, and that these values are appended as the same octets.
func TestGolden(t *testing.T) {
	g := golden(t)
	all := emmMessages(g)
	for name, m := range esmMessages() {
		all[name] = m
	}
	for name, want := range all {
		b, ok := g[name]
		if !ok {
			t.Errorf("%s is not in golden.txt", name)
			continue
		}
		if out := want.Append(nil); !bytes.Equal(out, b) {
			t.Errorf("%s: encoded as %x, want %x", name, out, b)
		}
		got := reflect.New(reflect.TypeOf(want).Elem()).Interface().(message)
		if err := got.Parse(b); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: parsed as %+v, %v, want %+v", name, got, err, want)
		}
		if _, err := nas.ParseHeader(b); err != nil {
			t.Errorf("%s: header: %v", name, err)
		}
	}
}

// TestUnknownElements parses messages with elements that have no field here, of
// all formats, and checks the fields around them.
func TestUnknownElements(t *testing.T) {
	g := golden(t)
	var attach nas.AttachRequest
	if err := attach.Parse(g["attach-request-even-unknown"]); err != nil || attach.Identity.Digits.String() != "00101012345678" || !bytes.Equal(attach.ESM, g["pdn-connectivity-request"]) {
		t.Errorf("attach request: got %+v, error %v", attach, err)
	}
	var update nas.UpdateRequest
	want := nas.UpdateRequest{
		Active: true, KSI: 1, GUTI: temp, HasNewGUTI: true, NewGUTI: other, Capability: octets("e0e0"), HasLastTAI: true, LastTAI: tai,
		DRX: octets("0a00"), Bearers: octets("2000"),
	}
	if err := update.Parse(g["tau-request"]); err != nil || !reflect.DeepEqual(update, want) {
		t.Errorf("tracking area update request: got %+v, error %v", update, err)
	}
	if again := want.Append(nil); !bytes.Equal(again, bytes.Replace(g["tau-request"], octets("b2500b"), octets("500b"), 1)) {
		t.Errorf("tracking area update request was encoded as %x", again)
	}
	if err := update.Parse(append(bytes.Clone(g["tau-request"]), 0xa1)); err != nil || !update.NewRadio {
		t.Errorf("tracking area update request for a new radio capability: got %+v, error %v", update, err)
	}
	if again := (&nas.UpdateRequest{GUTI: temp, NewRadio: true}).Append(nil); again[len(again)-1] != 0xa1 {
		t.Errorf("tracking area update request for a new radio capability was encoded as %x", again)
	}
	var bearer nas.DefaultBearerRequest
	if err := bearer.Parse(g["default-bearer-request-unknown"]); err != nil || bearer.EBI != 6 || !bytes.Equal(bearer.PCO, pco) {
		t.Errorf("default bearer request: got %+v, error %v", bearer, err)
	}
	a, ok := nas.ParseAddress(bearer.Address)
	if !ok || a.Type != nas.PDNv4v6 || a.V4.String() != "45.45.0.2" || a.Interface != [8]byte{7: 1} {
		t.Errorf("got address %+v, %v", a, ok)
	}
	if again := a.Append(nil); !bytes.Equal(again, bearer.Address) {
		t.Errorf("address was encoded as %x", again)
	}
	status := append(g["emm-status"], 0x0f, 0x01, 0x00)
	if err := new(nas.Failure).Parse(status); !errors.Is(err, nas.ErrComprehension) {
		t.Errorf("element that requires comprehension: got error %v", err)
	}
}

// TestRepeatedElements checks that only the first of repeated elements counts (clause 7.6.3).
func TestRepeatedElements(t *testing.T) {
	accept := append((&nas.UpdateAccept{T3412: octets("49")}).Append(nil), 0x5a, 0x21) // without a length
	var update nas.UpdateAccept
	if err := update.Parse(accept); err != nil || !bytes.Equal(update.T3412, octets("49")) {
		t.Errorf("tracking area update accept: got %+v, error %v", update, err)
	}
	request := nas.ConnectivityRequest{Header: nas.Bearer(0, 1), Request: 1, PDN: nas.PDNv4, Transfer: true, APN: apn}
	again := append(request.Append(nil), 0xd0, 0x28, 2, 1, 'x') // half an octet; with a length
	var connectivity nas.ConnectivityRequest
	if err := connectivity.Parse(again); err != nil || !connectivity.Transfer || !bytes.Equal(connectivity.APN, apn) {
		t.Errorf("PDN connectivity request: got %+v, error %v", connectivity, err)
	}
}
