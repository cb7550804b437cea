package identity_test

import (
	"encoding/hex"
	"testing"

	"vitrine/wire/identity"
)

func plmn(t *testing.T, mcc, mnc string) identity.PLMN {
	t.Helper()
	p, ok := identity.MakePLMN(mcc, mnc)
	if !ok || !p.Valid() {
		t.Fatalf("PLMN %s-%s: got %x, %v", mcc, mnc, p, ok)
	}
	return p
}

// TestPLMN uses the octets of the example networks 001-01 and 310-410.
func TestPLMN(t *testing.T) {
	for _, c := range []struct{ mcc, mnc, octets string }{
		{"001", "01", "00f110"}, {"310", "410", "130014"}, {"208", "93", "02f839"},
	} {
		p := plmn(t, c.mcc, c.mnc)
		if hex.EncodeToString(p[:]) != c.octets || p.String() != c.mcc+"-"+c.mnc {
			t.Errorf("%s-%s: got %x, %v, want %s", c.mcc, c.mnc, p, p, c.octets)
		}
	}
	for _, c := range [][2]string{{"01", "01"}, {"001", "1"}, {"001", "0123"}, {"0a1", "01"}, {"001", "0x"}} {
		if p, ok := identity.MakePLMN(c[0], c[1]); ok {
			t.Errorf("MakePLMN accepted %v as %v", c, p)
		}
	}
	for digits, want := range map[string]string{"00101": "001-01", "310410": "310-410"} {
		if p, ok := identity.ParsePLMN(digits); !ok || p.String() != want {
			t.Errorf("ParsePLMN read %s as %v, %v, want %s", digits, p, ok, want)
		}
	}
	for _, digits := range []string{"", "0010", "0010123", "001-01", "0010x"} {
		if p, ok := identity.ParsePLMN(digits); ok {
			t.Errorf("ParsePLMN accepted %q as %v", digits, p)
		}
	}
	for _, p := range []identity.PLMN{{0xf0, 0xf1, 0x10}, {0x00, 0xa1, 0x10}, {0x00, 0xf1, 0xf0}} {
		if p.Valid() {
			t.Errorf("the invalid PLMN %x counts as valid", p)
		}
	}
}

func TestOctets(t *testing.T) {
	p := plmn(t, "001", "01")
	tai := identity.TAI{PLMN: p, TAC: 0x3039}
	ecgi := identity.ECGI{PLMN: p, Cell: 0x19b01}
	guti := identity.GUTI{GUMMEI: identity.GUMMEI{PLMN: p, Group: 0x8001, Code: 3}, TMSI: 0xdeadbeef}
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{tai.Append(nil), "00f1103039"}, {ecgi.Append(nil), "00f11000019b01"}, {guti.Append(nil), "00f110800103deadbeef"},
	} {
		if hex.EncodeToString(c.got) != c.want {
			t.Errorf("got %x, want %s", c.got, c.want)
		}
	}
	if back, ok := identity.ParseTAI(tai.Append(nil)); !ok || back != tai {
		t.Errorf("got TAI %v, %v", back, ok)
	}
	if back, ok := identity.ParseECGI(ecgi.Append(nil)); !ok || back != ecgi {
		t.Errorf("got ECGI %v, %v", back, ok)
	}
	if back, ok := identity.ParseGUTI(guti.Append(nil)); !ok || back != guti || back.STMSI() != (identity.STMSI{Code: 3, TMSI: 0xdeadbeef}) {
		t.Errorf("got GUTI %v, %v", back, ok)
	}
	for n := range 16 {
		v := make([]byte, n)
		_, a := identity.ParseTAI(v)
		_, b := identity.ParseECGI(v)
		_, c := identity.ParseGUTI(v)
		if a != (n == identity.TAISize) || b != (n == identity.ECGISize) || c != (n == identity.GUTISize) {
			t.Errorf("%d octets: TAI %v, ECGI %v, GUTI %v", n, a, b, c)
		}
	}
}

func TestDigits(t *testing.T) {
	d, ok := identity.MakeDigits("001010123456789")
	if !ok || d.String() != "001010123456789" || d.Len() != 15 || string(d.Bytes()) != d.String() {
		t.Errorf("got digits %v, %v", d, ok)
	}
	for _, s := range []string{"", "12a", "12345678901234567", "/", ":"} {
		if d, ok := identity.MakeDigits(s); ok {
			t.Errorf("MakeDigits accepted %q as %v", s, d)
		}
	}
}
