package gtpc_test

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"testing"

	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// A sample is a message that can be built and read.
type sample interface {
	Append(b []byte, teid, sequence uint32) []byte
	Parse(m *gtpc.Message) error
}

func digits(s string) identity.Digits {
	d, ok := identity.MakeDigits(s)
	if !ok {
		panic(s)
	}
	return d
}

func endpoint(i gtpc.Interface, teid uint32, addr string) gtpc.Endpoint {
	return gtpc.Endpoint{Interface: i, TEID: teid, V4: netip.MustParseAddr(addr)}
}

// samples returns a message of each type, with all fields that it can have.
func samples() map[string]sample {
	plmn, _ := identity.MakePLMN("001", "01")
	place := gtpc.Location{
		TAI: identity.TAI{PLMN: plmn, TAC: 0x1234}, ECGI: identity.ECGI{PLMN: plmn, Cell: 0x19b01}, HasTAI: true, HasECGI: true,
	}
	apn := []byte("\x08internet\x07example")
	quality := gtpc.QoS{QCI: 9, Priority: 8, MayPreempt: true}
	voice := gtpc.QoS{QCI: 1, Priority: 2, Preemptable: true, MaxUp: 128, MaxDown: 128, GuaranteedUp: 64, GuaranteedDown: 1 << 33}
	flow := gtpc.QoS{QCI: 1, MaxUp: 128, MaxDown: 128, GuaranteedUp: 64, GuaranteedDown: 64}
	rates := gtpc.Rates{Up: 50_000, Down: 150_000}
	pco := []byte{0x80, 0, 0x0d, 0}
	accepted := gtpc.Result{Cause: gtpc.RequestAccepted}
	restart := gtpc.Restart{Given: true, Counter: 7}
	enb, sgw := endpoint(gtpc.S1UeNodeB, 1, "192.0.2.1"), endpoint(gtpc.S1USGW, 2, "192.0.2.2")
	s5sgw, s5pgw := endpoint(gtpc.S5USGW, 3, "192.0.2.3"), endpoint(gtpc.S5UPGW, 4, "192.0.2.4")
	return map[string]sample{
		"create-session": &gtpc.CreateSession{
			IMSI: digits("001010123456789"), MSISDN: digits("8190123456"), MEI: digits("3548020912345678"), Location: place, Serving: plmn,
			RAT: gtpc.RATEUTRAN, Flags: gtpc.DualAddress | gtpc.ChangeReports, Sender: endpoint(gtpc.S11MME, 0x11223344, "192.0.2.5"),
			PGW: endpoint(gtpc.S5PGW, 5, "192.0.2.6"), APN: apn, Selection: 1, PDN: gtpc.PDNv4v6, Address: gtpc.Address{Type: gtpc.PDNv4, V4: netip.MustParseAddr("0.0.0.0")},
			AMBR: rates, Restriction: 2, PCO: pco, Recovery: restart,
			Bearers: []gtpc.Bearer{{EBI: 5, QoS: quality, ENB: enb, S5SGW: s5sgw, S5PGW: s5pgw}, {EBI: 6, QoS: voice, TFT: []byte{0x20}}},
		},
		"create-session-response": &gtpc.CreateSessionAnswer{
			Result: gtpc.Result{Cause: gtpc.NewPDNTypePreferred}, Sender: endpoint(gtpc.S11SGW, 6, "192.0.2.2"), PGW: endpoint(gtpc.S5PGW, 7, "192.0.2.6"),
			Address:     gtpc.Address{Type: gtpc.PDNv4v6, V4: netip.MustParseAddr("10.45.0.2"), V6: netip.MustParseAddr("2001:db8::1"), Bits: 64},
			Restriction: 1, AMBR: rates, PCO: pco, Recovery: restart,
			Bearers: []gtpc.Bearer{{EBI: 5, Result: accepted, SGW: sgw, S5PGW: s5pgw, QoS: quality, ChargingID: 0xabcd}},
		},
		"modify-bearer": &gtpc.ModifyBearer{
			MEI: digits("3548020912345678"), Location: place, Serving: plmn, RAT: gtpc.RATEUTRAN, Flags: gtpc.ScopeOfSGW,
			Sender: endpoint(gtpc.S11MME, 8, "192.0.2.5"), AMBR: rates, Recovery: restart,
			Bearers: []gtpc.Bearer{{EBI: 5, ENB: enb, S5SGW: s5sgw}}, Removed: []gtpc.Bearer{{EBI: 6}},
		},
		"modify-bearer-response": &gtpc.Answer{
			Type: gtpc.ModifyBearerResponse, Result: accepted, Linked: 5, Bearers: []gtpc.Bearer{{EBI: 5, Result: accepted, SGW: sgw}}, Recovery: restart,
		},
		"delete-session": &gtpc.DeleteSession{
			Linked: 5, Location: place, Flags: gtpc.Operation, Sender: endpoint(gtpc.S11MME, 8, "192.0.2.5"), PCO: pco,
		},
		"delete-session-response": &gtpc.Answer{
			Type: gtpc.DeleteSessionResponse, Result: gtpc.Result{Cause: gtpc.MandatoryIncorrect, Offending: gtpc.FTEID, Instance: 1},
		},
		"release-access-bearers":          &gtpc.ReleaseAccessBearers{},
		"release-access-bearers-response": &gtpc.Answer{Type: gtpc.ReleaseAccessBearersResponse, Result: accepted},
		"create-bearer": &gtpc.CreateBearer{
			PTI: 3, Linked: 5, PCO: pco, Bearers: []gtpc.Bearer{{TFT: []byte{0x20}, SGW: sgw, S5PGW: s5pgw, QoS: voice, ChargingID: 9}},
		},
		"create-bearer-response": &gtpc.Answer{
			Type: gtpc.CreateBearerResponse, Result: accepted, Bearers: []gtpc.Bearer{{EBI: 6, Result: accepted, ENB: enb, SGW: sgw, S5SGW: s5sgw, S5PGW: s5pgw}},
		},
		"delete-bearer":              &gtpc.DeleteBearer{Bearers: []uint8{6, 7}, PTI: 3, Result: gtpc.Result{Cause: gtpc.ReactivationAsked}},
		"delete-bearer-of-a-session": &gtpc.DeleteBearer{Linked: 5},
		"delete-bearer-response": &gtpc.Answer{
			Type: gtpc.DeleteBearerResponse, Result: accepted, Linked: 5, Bearers: []gtpc.Bearer{{EBI: 6, Result: accepted}},
		},
		"bearer-resource": &gtpc.BearerResource{
			Linked: 5, PTI: 3, QoS: flow, TAD: []byte{0x20}, Sender: endpoint(gtpc.S11MME, 8, "192.0.2.5"),
		},
		"bearer-resource-of-a-bearer":         &gtpc.BearerResource{Linked: 5, PTI: 4, TAD: []byte{0xa1, 1}, Bearer: 6},
		"bearer-resource-failure":             &gtpc.BearerFailure{Result: gtpc.Result{Cause: gtpc.NoResourcesAvailable}, Linked: 5, PTI: 3},
		"downlink-data-notification":          &gtpc.DownlinkDataNotification{EBI: 5, Priority: 8, IMSI: digits("00101012345678"), Result: gtpc.Result{Cause: gtpc.LocalDetach}},
		"downlink-data-notification-response": &gtpc.Answer{Type: gtpc.DownlinkDataAcknowledge, Result: gtpc.Result{Cause: gtpc.UnableToPage}, Recovery: restart},
	}
}

