package nas_test

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"vitrine/wire/nas"
)

const minute = time.Minute

func TestTimer(t *testing.T) {
	for _, c := range []struct {
		octet nas.Timer
		want  time.Duration
		ok    bool
	}{
		{0x1f, 62 * time.Second, true}, {0x2c, 12 * minute, true}, {0x49, 54 * minute, true},
		{0x65, 5 * minute, true}, // an unknown unit counts minutes
		{nas.Deactivated, 0, false},
	} {
		if d, ok := c.octet.Duration(); d != c.want || ok != c.ok {
			t.Errorf("%#x: %v, %v", uint8(c.octet), d, ok)
		}
	}
	for d, want := range map[time.Duration]time.Duration{
		-minute: 0, 3 * time.Second: 2 * time.Second, 64 * time.Second: 62 * time.Second, 2*minute - 1: 62 * time.Second, 2 * minute: 2 * minute,
		35 * minute: 31 * minute, 36 * minute: 36 * minute, 5 * time.Hour: 186 * minute,
	} {
		if got, ok := nas.MakeTimer(d).Duration(); got != want || !ok {
			t.Errorf("duration %v was encoded as %v, want %v", d, got, want)
		}
	}
	for d := time.Duration(0); d <= 4*time.Hour; d += 500 * time.Millisecond {
		back, ok := nas.MakeTimer(d).Duration()
		if !ok || back > d || back == 0 && d >= 2*time.Second {
			t.Fatalf("duration %v was encoded as %v", d, back)
		}
	}
}

func TestAPN(t *testing.T) {
	name, ok := nas.AppendName(nil, apn)
	if !ok || string(name) != "internet.example" {
		t.Errorf("%q, %v", name, ok)
	}
	for _, s := range []string{"", "00", "0361", "01610561"} {
		if name, ok := nas.AppendName(nil, octets(s)); ok {
			t.Errorf("name %s was parsed as %q", s, name)
		}
	}
}

// TestRates uses values of tables 9.9.4.2.1 and 9.9.4.3.1, in kbit/s.
func TestRates(t *testing.T) {
	for _, c := range []struct {
		octets string
		want   nas.QoS
	}{
		{"09", nas.QoS{QCI: 9}},
		{"01013f407f", nas.QoS{1, 1, 63, 64, 568}},
		{"0180feff01", nas.QoS{1, 576, 8_640, 0, 1}},
		{"01fefefefe014a4bba", nas.QoS{1, 8_700, 16_000, 17_000, 128_000}},
		{"01fefe0505bbfa0000", nas.QoS{1, 130_000, 256_000, 5, 5}},
		{"01fefefefefafafafa013d3ea1", nas.QoS{1, 260_000, 500_000, 510_000, 1_500_000}},
		{"01fefeffFFfafa0000a2f60000", nas.QoS{1, 1_600_000, 10_000_000, 0, 0}},
	} {
		b := octets(c.octets)
		if q, ok := nas.ParseQoS(b); !ok || q != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.octets, q, ok, c.want)
		}
		if out := c.want.Append(nil); !bytes.Equal(out, b) {
			t.Errorf("%+v was encoded as %x, want %x", c.want, out, b)
		}
	}
	for _, c := range []struct {
		octets string
		want   nas.AMBR
	}{
		{"4080", nas.AMBR{64, 576}},
		{"fefefa6a", nas.AMBR{256_000, 48_000}},
		{"fefedeba0300", nas.AMBR{968_000, 128_000}},
	} {
		b := octets(c.octets)
		if a, ok := nas.ParseAMBR(b); !ok || a != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.octets, a, ok, c.want)
		}
	}
	for n := range 16 {
		_, qos := nas.ParseQoS(make([]byte, n))
		_, ambr := nas.ParseAMBR(make([]byte, n))
		if qos != (n == 1 || n == 5 || n == 9 || n == 13) || ambr != (n == 2 || n == 4 || n == 6) {
			t.Errorf("values of %d octets: QoS %v, AMBR %v", n, qos, ambr)
		}
	}
}

