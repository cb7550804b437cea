package gtpc_test

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/wmnsk/go-gtp/gtpv2"
	"github.com/wmnsk/go-gtp/gtpv2/ie"
	"github.com/wmnsk/go-gtp/gtpv2/message"

	"vitrine/wire/gtpc"
	"vitrine/wire/nas"
)

// TestReadsGoGTP checks that messages written by go-gtp are read with the right
// values.
func TestReadsGoGTP(t *testing.T) {
	request := message.NewCreateSessionRequest(0x01020304, 0x856789,
		ie.NewIMSI("001010123456789"), ie.NewMSISDN("8190123456"), ie.NewMobileEquipmentIdentity("3548020912345678"),
		ie.NewServingNetwork("001", "01"), ie.NewRATType(gtpv2.RATTypeEUTRAN),
		ie.NewFullyQualifiedTEID(gtpv2.IFTypeS11MMEGTPC, 0xdeadbeef, "192.0.2.1", "2001:db8::1"),
		ie.NewFullyQualifiedTEID(gtpv2.IFTypeS5S8PGWGTPC, 0, "", "2001:db8::2").WithInstance(1),
		ie.NewAccessPointName("internet.example"), ie.NewRecovery(200), ie.NewUETimeZone(9*time.Hour, 0),
		ie.NewBearerContext(ie.NewEPSBearerID(6), ie.NewFullyQualifiedTEID(gtpv2.IFTypeS1UeNodeBGTPU, 77, "192.0.2.3", "")),
	)
	b, err := request.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var m gtpc.Message
	if n, err := m.Parse(b); err != nil || n != len(b) || m.Check() != nil {
		t.Fatalf("parsed %d of %d octets, errors %v, %v", n, len(b), err, m.Check())
	}
	if m.Type != gtpc.CreateSessionRequest || m.TEID != 0x01020304 || m.Sequence != 0x856789 {
		t.Errorf("got header %+v", m)
	}
	v, _ := m.Find(gtpc.IMSI, 0)
	if d, _ := gtpc.ParseDigits(v); d.String() != "001010123456789" {
		t.Errorf("got IMSI %v", d)
	}
	v, _ = m.Find(gtpc.MSISDN, 0)
	if d, _ := gtpc.ParseDigits(v); d.String() != "8190123456" {
		t.Errorf("got MSISDN %v", d)
	}
	v, _ = m.Find(gtpc.FTEID, 0)
	want := gtpc.Endpoint{Interface: gtpc.S11MME, TEID: 0xdeadbeef, V4: netip.MustParseAddr("192.0.2.1"), V6: netip.MustParseAddr("2001:db8::1")}
	if f, ok := gtpc.ParseFTEID(v); !ok || f != want {
		t.Errorf("got F-TEID %+v, %v", f, ok)
	}
	v, _ = m.Find(gtpc.FTEID, 1)
	want = gtpc.Endpoint{Interface: gtpc.S5PGW, V6: netip.MustParseAddr("2001:db8::2")}
	if f, ok := gtpc.ParseFTEID(v); !ok || f != want || f.Addr() != want.V6 {
		t.Errorf("got F-TEID %+v, %v", f, ok)
	}
	v, _ = m.Find(gtpc.BearerContext, 0)
	inner, found := gtpc.Group(v), false
	for inner.Next() {
		if inner.Type == gtpc.FTEID {
			f, ok := gtpc.ParseFTEID(inner.Value)
			found = ok && f.Interface == gtpc.S1UeNodeB && f.TEID == 77
		}
	}
	if !found || inner.Err != nil {
		t.Errorf("bearer context: got %x", v)
	}
}