// built returns the octets of a message and the header that reads them.
func built(t testing.TB, m sample) ([]byte, gtpc.Message) {
	t.Helper()
	b := m.Append(nil, 0xdeadbeef, 0x123456)
	var header gtpc.Message
	if n, err := header.Parse(b); err != nil || n != len(b) || header.TEID != 0xdeadbeef || header.Sequence != 0x123456 {
		t.Fatalf("%x: %+v, %v", b, header, err)
	}
	return b, header
}

// fresh returns a new message of the same Go type.
func fresh(m sample) sample {
	return reflect.New(reflect.TypeOf(m).Elem()).Interface().(sample)
}

func TestMessagesAreReadAsTheyWereBuilt(t *testing.T) {
	for name, m := range samples() {
		b, header := built(t, m)
		back := fresh(m)
		if err := back.Parse(&header); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(m, back) {
			t.Errorf("%s was parsed as %+v, want %+v", name, back, m)
		}
		if again := back.Append(nil, 0xdeadbeef, 0x123456); !bytes.Equal(b, again) {
			t.Errorf("%s was encoded as %x and then as %x", name, b, again)
		}
		// A message that is used again holds nothing of the one before.
		if err := back.Parse(&header); err != nil || !reflect.DeepEqual(m, back) {
			t.Errorf("%s was parsed the second time as %+v, %v", name, back, err)
		}
	}
}

