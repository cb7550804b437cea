package ue_test

import (
	"bytes"
	"errors"
	"testing"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
)

// A network is the network's side of a UE, as far as NAS goes.
type network struct {
	t      testing.TB
	secret aka.Secret
	plmn   identity.PLMN
	sqn    uint64
	kasme  [32]byte
	keys   *aka.Protection
	down   uint32
}

func newPair(t testing.TB) (*ue.UE, *network) {
	t.Helper()
	imsi, _ := identity.MakeDigits("001010000000001")
	plmn, ok := identity.MakePLMN("001", "01")
	if !ok {
		t.Fatal("invalid PLMN")
	}
	u := ue.New(imsi, plmn)
	return &u, &network{t: t, secret: aka.SecretOf(imsi.String()), plmn: plmn}
}

// challenge returns an Authentication Request.
func (n *network) challenge() []byte {
	n.t.Helper()
	n.sqn++
	v, err := n.secret.Vector([16]byte{byte(n.sqn)}, n.sqn, n.plmn)
	if err != nil {
		n.t.Fatal(err)
	}
	n.kasme = v.KASME
	return (&nas.AuthenticationRequest{KSI: 1, RAND: v.RAND[:], AUTN: v.AUTN[:]}).Append(nil)
}

// protect returns a protected message.
func (n *network) protect(s nas.Security, body []byte) []byte {
	n.t.Helper()
	b := append(nas.AppendFrame(nil, s, uint8(n.down)), body...)
	if s.IsCiphered() {
		n.keys.Cipher(n.down, aka.Downlink, nas.FrameBody(b, 0))
	}
	mac, err := n.keys.MAC(n.down, aka.Downlink, nas.FrameCovered(b, 0))
	if err != nil {
		n.t.Fatal(err)
	}
	nas.SetMAC(b, 0, mac)
	n.down++
	return b
}

// command returns a Security Mode Command with the keys of the last challenge.
func (n *network) command(capability ...byte) []byte {
	n.t.Helper()
	var err error
	if n.keys, err = aka.NewProtection(n.kasme, aka.AES, aka.AES); err != nil {
		n.t.Fatal(err)
	}
	n.down = 0
	m := nas.SecurityModeCommand{Cipher: 2, Integrity: 2, KSI: 1, Capability: capability}
	return n.protect(nas.ProtectedNewContext, m.Append(nil))
}

// secure plays authentication and security mode.
func (n *network) secure(u *ue.UE) {
	n.t.Helper()
	if _, e, err := u.Receive(nil, n.challenge()); err != nil || e != ue.Asked {
		n.t.Fatalf("got event %d, error %v", e, err)
	}
	reply, e, err := u.Receive(nil, n.command(0xa0, 0x20))
	var p nas.PDU
	if err != nil || e != ue.Asked || p.Parse(reply) != nil || p.Security != nas.CipheredNewContext {
		n.t.Fatalf("got event %d, error %v: % x", e, err, reply)
	}
}

func TestChallengeIsAnsweredOnceMoreButNoOldOne(t *testing.T) {
	u, n := newPair(t)
	old, last := n.challenge(), n.challenge()
	one, e, err := u.Receive(nil, last)
	if err != nil || e != ue.Asked {
		t.Fatalf("got event %d, error %v", e, err)
	}
	two, _, err := u.Receive(nil, last)
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("answers to the same challenge: got % x and % x, error %v", one, two, err)
	}
	reply, _, err := u.Receive(nil, old)
	var m nas.Failure
	if err != nil || m.Parse(reply) != nil || m.Cause != nas.CauseSynch || len(m.AUTS) != 14 {
		t.Errorf("answer to an old challenge: got % x, error %v", reply, err)
	}
}

func TestMessagesWithoutIntegrityAreRefused(t *testing.T) {
	u, n := newPair(t)
	accept := (&nas.UpdateAccept{}).Append(nil)
	if _, _, err := u.Receive(nil, accept); !errors.Is(err, ue.ErrIntegrity) {
		t.Errorf("unprotected Tracking Area Update Accept: got %v", err)
	}
	n.secure(u)
	good := n.protect(nas.Ciphered, accept)
	forged := bytes.Clone(good)
	forged[2] ^= 1
	if _, _, err := u.Receive(nil, forged); !errors.Is(err, ue.ErrIntegrity) {
		t.Errorf("forged message: got %v", err)
	}
	again := bytes.Clone(good)
	if _, e, err := u.Receive(nil, good); err != nil || e != ue.Updated {
		t.Errorf("got event %d, error %v", e, err)
	}
	if _, _, err := u.Receive(nil, again); !errors.Is(err, ue.ErrIntegrity) {
		t.Errorf("repeated message: got %v", err)
	}
}

// TestSecurityModeWithOtherCapabilitiesIsRejected checks that nobody can bid the
// algorithms down.
func TestSecurityModeWithOtherCapabilitiesIsRejected(t *testing.T) {
	u, n := newPair(t)
	if _, _, err := u.Receive(nil, n.challenge()); err != nil {
		t.Fatal(err)
	}
	reply, e, err := u.Receive(nil, n.command(0x80, 0x20))
	var m nas.Failure
	if err != nil || e != ue.Untrusted || m.Parse(reply) != nil || m.Type != nas.SecurityModeRejectType {
		t.Errorf("got event %d, error %v: % x", e, err, reply)
	}
}

