package gtpc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"

	"vitrine/wire/gtpc"
	"vitrine/wire/gtpc/gtpctest"
	"vitrine/wire/nas"
)

func createSession(sequence uint32) []byte {
	b := gtpc.AppendHeader(nil, gtpc.CreateSessionRequest, 0, sequence)
	b = gtpc.AppendDigits(b, gtpc.IMSI, "001010123456789")
	b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 0x11223344, V4: netip.MustParseAddr("127.0.0.1")})
	b = gtpc.AppendElement(b, gtpc.APN, 0, nas.AppendAPN(nil, "internet.example")...)
	group := len(b)
	b = gtpc.BeginGroup(b, gtpc.BearerContext, 0)
	b = gtpc.AppendElement(b, gtpc.EBI, 0, 5)
	b = gtpc.EndGroup(b, group)
	return gtpc.End(gtpc.AppendRecovery(b, 7), 0)
}

func TestParseWhatWasBuilt(t *testing.T) {
	b := createSession(0x123456)
	var m gtpc.Message
	n, err := m.Parse(append(b, "rest"...))
	if err != nil || n != len(b) {
		t.Fatalf("Parse: got %d, %v, want %d", n, err, len(b))
	}
	if m.Type != gtpc.CreateSessionRequest || !m.HasTEID || m.TEID != 0 || m.Sequence != 0x123456 || m.Piggyback {
		t.Errorf("got header %+v", m)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	v, _ := m.Find(gtpc.IMSI, 0)
	if d, ok := gtpc.ParseDigits(v); !ok || d.String() != "001010123456789" {
		t.Errorf("got IMSI %v, %v", d, ok)
	}
	v, _ = m.Find(gtpc.FTEID, 0)
	want := gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 0x11223344, V4: netip.MustParseAddr("127.0.0.1")}
	if f, ok := gtpc.ParseFTEID(v); !ok || f != want {
		t.Errorf("got F-TEID %+v, %v", f, ok)
	}
	if _, ok := m.Find(gtpc.FTEID, 1); ok {
		t.Error("found an F-TEID of instance 1")
	}
	v, _ = m.Find(gtpc.BearerContext, 0)
	inner := gtpc.Group(v)
	if !inner.Next() || inner.Type != gtpc.EBI || !bytes.Equal(inner.Value, []byte{5}) || inner.Next() || inner.Err != nil {
		t.Errorf("bearer context: got %+v", inner)
	}
	if v, _ := m.Find(gtpc.Recovery, 0); !bytes.Equal(v, []byte{7}) {
		t.Errorf("got recovery %v, want 7", v)
	}
}

func TestSetSequence(t *testing.T) {
	for _, b := range [][]byte{createSession(1), gtpc.AppendEchoRequest(nil, 1, 9)} {
		var m gtpc.Message
		if _, err := m.Parse(b); err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(b)
		m.SetSequence(0xabcdef)
		var again gtpc.Message
		if _, err := again.Parse(b); err != nil || again.Sequence != 0xabcdef || m.Sequence != 0xabcdef || !again.IsCommand() {
			t.Errorf("after SetSequence: got %+v, %v", again, err)
		}
		again.SetSequence(1)
		if !bytes.Equal(b, before) {
			t.Error("SetSequence changed more than the sequence number")
		}
	}
}

func TestPiggybacked(t *testing.T) {
	b := gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, 1, 2)
	b = gtpc.End(gtpc.AppendCause(b, gtpc.RequestAccepted), 0)
	gtpc.SetPiggyback(b, 0)
	start := len(b)
	b = gtpc.AppendHeader(b, gtpc.CreateBearerRequest, 1, 3)
	b = gtpc.End(gtpc.AppendElement(b, gtpc.EBI, 0, 5), start)

	var first, second gtpc.Message
	n, err := first.Parse(b)
	if err != nil || n != start || !first.Piggyback || first.Type != gtpc.CreateSessionResponse {
		t.Fatalf("first message: got %+v, error %v", first, err)
	}
	if n, err := second.Parse(b[n:]); err != nil || n != len(b)-start || second.Piggyback || second.Sequence != 3 {
		t.Fatalf("second message: got %+v, error %v", second, err)
	}
}