func TestReadingAndBuildingDoNotAllocate(t *testing.T) {
	for name, m := range samples() {
		_, header := built(t, m)
		back, b := fresh(m), make([]byte, 0, 4096)
		_ = back.Parse(&header)
		if n := testing.AllocsPerRun(100, func() {
			_ = back.Parse(&header)
			b = back.Append(b[:0], 1, 2)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestMalformedMessagesAreRefused checks the causes of clause 7.7.
func TestMalformedMessagesAreRefused(t *testing.T) {
	all := samples()
	without := func(name string, t gtpc.Element) []byte { return rewrite(all[name], t, nil, true) }
	with := func(name string, t gtpc.Element, v ...byte) []byte { return rewrite(all[name], t, v, false) }
	for _, c := range []struct {
		name   string
		octets []byte
		into   sample
		want   gtpc.Result
	}{
		{"no APN", without("create-session", gtpc.APN), &gtpc.CreateSession{}, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.APN}},
		{"no RAT", without("create-session", gtpc.RATType), &gtpc.CreateSession{}, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.RATType}},
		{"no sender", without("create-session", gtpc.FTEID), &gtpc.CreateSession{}, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.FTEID}},
		{"no bearer", without("create-session", gtpc.BearerContext), &gtpc.CreateSession{}, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.BearerContext}},
		{"bearer without identity", with("create-session", gtpc.BearerContext), &gtpc.CreateSession{}, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.EBI}},
		{"short AMBR", with("create-session", gtpc.AMBR, 1, 2, 3), &gtpc.CreateSession{}, gtpc.Result{Cause: gtpc.MandatoryIncorrect, Offending: gtpc.AMBR}},
		{"empty RAT", with("create-session", gtpc.RATType), &gtpc.CreateSession{}, gtpc.Result{Cause: gtpc.InvalidLength, Offending: gtpc.RATType}},
		{"IMSI with letters", with("create-session", gtpc.IMSI, 0xaa), &gtpc.CreateSession{}, gtpc.Result{Cause: gtpc.MandatoryIncorrect, Offending: gtpc.IMSI}},
		{"no cause", without("create-session-response", gtpc.Cause), &gtpc.CreateSessionAnswer{}, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.Cause}},
		{"no cause", without("modify-bearer-response", gtpc.Cause), &gtpc.Answer{}, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.Cause}},
		{"no default bearer", without("create-bearer", gtpc.EBI), &gtpc.CreateBearer{}, gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.EBI}},
		{"no bearer at all", without("delete-bearer-of-a-session", gtpc.EBI), &gtpc.DeleteBearer{}, gtpc.Result{Cause: gtpc.ConditionalMissing, Offending: gtpc.EBI}},
	} {
		var header gtpc.Message
		if _, err := header.Parse(c.octets); err != nil {
			t.Fatal(err)
		}
		var got gtpc.Result
		if err := c.into.Parse(&header); !errors.As(err, &got) || got != c.want {
			t.Errorf("%s: got error %v, want %v", c.name, err, c.want)
		}
	}
}

// rewrite builds a message with another value for the elements of a type, or
// without them.
func rewrite(m sample, of gtpc.Element, v []byte, drop bool) []byte {
	var header gtpc.Message
	if _, err := header.Parse(m.Append(nil, 1, 2)); err != nil {
		panic(err)
	}
	b := gtpc.AppendHeader(nil, header.Type, 1, 2)
	for e := header.Elements(); e.Next(); {
		switch {
		case e.Type != of:
			b = gtpc.AppendElement(b, e.Type, e.Instance, e.Value...)
		case !drop:
			b = gtpc.AppendElement(b, e.Type, e.Instance, v...)
		}
	}
	return gtpc.End(b, 0)
}

