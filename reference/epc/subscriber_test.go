package epc_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vitrine"
	"vitrine/internal/hosttest"
	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/diameter"
	"vitrine/wire/gtpc"
)

// connected starts an MME and waits for its connection to the HSS.
func (s site) connected(host int) *mme {
	s.t.Helper()
	m := s.mme(host, 1)
	s.until("the MME has an HSS", m.s6a.Connected)
	return m
}

// TestAuthentication checks a vector as a USIM does, and the resynchronisation.
func TestAuthentication(t *testing.T) {
	s := newSite(t)
	s.hss()
	m := s.connected(1)
	secret := aka.SecretOf(imsi(0))
	var last uint64
	for range 3 {
		v, err := m.s6a.Authenticate(t.Context(), imsi(0), plmn(), nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := secret.Answer(v.RAND, v.AUTN, plmn())
		if err != nil || a.RES != v.XRES || a.KASME != v.KASME || a.SQN <= last {
			t.Errorf("got %+v, error %v after SQN %d; vector %+v", a, err, last, v)
		}
		last = a.SQN
	}
	// A USIM that has seen more than the HSS knows.
	v, err := m.s6a.Authenticate(t.Context(), imsi(0), plmn(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const seen = 1 << 30
	auts, err := secret.AUTS(v.RAND, seen)
	if err != nil {
		t.Fatal(err)
	}
	if v, err = m.s6a.Authenticate(t.Context(), imsi(0), plmn(), &diameter.Resync{RAND: v.RAND, AUTS: auts}); err != nil {
		t.Fatal(err)
	}
	if a, err := secret.Answer(v.RAND, v.AUTN, plmn()); err != nil || a.SQN <= seen {
		t.Errorf("after the resynchronisation: got %+v, %v", a, err)
	}
	auts[13] ^= 1
	if _, err := m.s6a.Authenticate(t.Context(), imsi(0), plmn(), &diameter.Resync{RAND: v.RAND, AUTS: auts}); !errors.Is(err, diameter.AuthenticationDataUnavailable) {
		t.Errorf("wrong AUTS: got %v", err)
	}
	if n := s.metric(41, "hss_procedures_total", `procedure="authentication-information"`, `result="2001"`); n != 5 {
		t.Errorf("counted %v vectors", n)
	}
}

// TestSubscribersThatFail checks unknown subscribers and wrong keys.
func TestSubscribersThatFail(t *testing.T) {
	s := newSite(t)
	s.hss("--wrong-key-every", "3")
	m := s.connected(1)
	for _, unknown := range []string{imsi(10), "001010000000000", "0010100000000010", "1"} {
		if _, err := m.s6a.Authenticate(t.Context(), unknown, plmn(), nil); !errors.Is(err, diameter.UserUnknown) {
			t.Errorf("authentication of unknown subscriber %s: got %v", unknown, err)
		}
		if _, err := m.s6a.UpdateLocation(t.Context(), unknown, plmn()); !errors.Is(err, diameter.UserUnknown) {
			t.Errorf("location of unknown subscriber %s: got %v", unknown, err)
		}
		if err := m.s6a.Purge(t.Context(), unknown); !errors.Is(err, diameter.UserUnknown) {
			t.Errorf("purge of unknown subscriber %s: got %v", unknown, err)
		}
	}
	for n := range 6 {
		v, err := m.s6a.Authenticate(t.Context(), imsi(n), plmn(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = aka.SecretOf(imsi(n)).Answer(v.RAND, v.AUTN, plmn())
		if wrong := n%3 == 2; errors.Is(err, aka.ErrMAC) != wrong || !wrong && err != nil {
			t.Errorf("subscriber %d: got %v", n, err)
		}
	}
	if n := s.metric(41, "hss_procedures_total", `result="5001"`); n != 12 {
		t.Errorf("counted %v requests for unknown subscribers, want 12", n)
	}
}

// TestLocation checks a subscription, and that the MME before is cancelled.
func TestLocation(t *testing.T) {
	s := newSite(t)
	s.hss("--ambr-up", "1000", "--ambr-down", "2000")
	first, second := s.connected(1), s.connected(2)
	sub, err := first.s6a.UpdateLocation(t.Context(), imsi(0), plmn())
	if err != nil {
		t.Fatal(err)
	}
	apn, ok := sub.DefaultAPN()
	rates := diameter.Rates{Up: 1000, Down: 2000}
	want := diameter.APN{Context: 1, Name: "internet", PDN: gtpc.PDNv4, QoS: diameter.QoS{QCI: 9, Priority: 8, Preemptable: true}, AMBR: rates}
	if !ok || *apn != want || sub.AMBR != rates || len(sub.APNs) != 2 || sub.APNs[1].QoS.QCI != 5 || sub.MSISDN != "10000000001" {
		t.Errorf("got subscription %+v", sub)
	}
	if _, err := second.s6a.UpdateLocation(t.Context(), imsi(0), plmn()); err != nil {
		t.Fatal(err)
	}
	if got := <-first.cancelled; got != imsi(0) {
		t.Errorf("got cancellation of %s", got)
	}
	s.until("the HSS has the answer", func() bool { return s.metric(41, "hss_cancellations_total", `outcome="done"`) == 1 })
	if err := first.s6a.Purge(t.Context(), imsi(0)); err != nil { // it serves nobody, and says so
		t.Error(err)
	}
	if n := s.metric(41, "hss_registered"); n != 1 {
		t.Errorf("got %v registered subscribers, want 1", n)
	}
	if err := second.s6a.Purge(t.Context(), imsi(0)); err != nil {
		t.Error(err)
	}
	if n := s.metric(41, "hss_registered"); n != 0 {
		t.Errorf("got %v registered subscribers after a purge, want 0", n)
	}
	if _, err := second.s6a.UpdateLocation(t.Context(), imsi(0), plmn()); err != nil {
		t.Error(err)
	}
	if len(second.cancelled) > 0 {
		t.Error("the HSS sent a cancellation to the MME that serves the subscriber")
	}
}

// TestHSSIsAway checks the error without an HSS, and that the MME finds it again.
func TestHSSIsAway(t *testing.T) {
	s := newSite(t)
	m := s.mme(1, 1)
	if _, err := m.s6a.Authenticate(t.Context(), imsi(0), plmn(), nil); !errors.Is(err, diameter.ErrUnreachable) {
		t.Errorf("request before the start: got %v", err)
	}
	stop := s.hss()
	answers := func() bool {
		_, err := m.s6a.Authenticate(t.Context(), imsi(0), plmn(), nil)
		return err == nil
	}
	s.until("the HSS answers", answers)
	stop()
	s.until("the MME has no HSS", func() bool { return !m.s6a.Connected() })
	if _, err := m.s6a.Authenticate(t.Context(), imsi(0), plmn(), nil); !errors.Is(err, diameter.ErrUnreachable) {
		t.Errorf("request after the end: got %v", err)
	}
	s.hss()
	s.until("the HSS answers again", answers)
}

// TestSubscribersOfAFile checks keys of their own, and errors in the file.
func TestSubscribersOfAFile(t *testing.T) {
	s := newSite(t)
	file := filepath.Join(t.TempDir(), "subscribers.csv")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# IMSI, K, OPc\n999990000000001, 465b5ce8b199b49faa5f0a2ee238a6bc, cd63cb71954a9f4e48a5994e37a02baf\n")
	s.hss("--file", file, "--subscribers", "0")
	m := s.connected(1)
	v, err := m.s6a.Authenticate(t.Context(), "999990000000001", plmn(), nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := aka.Secret{
		K:   [16]byte{0x46, 0x5b, 0x5c, 0xe8, 0xb1, 0x99, 0xb4, 0x9f, 0xaa, 0x5f, 0x0a, 0x2e, 0xe2, 0x38, 0xa6, 0xbc},
		OPc: [16]byte{0xcd, 0x63, 0xcb, 0x71, 0x95, 0x4a, 0x9f, 0x4e, 0x48, 0xa5, 0x99, 0x4e, 0x37, 0xa0, 0x2b, 0xaf},
	}
	if a, err := secret.Answer(v.RAND, v.AUTN, plmn()); err != nil || a.RES != v.XRES {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := m.s6a.Authenticate(t.Context(), imsi(0), plmn(), nil); !errors.Is(err, diameter.UserUnknown) {
		t.Errorf("subscriber of the range: got %v", err)
	}
	for text, want := range map[string]string{
		"1,2,3":                 `line 1: "1" is no IMSI`,
		"999990000000001,00,00": "line 1: K",
		"999990000000001," + strings.Repeat("00", 16) + ",zz":                                            "line 1: OPc",
		strings.Repeat("999990000000001,"+strings.Repeat("00", 16)+","+strings.Repeat("00", 16)+"\n", 2): "line 2: IMSI 999990000000001 again",
		"999990000000001": "wrong number of fields",
	} {
		write(text)
		var out, errs hosttest.Output
		err := components["hss"](t.Context(), []string{"--listen", s.at(42, diameter.Port), "--file", file}, &out, &errs)
		if !vitrine.IsBadInput(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
}
