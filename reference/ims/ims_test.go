package ims

import (
	"encoding/xml"
	"testing"
	"time"
)

func TestIdentities(t *testing.T) {
	for text, want := range map[string]int{"sub000000": 0, "sub000042": 42, "sub999999": 999_999, "sub1000000": 1_000_000} {
		if n, ok := Number(text); !ok || n != want || User(want) != text {
			t.Errorf("Number(%q) = %d, %t; User(%d) = %q", text, n, ok, want, User(want))
		}
	}
	for _, text := range []string{"", "sub", "sub1", "sub0000001", "sub-00001", "sub+00001", "sub00000x", "bob", "sub99999999999999999999"} {
		if n, ok := Number(text); ok {
			t.Errorf("Number(%q) = %d, want none", text, n)
		}
	}
	for text, want := range map[string]string{
		"sip:a@ims.test": "a", "a@ims.test": "a", "a": "a", "sip:a": "a", "sip:a@elsewhere": "", "a@ims.test@b": "",
	} {
		if got := UserOf(text); got != want {
			t.Errorf("UserOf(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestHA1 compares with the md5sum of "sub000001@ims.test:ims.test:pw-sub000001".
func TestHA1(t *testing.T) {
	if got := HA1("sub000001@ims.test"); got != "67bb4d1c42bc474260811d852d02c6d5" {
		t.Errorf("got HA1 %s", got)
	}
	if HA1("sub000001") == HA1("sub000001@ims.test") {
		t.Error("HA1 does not depend on the form of the username")
	}
}

func TestServices(t *testing.T) {
	s := DefaultServices()
	s.Incoming = Barring{Active: true, Rules: []Rule{{ID: "a", Allow: true}, {ID: "b"}}}
	document, err := xml.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseServices(document)
	if err != nil || !got.Incoming.Bars() || got.Outgoing.Bars() || !got.Presenting.Active {
		t.Errorf("%s was parsed as %+v, error %v", document, got, err)
	}
	got.Incoming.Active = false
	if got.Incoming.Bars() {
		t.Error("an inactive service bars calls")
	}
}

func TestChargingRecords(t *testing.T) {
	good := `{"accounting_record_type":2,"sip_method":"INVITE","time":"2026-01-02T03:04:05Z"}`
	if r, err := ParseChargingRecord([]byte(good)); err != nil || r.Type != StartRecord || !r.Time.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("got record %+v, error %v", r, err)
	}
	for _, bad := range []string{"", "[]", `{"accounting_record_type":3,"sip_method":"INVITE","time":"2026-01-02T03:04:05Z"}`, `{"accounting_record_type":2,"time":"2026-01-02T03:04:05Z"}`, `{"accounting_record_type":2,"sip_method":"INVITE"}`} {
		if _, err := ParseChargingRecord([]byte(bad)); err == nil {
			t.Errorf("ParseChargingRecord accepted %s", bad)
		}
	}
}

func FuzzParseServices(f *testing.F) {
	document, err := xml.Marshal(DefaultServices())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(document)
	f.Add([]byte(`<simservs xmlns="http://uri.etsi.org/ngn/params/xml/simservs/xcap"><incoming-communication-barring active="yes"/></simservs>`))
	f.Fuzz(func(t *testing.T, document []byte) {
		s, err := ParseServices(document)
		if err != nil {
			return
		}
		again, err := xml.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := ParseServices(again); err != nil || same.Incoming.Bars() != s.Incoming.Bars() || same.Outgoing.Bars() != s.Outgoing.Bars() {
			t.Errorf("services %q changed when they were encoded and parsed: %v", document, err)
		}
	})
}

func FuzzParseChargingRecord(f *testing.F) {
	f.Add([]byte(`{"accounting_record_type":1,"sip_method":"REGISTER","time":"2026-01-02T03:04:05Z","cause_code":200}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := ParseChargingRecord(body); err == nil && (r.Method == "" || r.Time.IsZero()) {
			t.Errorf("ParseChargingRecord parsed %q as %+v", body, r)
		}
	})
}
