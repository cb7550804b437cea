package ngap_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"vitrine/wire/ngap"
	"vitrine/wire/s1ap"
	"vitrine/wire/wiretest"
)

// A sample is a message of testdata/golden.txt, which pycrate made, with the values
// that pycrate was given.
type sample struct {
	name, amf, ran, nas string
	octets              []byte
}

func golden(t testing.TB) (samples []sample) {
	t.Helper()
	f, err := os.Open("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if words[0] == "#" {
			continue
		}
		octets, err := hex.DecodeString(words[4])
		if err != nil {
			t.Fatal(err)
		}
		samples = append(samples, sample{words[0], words[1], words[2], words[3], octets})
	}
	if len(samples) != 12 {
		t.Fatalf("got %d messages, want 12", len(samples))
	}
	return samples
}

func parse(t testing.TB, b []byte) *ngap.Message {
	t.Helper()
	var m ngap.Message
	if err := m.Parse(b); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	if err := m.Check(); err != nil {
		t.Fatalf("%x: %v", b, err)
	}
	return &m
}

// TestReadsUEs compares identities and NAS messages with those that pycrate was
// given.
func TestReadsUEs(t *testing.T) {
	show := func(has bool, v any) string {
		if !has {
			return "-"
		}
		return fmt.Sprint(v)
	}
	for _, s := range golden(t) {
		u := parse(t, s.octets).UE()
		amf, ran, nas := show(u.HasAMF, u.AMF), show(u.HasRAN, u.RAN), show(u.NAS != nil, hex.EncodeToString(u.NAS))
		if amf != s.amf || ran != s.ran || nas != s.nas {
			t.Errorf("%s: got %s, %s, %s, want %s, %s, %s", s.name, amf, ran, nas, s.amf, s.ran, s.nas)
		}
	}
}

// TestReadsFragments reads a NAS PDU that is too long for one length (X.691 clause 11.9.3.8).
func TestReadsFragments(t *testing.T) {
	const most = 1 << 14
	fragments := func(b, v []byte) []byte {
		b = append(append(b, 0xc1), v[:most]...)
		return append(append(b, byte(len(v)-most)), v[most:]...)
	}
	want := bytes.Repeat([]byte{0x7e}, most)
	b := fragments([]byte{0, 0, 1, 0, byte(ngap.NASPDU), 0}, fragments(nil, want)) // the preamble, the count and the element
	b = fragments([]byte{byte(s1ap.Initiating) << 5, byte(ngap.UplinkNASTransport), 0}, b)
	if got := parse(t, b).UE().NAS; !bytes.Equal(got, want) {
		t.Errorf("got a NAS PDU of %d octets, want %d", len(got), most)
	}
}

func TestReadsNAS(t *testing.T) {
	for octets, want := range map[string]struct {
		of    ngap.Type
		under ngap.Security
		err   error
	}{
		"7e004179000d01":               {ngap.RegistrationRequest, ngap.Plain, nil},
		"7e03a1b2c3d4007e005d02":       {ngap.SecurityModeCommand, ngap.ProtectedNewContext, nil},
		"7e04a1b2c3d4007e005e02":       {ngap.SecurityModeComplete, ngap.CipheredNewContext, nil}, // 5G-EA0
		"7e02a1b2c3d4057e004990":       {0, ngap.Ciphered, nil},                                   // no such type
		"7e02a1b2c3d40564656667":       {0, ngap.Ciphered, nil},
		"7e01a1b2c3d4052e0101c1":       {0, ngap.Protected, nil}, // 5GSM
		"7e02a1b2c3d405":               {0, ngap.Ciphered, nil},
		"7e02a1b2c3d4":                 {0, 0, ngap.ErrNASShort},
		"7e00":                         {0, 0, ngap.ErrNASShort},
		"2e0101c1":                     {0, 0, ngap.ErrNASDiscriminator},
		"7e0541a1b2c3d4057e004179000d": {0, 0, ngap.ErrNASSecurity},
	} {
		b, err := hex.DecodeString(octets)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := ngap.ParseNAS(b); !errors.Is(err, want.err) || n.Type != want.of || n.Security != want.under {
			t.Errorf("%s: got %s with security %d, error %v", octets, n.Type, n.Security, err)
		}
	}
}

func TestRejectsMalformedMessages(t *testing.T) {
	good := golden(t)[1].octets
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	for name, c := range map[string]struct {
		octets       []byte
		parse, check error
	}{
		"empty":              {nil, s1ap.ErrShort, nil},
		"no length":          {good[:3], s1ap.ErrLength, nil},
		"half a length":      {[]byte{0, 1, 0, 0x80}, s1ap.ErrLength, nil},
		"cut":                {good[:len(good)-1], s1ap.ErrLength, nil},
		"octets behind it":   {append(bytes.Clone(good), 0), s1ap.ErrLength, nil},
		"fragmented":         {change(3, 0xc1), s1ap.ErrLength, nil},
		"no container":       {[]byte{0, 1, 0, 2, 0, 0}, s1ap.ErrShort, nil},
		"fourth kind":        {change(0, 0x60), s1ap.ErrKind, nil},
		"extension":          {change(0, 0x80), s1ap.ErrKind, nil},
		"one element more":   {change(6, good[6]-1), nil, s1ap.ErrCount},
		"one element less":   {change(6, good[6]+1), nil, s1ap.ErrCount},
		"long element":       {change(10, 0x7f), nil, s1ap.ErrLength},
		"fragmented element": {change(10, 0xc1), nil, s1ap.ErrLength},
	} {
		var m ngap.Message
		if err := m.Parse(c.octets); !errors.Is(err, c.parse) {
			t.Errorf("%s: %v", name, err)
		} else if err == nil && !errors.Is(m.Check(), c.check) {
			t.Errorf("%s: %v", name, m.Check())
		}
	}
}