// open returns the body of a protected message of the UE.
func (n *network) open(message []byte) []byte {
	n.t.Helper()
	var p nas.PDU
	if err := p.Parse(message); err != nil {
		n.t.Fatalf("% x: %v", message, err)
	}
	count := uint32(p.Sequence)
	if mac, err := n.keys.MAC(count, aka.Uplink, p.Covered()); err != nil || mac != p.MAC || !p.Security.IsCiphered() {
		n.t.Fatalf("the UE's message is not protected as required: % x, error %v", message, err)
	}
	n.keys.Cipher(count, aka.Uplink, p.Body)
	return p.Body
}

// TestNewGUTIIsConfirmed gives the UE a new GUTI by a tracking area update and by a reallocation.
func TestNewGUTIIsConfirmed(t *testing.T) {
	u, n := newPair(t)
	n.secure(u)
	for tmsi, c := range []struct {
		event ue.Event
		reply nas.Type
		body  func(identity.GUTI) []byte
	}{
		{ue.Updated, nas.UpdateCompleteType, func(g identity.GUTI) []byte { return (&nas.UpdateAccept{HasGUTI: true, GUTI: g}).Append(nil) }},
		{ue.Asked, nas.ReallocationCompleteType, func(g identity.GUTI) []byte { return (&nas.ReallocationCommand{GUTI: g}).Append(nil) }},
	} {
		g := identity.GUTI{GUMMEI: identity.GUMMEI{PLMN: n.plmn, Group: 1, Code: 2}, TMSI: uint32(tmsi + 1)}
		reply, e, err := u.Receive(nil, n.protect(nas.Ciphered, c.body(g)))
		if err != nil || e != c.event || !u.HasGUTI || u.GUTI != g {
			t.Fatalf("got event %d, GUTI %v, error %v, want event %d, GUTI %v", e, u.GUTI, err, c.event, g)
		}
		var m nas.Empty
		if err := m.Parse(n.open(reply)); err != nil || m.Type != c.reply {
			t.Errorf("the UE answered with %v, error %v, want %v", m.Type, err, c.reply)
		}
	}
}

// TestIdentitiesOfTheEquipment asks for each identity, and for the IMEISV with the security mode. Without
// protection the UE gives only its IMSI (TS 24.301 clause 4.4.4.2).
func TestIdentitiesOfTheEquipment(t *testing.T) {
	const imsi, imei, imeisv = "001010000000001", "010100000000010", "0101000000000100"
	u, n := newPair(t)
	if _, _, err := u.Receive(nil, (&nas.IdentityRequest{Kind: nas.KindIMEI}).Append(nil)); !errors.Is(err, ue.ErrIntegrity) {
		t.Errorf("unprotected request for the IMEI: got error %v", err)
	}
	if _, _, err := u.Receive(nil, n.challenge()); err != nil {
		t.Fatal(err)
	}
	n.keys, _ = aka.NewProtection(n.kasme, aka.AES, aka.AES)
	command := nas.SecurityModeCommand{Cipher: 2, Integrity: 2, KSI: 1, Capability: []byte{0xa0, 0x20}, IMEISV: true}
	reply, _, err := u.Receive(nil, n.protect(nas.ProtectedNewContext, command.Append(nil)))
	if err != nil {
		t.Fatal(err)
	}
	var complete nas.SecurityModeComplete
	if err := complete.Parse(n.open(reply)); err != nil || !complete.HasIMEISV || complete.IMEISV.Digits.String() != imeisv {
		t.Errorf("security mode: got %+v, error %v", complete, err)
	}
	for kind, want := range map[nas.Kind]string{nas.KindIMSI: imsi, nas.KindIMEI: imei, nas.KindIMEISV: imeisv} {
		reply, e, err := u.Receive(nil, n.protect(nas.Ciphered, (&nas.IdentityRequest{Kind: kind}).Append(nil)))
		if err != nil || e != ue.Asked {
			t.Fatalf("identity %d: got event %d, error %v", kind, e, err)
		}
		var m nas.IdentityResponse
		if err := m.Parse(n.open(reply)); err != nil || m.Identity.Kind != kind || m.Identity.Digits.String() != want {
			t.Errorf("identity %d: got %+v, error %v, want %s", kind, m, err, want)
		}
	}
}

func FuzzReceive(f *testing.F) {
	u, n := newPair(f)
	f.Add(n.challenge())
	n.secure(u)
	f.Add(n.protect(nas.Ciphered, (&nas.UpdateAccept{}).Append(nil)))
	f.Add(n.protect(nas.ProtectedNewContext, []byte{7, 0x5d}))
	f.Add((&nas.IdentityRequest{Kind: nas.KindIMSI}).Append(nil))
	f.Add(n.protect(nas.Ciphered, (&nas.IdentityRequest{Kind: nas.KindIMEISV}).Append(nil)))
	f.Add((&nas.Reject{Type: nas.AttachRejectType, Cause: nas.CauseCongestion, T3346: []byte{1}}).Append(nil))
	f.Fuzz(func(t *testing.T, message []byte) {
		u, n := newPair(t)
		_, _, _ = u.Receive(nil, bytes.Clone(message))
		n.secure(u)
		_, _, _ = u.Receive(nil, bytes.Clone(message))
		_ = u.AppendDetach(u.AppendUpdate(u.AppendAttach(nil), true), false)
		if u.HasKeys() {
			_ = u.AppendService(nil)
		}
	})
}

// BenchmarkServiceRequest is what an idle UE does for a call.
func BenchmarkServiceRequest(b *testing.B) {
	u, n := newPair(b)
	n.secure(u)
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		out = u.AppendService(out[:0])
	}
}