func TestOnlyTheFirstOfRepeatedElementsCounts(t *testing.T) {
	b := samples()["delete-session"].Append(nil, 1, 2)
	b = gtpc.End(gtpc.AppendElement(b, gtpc.EBI, 0, 9), 0)
	var header gtpc.Message
	if _, err := header.Parse(b); err != nil {
		t.Fatal(err)
	}
	var m gtpc.DeleteSession
	if err := m.Parse(&header); err != nil || m.Linked != 5 {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestElementsOfOtherInstancesAreIgnored checks that a bearer context has its elements by type and
// instance (clause 7.7.9).
func TestElementsOfOtherInstancesAreIgnored(t *testing.T) {
	b := gtpc.AppendElement(gtpc.AppendHeader(nil, gtpc.CreateBearerRequest, 1, 2), gtpc.EBI, 0, 5)
	group := len(b)
	b = gtpc.AppendElement(gtpc.BeginGroup(b, gtpc.BearerContext, 0), gtpc.EBI, 0, 0)
	b = gtpc.AppendElement(b, gtpc.EBI, 1, 9)
	b = gtpc.AppendElement(b, gtpc.BearerTFT, 1, 0x20)
	b = gtpc.End(gtpc.EndGroup(b, group), 0)
	var header gtpc.Message
	if _, err := header.Parse(b); err != nil {
		t.Fatal(err)
	}
	var m gtpc.CreateBearer
	if err := m.Parse(&header); err != nil || len(m.Bearers) != 1 || m.Bearers[0].EBI != 0 || m.Bearers[0].TFT != nil {
		t.Errorf("got %+v, error %v, want one bearer without identity and template", m, err)
	}
}

// TestSenderOfBearerResource checks the instance of the sender's F-TEID in a Bearer Resource
// Command (table 7.2.5-1). Instance 0 is the user plane of an SGSN.
func TestSenderOfBearerResource(t *testing.T) {
	b, header := built(t, samples()["bearer-resource"])
	v, _ := header.Find(gtpc.FTEID, 2)
	want := endpoint(gtpc.S11MME, 8, "192.0.2.5")
	if f, ok := gtpc.ParseFTEID(v); !ok || f != want {
		t.Errorf("F-TEID of instance 2 in %x: got %+v, want %+v", b, f, want)
	}
	b = samples()["bearer-resource-of-a-bearer"].Append(nil, 1, 2)
	b = gtpc.End(gtpc.AppendFTEID(b, 0, endpoint(15, 9, "192.0.2.9")), 0)
	if _, err := header.Parse(b); err != nil {
		t.Fatal(err)
	}
	var m gtpc.BearerResource
	if err := m.Parse(&header); err != nil || m.Sender != (gtpc.Endpoint{}) {
		t.Errorf("got sender %+v, error %v, want none", m.Sender, err)
	}
}

func TestMoreBearersThanIdentitiesAreRefused(t *testing.T) {
	m := gtpc.CreateBearer{Linked: 5, Bearers: make([]gtpc.Bearer, gtpc.MaxBearers+1)}
	_, header := built(t, &m)
	want := gtpc.Result{Cause: gtpc.MandatoryIncorrect, Offending: gtpc.BearerContext}
	if err := new(gtpc.CreateBearer).Parse(&header); !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func TestRefuse(t *testing.T) {
	fault := gtpc.Result{Cause: gtpc.MandatoryMissing, Offending: gtpc.APN}
	if a := gtpc.Refuse(gtpc.CreateSessionRequest, fault); a.Type != gtpc.CreateSessionResponse || a.Result != fault {
		t.Errorf("%+v", a)
	}
	if a := gtpc.Refuse(gtpc.DownlinkData, errors.New("disk full")); a.Type != gtpc.DownlinkDataAcknowledge || a.Result.Cause != gtpc.SystemFailure {
		t.Errorf("%+v", a)
	}
}

func TestPeekHeader(t *testing.T) {
	b := samples()["create-session"].Append(nil, 1, 0x123456)
	if kind, sequence, ok := gtpc.PeekHeader(b[:20]); !ok || kind != gtpc.CreateSessionRequest || sequence != 0x123456 {
		t.Errorf("%v, %x, %v", kind, sequence, ok)
	}
	for _, b := range [][]byte{nil, b[:11], {0x32, 1, 0, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 0}} {
		if _, _, ok := gtpc.PeekHeader(b); ok {
			t.Errorf("PeekHeader found a header in %x", b)
		}
	}
}
