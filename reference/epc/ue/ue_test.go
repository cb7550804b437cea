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

func FuzzReceive(f *testing.F) {
	u, n := newPair(f)
	f.Add(n.challenge())
	n.secure(u)
	f.Add(n.protect(nas.Ciphered, (&nas.UpdateAccept{}).Append(nil)))
	f.Add(n.protect(nas.ProtectedNewContext, []byte{7, 0x5d}))
	f.Add((&nas.IdentityRequest{Kind: nas.KindIMSI}).Append(nil))
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