// TestGoGTPReads checks that go-gtp reads messages written here, and writes the
// same octets.
func TestGoGTPReads(t *testing.T) {
	b := gtpc.AppendHeader(nil, gtpc.CreateSessionResponse, 0xdeadbeef, 0x812345)
	b = gtpc.AppendCause(b, gtpc.RequestAccepted)
	b = gtpc.AppendFTEID(b, 0, gtpc.Endpoint{Interface: gtpc.S11SGW, TEID: 42, V4: netip.MustParseAddr("192.0.2.1"), V6: netip.MustParseAddr("2001:db8::1")})
	b = gtpc.AppendElement(b, gtpc.APN, 0, nas.AppendAPN(nil, "internet.example")...)
	group := len(b)
	b = gtpc.BeginGroup(b, gtpc.BearerContext, 0)
	b = gtpc.AppendElement(b, gtpc.EBI, 0, 5)
	b = gtpc.AppendCause(b, gtpc.RequestAccepted)
	b = gtpc.EndGroup(b, group)
	b = gtpc.End(gtpc.AppendRecovery(b, 3), 0)

	parsed, err := message.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	response, ok := parsed.(*message.CreateSessionResponse)
	if !ok || response.TEID() != 0xdeadbeef || response.Sequence() != 0x812345 {
		t.Fatalf("%+v", parsed)
	}
	if cause, err := response.Cause.Cause(); err != nil || cause != gtpv2.CauseRequestAccepted {
		t.Errorf("got cause %v, error %v", cause, err)
	}
	if f, err := response.SenderFTEIDC.FullyQualifiedTEID(); err != nil || f.TEIDGREKey != 42 || f.IPv4Address.String() != "192.0.2.1" || f.IPv6Address.String() != "2001:db8::1" {
		t.Errorf("got F-TEID %+v, error %v", f, err)
	}
	if ebi, err := response.BearerContextsCreated[0].ChildIEs[0].EPSBearerID(); err != nil || ebi != 5 {
		t.Errorf("got EBI %v, error %v", ebi, err)
	}
	for _, c := range []struct{ ours, theirs *ie.IE }{
		{one(t, gtpc.AppendDigits(nil, gtpc.IMSI, "00101012345678")), ie.NewIMSI("00101012345678")},
		{one(t, gtpc.AppendDigits(nil, gtpc.IMSI, "001010123456789")), ie.NewIMSI("001010123456789")},
		{one(t, gtpc.AppendElement(nil, gtpc.APN, 0, nas.AppendAPN(nil, "a.bc.example")...)), ie.NewAccessPointName("a.bc.example")},
		{one(t, gtpc.AppendCause(nil, gtpc.NoResourcesAvailable)), ie.NewCause(gtpv2.CauseNoResourcesAvailable, 0, 0, 0, nil)},
	} {
		ours, _ := c.ours.Marshal()
		theirs, _ := c.theirs.Marshal()
		if !bytes.Equal(ours, theirs) {
			t.Errorf("encoded as %x, go-gtp has %x", ours, theirs)
		}
	}
	if echo, err := message.Parse(gtpc.AppendEchoResponse(nil, 5, 8)); err != nil || echo.(*message.EchoResponse).Recovery.MustRecovery() != 8 {
		t.Errorf("echo response: got %v, error %v", echo, err)
	}
}

func one(t *testing.T, b []byte) *ie.IE {
	t.Helper()
	i, err := ie.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestGoGTPRoundTrip checks that messages keep their values when go-gtp reads and
// writes them.
func TestGoGTPRoundTrip(t *testing.T) {
	for name, m := range samples() {
		b, _ := built(t, m)
		theirs, err := message.Parse(b)
		if err != nil {
			t.Errorf("%s: go-gtp parse: %v", name, err)
			continue
		}
		again := make([]byte, theirs.MarshalLen())
		if err := theirs.MarshalTo(again); err != nil {
			t.Errorf("%s: go-gtp encode: %v", name, err)
			continue
		}
		var header gtpc.Message
		back := fresh(m)
		if _, err := header.Parse(again); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := back.Parse(&header); err != nil || !reflect.DeepEqual(m, back) {
			t.Errorf("%s: go-gtp encoded %+v, %v, want %+v", name, back, err, m)
		}
	}
}