// TestRatesRoundDown checks for many rates that the encoded rate is at most the
// given one, and close to it.
func TestRatesRoundDown(t *testing.T) {
	for rate := uint32(1); rate < 12_000_000; rate += 1 + rate/500 {
		q, _ := nas.ParseQoS(nas.QoS{QCI: 1, MaxUp: rate}.Append(nil))
		if q.MaxUp > rate || rate < 10_000_000 && q.MaxUp < rate-rate/5 || q.MaxDown != 0 {
			t.Fatalf("QoS: rate %d was encoded as %+v", rate, q)
		}
	}
	for rate := uint32(1); rate < 65_000_000; rate += 1 + rate/500 {
		a, _ := nas.ParseAMBR(nas.AMBR{Down: rate, Up: 64}.Append(nil))
		if a.Down > rate || a.Down < rate-rate/5 || a.Up != 64 {
			t.Fatalf("AMBR: rate %d was encoded as %+v", rate, a)
		}
	}
}

func TestIdentity(t *testing.T) {
	for _, s := range []string{
		"", "f600f110800103deadbe", "0600f110800103deadbeef", "f400000001", "07", "f9", "02", "a901", "090a", "0111", "0921f3",
		"f6" + "00f110800103deadbeef00", "0901010101010101010101",
	} {
		if id, ok := nas.ParseIdentity(octets(s)); ok {
			t.Errorf("identity %s was parsed as %+v", s, id)
		}
	}
	for _, s := range []string{"1", "12", "123", "001010123456789", "3548020912345678"} {
		id := nas.Identity{Kind: nas.KindIMEISV, Digits: digits(s)}
		if back, ok := nas.ParseIdentity(id.Append(nil)); !ok || back != id {
			t.Errorf("identity %s was encoded as %x and parsed as %+v", s, id.Append(nil), back)
		}
	}
}

func TestTypeNames(t *testing.T) {
	names := map[string]nas.Type{}
	for i := range 256 {
		name := nas.Type(i).String()
		if other, ok := names[name]; ok || name == "" {
			t.Errorf("%#x and %#x have the same or an empty name %q", i, uint8(other), name)
		}
		names[name] = nas.Type(i)
	}
	for name, want := range map[string]nas.Type{
		"attach-request": nas.AttachRequestType, "extended-service-request": 0x4c, "control-plane-service-request": 0x4d, "service-accept": 0x4f,
		"downlink-nas-transport": 0x62, "uplink-nas-transport": 0x63, "cs-service-notification": 0x64, "message-71": 71,
	} {
		if got, ok := names[name]; !ok || got != want {
			t.Errorf("%s: got type %#x, want %#x", name, uint8(got), uint8(want))
		}
	}
}

// TestTrafficFlowTemplates builds and reads the templates of a dedicated bearer.
func TestTrafficFlowTemplates(t *testing.T) {
	want := nas.Filter{ID: 1, Direction: 3, Precedence: 7, Components: nas.AppendFlow(nil, 17, [4]byte{192, 0, 2, 1}, 5004)}
	b := nas.AppendTFT(nil, nas.CreateTFT, want, nas.Filter{ID: 2, Components: []byte{}})
	template, ok := nas.ParseTFT(b)
	if !ok || template.Operation != nas.CreateTFT || !template.Next() || !reflect.DeepEqual(template.Filter, want) || !template.Next() || template.ID != 2 || template.Next() || template.Malformed {
		t.Errorf("template %x was parsed as %+v, %v", b, template, ok)
	}
	if b = nas.AppendTFT(nil, nas.DeleteFilters, want); !bytes.Equal(b, []byte{0xa1, 1}) {
		t.Errorf("a deletion was encoded as %x", b)
	}
	if template, ok = nas.ParseTFT(b); !ok || !template.Next() || template.ID != 1 || template.Next() {
		t.Errorf("a deletion was parsed as %+v", template)
	}
	for _, bad := range []string{"22310703110000", "21", "2131", "a1", "213107ff"} {
		v := octets(bad)
		template, _ := nas.ParseTFT(v)
		for template.Next() {
		}
		if !template.Malformed {
			t.Errorf("template %s does not count as malformed", bad)
		}
	}
	for _, bad := range [][]byte{nil, {0x01}, {0xe0}} {
		if _, ok := nas.ParseTFT(bad); ok {
			t.Errorf("ParseTFT accepted %x", bad)
		}
	}
}