func TestRefused(t *testing.T) {
	long := createSession(1)
	binary.BigEndian.PutUint16(long[2:], uint16(len(long)-3))
	for _, c := range []struct {
		name string
		data []byte
		want error
	}{
		{"nothing", nil, gtpc.ErrShort},
		{"seven octets", make([]byte, 7), gtpc.ErrShort},
		{"no room for its TEID", []byte{0x48, 32, 0, 4, 0, 0, 0, 0}, gtpc.ErrShort},
		{"no room for its sequence number", []byte{0x40, 1, 0, 3, 0, 0, 0, 0}, gtpc.ErrShort},
		{"longer than the datagram", long, gtpc.ErrLength},
		{"GTPv1 echo", []byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0}, gtpc.VersionError(0x32)},
		{"GTP' echo", []byte{0x2e, 1, 0, 0, 0x12, 0x34, 0, 0}, gtpc.VersionError(0x2e)},
		{"version 3", []byte{0x60, 1, 0, 4, 0, 0, 0, 0}, gtpc.VersionError(0x60)},
	} {
		var m gtpc.Message
		if _, err := m.Parse(c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
	}
	if e := gtpc.VersionError(0x32); e.Version() != 1 || e.Prime() {
		t.Error("version of GTPv1: got the wrong one:", e)
	}
	if e := gtpc.VersionError(0x2e); !e.Prime() {
		t.Error("GTP' was not recognised:", e)
	}
	if s, ok := gtpc.ForeignSequence([]byte{0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0}); !ok || s != 0x1234 {
		t.Errorf("sequence number of GTPv1: got %#x, %v", s, ok)
	}
}

func TestBrokenElements(t *testing.T) {
	b := createSession(1)
	b[len(b)-4], b[len(b)-3] = 0, 2 // Recovery has length 2, but only one octet follows
	var m gtpc.Message
	if _, err := m.Parse(b); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); !errors.Is(err, gtpc.ErrIE) {
		t.Errorf("Check: got %v, want %v", err, gtpc.ErrIE)
	}
	for _, v := range []string{"", "\xff", "\x0a", "\xa0\x00", "\xf0\x00", "123456789"} {
		if d, ok := gtpc.ParseDigits([]byte(v)); ok {
			t.Errorf("ParseDigits parsed %x as %v", v, d)
		}
	}
	for _, v := range []string{"", "\x8b\x00\x00\x00", "\x8b\x00\x00\x00\x01\x7f\x00\x00", "\xcb\x00\x00\x00\x01\x7f\x00\x00\x01\x00"} {
		if f, ok := gtpc.ParseFTEID([]byte(v)); ok {
			t.Errorf("ParseFTEID parsed %x as %v", v, f)
		}
	}
}

// TestTypes checks that every type that rules may name has a name that converts
// back, and that responses are not requests.
func TestTypes(t *testing.T) {
	for name, of := range gtpc.Types() {
		if of.String() != name || of.IsTriggered() {
			t.Errorf("%s has number %d and the name %s", name, of, of)
		}
		if r, ok := of.Response(); ok && (!r.IsTriggered() || r.String() != name+"-response") {
			t.Errorf("response to %s: got %s", name, r)
		}
	}
	for _, of := range []gtpc.Type{gtpc.CreateSessionRequest, gtpc.CreateSessionResponse, gtpc.ModifyBearerRequest, gtpc.DeleteSessionRequest, gtpc.ModifyBearerCommand} {
		if of.FollowsCommand() {
			t.Errorf("%v counts as a message that follows a command", of)
		}
	}
	for _, of := range []gtpc.Type{gtpc.UpdateBearerRequest, gtpc.DeleteBearerResponse, gtpc.DeleteBearerFailure} {
		if !of.FollowsCommand() {
			t.Errorf("%v does not count as a message that follows a command", of)
		}
	}
	if _, ok := gtpc.ModifyBearerCommand.Response(); ok {
		t.Error("a command has a response")
	}
}