// TestTshark compares fields of all golden messages with tshark's reading.
func TestTshark(t *testing.T) {
	samples := golden(t)
	var messages [][]byte
	for _, s := range samples {
		messages = append(messages, s.octets)
	}
	fields := []string{"ngap.procedureCode", "ngap.protocolIEs", "ngap.AMF_UE_NGAP_ID", "ngap.RAN_UE_NGAP_ID", "ngap.NAS_PDU"}
	for i, row := range wiretest.Fields(t, "ngap", messages, append(fields, "nas_5gs.security_header_type", "nas_5gs.mm.message_type")...) {
		m := parse(t, messages[i])
		count := 0
		for e := m.Elements(); e.Next(); {
			count++
		}
		u := m.UE()
		want := []string{strconv.Itoa(int(m.Procedure)), strconv.Itoa(count), "", "", "", "", ""}
		if u.HasAMF {
			want[2] = strconv.FormatUint(u.AMF, 10)
		}
		if u.HasRAN {
			want[3] = strconv.FormatUint(uint64(u.RAN), 10)
		}
		if u.NAS != nil {
			want[4] = hex.EncodeToString(u.NAS)
			n, err := ngap.ParseNAS(u.NAS)
			if err != nil {
				t.Errorf("%s: %v", samples[i].name, err)
			}
			want[5] = strconv.Itoa(int(n.Security))
			if n.Security == ngap.Protected || n.Security == ngap.ProtectedNewContext {
				want[5] += ",0" // of the message inside
			}
			if n.Type != 0 {
				want[6] = fmt.Sprintf("0x%02x", uint8(n.Type))
			}
		}
		for f, got := range want {
			if got != row[f] {
				t.Errorf("%s: field %d: got %s, tshark has %s", samples[i].name, f, got, row[f])
			}
		}
	}
}

func TestNamesProceduresAndTypes(t *testing.T) {
	for got, want := range map[string]string{
		ngap.InitialUEMessage.String():         "InitialUEMessage",
		ngap.UEContextRelease.String():         "UEContextRelease",
		ngap.UplinkNASTransport.String():       "UplinkNASTransport",
		ngap.PDUSessionResourceSetup.String():  "PDUSessionResourceSetup",
		ngap.HandoverPreparation.String():      "HandoverPreparation",
		ngap.PathSwitchRequest.String():        "PathSwitchRequest",
		ngap.Procedure(200).String():           "Procedure 200",
		ngap.RegistrationRequest.String():      "Registration request",
		ngap.DownlinkTransport.String():        "DL NAS transport",
		ngap.SecurityModeComplete.String():     "Security mode complete",
		ngap.Type(0x49).String():               "5GMM message 73",
		ngap.Type(0).String():                  "5GMM message 0",
		ngap.AuthenticationResponse.String():   "Authentication response",
		ngap.PDUSessionResourceModify.String(): "PDUSessionResourceModify",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	samples := golden(t)
	total := uint64(0)
	if n := testing.AllocsPerRun(100, func() {
		for i := range samples {
			var m ngap.Message
			if err := m.Parse(samples[i].octets); err != nil || m.Check() != nil {
				t.Fatal(err)
			}
			u := m.UE()
			total += u.AMF + uint64(u.RAN) + uint64(len(m.Procedure.String()))
			if u.NAS != nil {
				n, err := ngap.ParseNAS(u.NAS)
				if err != nil {
					t.Fatal(err)
				}
				total += uint64(n.Type)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkRead(b *testing.B) {
	samples := golden(b)
	for i := 0; b.Loop(); i++ {
		var m ngap.Message
		if err := m.Parse(samples[i%len(samples)].octets); err != nil {
			b.Fatal(err)
		}
		if u := m.UE(); u.NAS != nil {
			_, _ = ngap.ParseNAS(u.NAS)
		}
	}
}

// FuzzParse checks that reading does not panic or change the octets, and that the
// elements cover the message.
func FuzzParse(f *testing.F) {
	for _, s := range golden(f) {
		f.Add(s.octets)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		_, _ = ngap.ParseNAS(data)
		var m ngap.Message
		if m.Parse(data) != nil {
			return
		}
		covered, e := 0, m.Elements()
		for e.Next() {
			covered += 4 + len(e.Value)
			if len(e.Value) > 127 {
				covered++
			}
		}
		u := m.UE()
		if u.AMF>>40 != 0 || !u.HasAMF && u.AMF != 0 || !u.HasRAN && u.RAN != 0 {
			t.Fatalf("%+v", u)
		}
		if _, err := ngap.ParseNAS(u.NAS); err == nil && len(u.NAS) < 3 {
			t.Fatalf("ParseNAS accepted the short message %x", u.NAS)
		}
		if e.Err == nil && (covered > len(m.IEs) || covered < len(m.IEs)/2) { // a short length may have two octets
			t.Fatalf("the elements cover %d of %d octets", covered, len(m.IEs))
		}
		if !bytes.Equal(data, before) {
			t.Fatal("the message was changed")
		}
	})
}