func TestNothingIsAllocated(t *testing.T) {
	mix := gtpctest.NewMix(gtpctest.Config{})
	b := make([]byte, 0, 4096)
	teids := uint32(0)
	one := func() {
		b = b[:0]
		b = mix.Append(b)
		var m gtpc.Message
		if _, err := m.Parse(b); err != nil {
			t.Fatal(err)
		}
		for e := m.Elements(); e.Next(); {
			switch e.Type {
			case gtpc.IMSI:
				d, _ := gtpc.ParseDigits(e.Value)
				teids += uint32(len(d.Bytes()))
			case gtpc.FTEID:
				f, _ := gtpc.ParseFTEID(e.Value)
				teids += f.TEID
			}
		}
		b = gtpc.AppendEchoResponse(b, m.Sequence, 1)
		b[0] = 0x32
		if _, err := m.Parse(b); err == nil {
			t.Fatal("GTPv1 was accepted")
		}
	}
	const messages = 2000
	if n := testing.AllocsPerRun(1, func() {
		for range messages {
			one()
		}
	}); n > messages/1000 {
		t.Errorf("%v allocations for %d messages", n, messages)
	}
}

func TestMix(t *testing.T) {
	mix := gtpctest.NewMix(gtpctest.Config{Sessions: 100_000})
	sizes, sequences, imsis, teids := 0, map[uint32]bool{}, map[string]bool{}, map[uint32]bool{}
	const n = 64 * gtpctest.Kinds * 10
	for range n {
		b := mix.Append(nil)
		var m gtpc.Message
		if k, err := m.Parse(b); err != nil || k != len(b) || m.Check() != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if m.Type.IsCommand() != m.IsCommand() {
			t.Fatalf("%v got the sequence number %#x", m.Type, m.Sequence)
		}
		sizes += len(b)
		sequences[m.Sequence] = true
		if m.Type == gtpc.CreateSessionRequest {
			v, _ := m.Find(gtpc.IMSI, 0)
			d, ok := gtpc.ParseDigits(v)
			if !ok || d.String() != gtpctest.IMSI(uint32(len(imsis))) {
				t.Fatalf("got IMSI %v for session %d", d, len(imsis))
			}
			imsis[d.String()] = true
		} else {
			teids[m.TEID] = true
		}
	}
	if len(sequences) != n || len(imsis) != 640 || len(teids) != 640 || sizes/n < 80 || sizes/n > 160 {
		t.Errorf("from %d messages: got %d sequence numbers, %d IMSIs, %d TEIDs, %d octets each", n, len(sequences), len(imsis), len(teids), sizes/n)
	}
	t.Logf("%d octets on average", sizes/n)
}

// TestCapture parses every GTPv2-C message of the shared capture.
func TestCapture(t *testing.T) {
	data, err := os.ReadFile("../../../shared/captures/gtp_c.pcap")
	if err != nil {
		t.Skip("no shared captures here: ", err)
	}
	var types []gtpc.Type
	for at := 24; at < len(data); { // libpcap, little endian, Ethernet, IPv4, UDP
		size := int(binary.LittleEndian.Uint32(data[at+8:]))
		payload := data[at+16+14+20+8 : at+16+size]
		at += 16 + size
		var m gtpc.Message
		if n, err := m.Parse(payload); err != nil || n != len(payload) || m.Check() != nil {
			t.Fatalf("message %d: parsed %d of %d octets, errors %v, %v", len(types)+1, n, len(payload), err, m.Check())
		}
		types = append(types, m.Type)
		if m.Type == gtpc.CreateSessionRequest {
			v, _ := m.Find(gtpc.IMSI, 0)
			if d, ok := gtpc.ParseDigits(v); !ok || d.String() != "987654112233445" {
				t.Errorf("got IMSI %v, %v", d, ok)
			}
		}
	}
	want := []gtpc.Type{gtpc.CreateSessionRequest, gtpc.CreateSessionResponse, gtpc.DeleteSessionRequest, gtpc.DeleteSessionResponse}
	if len(types) != len(want) {
		t.Fatalf("got messages %v", types)
	}
	for i := range want {
		if types[i] != want[i] {
			t.Errorf("message %d: got %v, want %v", i+1, types[i], want[i])
		}
	}
}
