package diameter

import (
	"bytes"
	"errors"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"
	"github.com/fiorix/go-diameter/v4/diam/dict"

	"vitrine/reference/epc/aka"
	"vitrine/wire/identity"
	"vitrine/wire/wiretest"
)

// A parser reads the AVPs of a message.
type parser interface{ parse(set) error }

var (
	plmn    = identity.PLMN{0x00, 0xf1, 0x10}
	request = AuthenticationRequest{IMSI: "001010000000001", PLMN: plmn, Vectors: 1, Resync: &Resync{RAND: [16]byte{1}, AUTS: [14]byte{2}}}
	located = LocationRequest{IMSI: "001010000000001", PLMN: plmn, RAT: EUTRAN}
	quality = QoS{QCI: 9, Priority: 8, Preemptable: true}
	known   = Subscription{
		MSISDN: "8190123456", AMBR: Rates{Up: 1, Down: 2}, Default: 7,
		APNs: []APN{
			{Context: 7, Name: "internet", PDN: 1, QoS: quality, AMBR: Rates{Up: 3, Down: 4}},
			{Context: 8, Name: "ims", PDN: 3, QoS: QoS{QCI: 5, Priority: 1, MayPreempt: true}, AMBR: Rates{Up: 5, Down: 6}},
		},
	}
	session   = GxRequest{IMSI: "001010000000001", MSISDN: "819012345", APN: "internet", Address: netip.MustParseAddr("10.45.0.2"), QoS: quality, AMBR: Rates{Up: 3, Down: 4}}
	policy    = Policy{QoS: quality, AMBR: Rates{Up: 3, Down: 4}, Rules: []string{"default"}}
	asking    = ResourceRequest{IMSI: "001010000000001", Flow: "permit out 17 from 192.0.2.1 5004 to assigned", QCI: 1, UpRate: 64_000, DownRate: 32_000}
	releasing = ResourceRequest{IMSI: "001010000000001", Release: "voice"}
	change    = Change{Remove: []string{"old"}, Install: []Rule{{
		Name: "voice", QoS: quality, MaxUp: 128_000, MaxDown: 128_000, GuaranteedUp: 64_000, GuaranteedDown: 32_000, Flows: []string{asking.Flow},
	}}}
	vectors = []aka.Vector{{RAND: [16]byte{1}, AUTN: [16]byte{2}, XRES: [8]byte{3}, KASME: [32]byte{4}}}
)

// samples returns a message of each kind, and what reads it.
func samples() map[string]struct {
	message *diam.Message
	want    parser
} {
	type sample = struct {
		message *diam.Message
		want    parser
	}
	build := func(command uint32, flags uint8, application uint32, avps []*diam.AVP) *diam.Message {
		m := diam.NewMessage(command, flags, application, 1, 2, nil)
		for _, a := range avps {
			m.AddAVP(a)
		}
		return m
	}
	return map[string]sample{
		"AIR": {build(authenticationInformation, diam.RequestFlag, s6aApplication, request.avps()), &request},
		"AIA": {build(authenticationInformation, 0, s6aApplication, vectorAVPs(vectors)), &vector{vectors[0]}},
		"ULR": {build(updateLocation, diam.RequestFlag, s6aApplication, located.avps()), &located},
		"ULA": {build(updateLocation, 0, s6aApplication, known.avps()), &known},
		"CCR": {build(creditControl, diam.RequestFlag, gxApplication, session.avps()), &session},
		"CCA": {build(creditControl, 0, gxApplication, policy.avps()), &policy},

		"asking":    {build(creditControl, diam.RequestFlag, gxApplication, asking.avps(1)), &asking},
		"releasing": {build(creditControl, diam.RequestFlag, gxApplication, releasing.avps(2)), &releasing},
		"RAR":       {build(reAuth, diam.RequestFlag, gxApplication, change.avps()), &change},
	}
}

// A vector reads an Authentication-Information-Answer.
type vector struct{ aka.Vector }

func (v *vector) parse(s set) (err error) {
	v.Vector, err = parseVector(s)
	return err
}

// sent returns a message as its receiver reads it.
func sent(t testing.TB, m *diam.Message) *diam.Message {
	t.Helper()
	b, err := m.Serialize()
	if err != nil {
		t.Fatal(err)
	}
	back, err := diam.ReadMessage(bytes.NewReader(b), dict.Default)
	if err != nil || back.DecodeErr != nil {
		t.Fatalf("%v, %v", err, back.DecodeErr)
	}
	return back
}

func TestMessagesAreReadAsTheyWereBuilt(t *testing.T) {
	for name, s := range samples() {
		got := reflect.New(reflect.TypeOf(s.want).Elem()).Interface().(parser)
		if err := got.parse(sent(t, s.message).AVP); err != nil || !reflect.DeepEqual(got, s.want) {
			t.Errorf("%s: got %+v, error %v, want %+v", name, got, err, s.want)
		}
	}
}

// TestMissingAVPs leaves out each AVP of each message in turn: a request is refused
// for a mandatory one, and an answer is ErrAnswer or lacks the value.
func TestMissingAVPs(t *testing.T) {
	mandatory := map[string][]uint32{
		"AIR": {avp.UserName, avp.VisitedPLMNID, avp.RequestedEUTRANAuthenticationInfo},
		"ULR": {avp.UserName, avp.VisitedPLMNID, avp.RATType},
		"CCR": {avp.CalledStationID, avp.FramedIPAddress, avp.DefaultEPSBearerQoS},
		"AIA": {avp.AuthenticationInfo}, "ULA": {avp.SubscriptionData}, "CCA": {avp.DefaultEPSBearerQoS},
	}
	for name, s := range samples() {
		want := error(MissingAVP)
		if name[2] == 'A' { // an answer
			want = ErrAnswer
		}
		for _, code := range mandatory[name] {
			var rest set
			for _, a := range sent(t, s.message).AVP {
				if a.Code != code {
					rest = append(rest, a)
				}
			}
			got := reflect.New(reflect.TypeOf(s.want).Elem()).Interface().(parser)
			if err := got.parse(rest); !errors.Is(err, want) {
				t.Errorf("%s without AVP %d: got %v, want %v", name, code, err, want)
			}
		}
	}
}

func TestWrongValues(t *testing.T) {
	for name, c := range map[string]struct {
		avps []*diam.AVP
		into parser
		want Result
	}{
		"no IMSI":     {[]*diam.AVP{base(avp.UserName, datatype.UTF8String("sub@ims.test"))}, &AuthenticationRequest{}, UserUnknown},
		"short PLMN":  {[]*diam.AVP{base(avp.UserName, datatype.UTF8String("1")), vendor(avp.VisitedPLMNID, datatype.OctetString("12"))}, &LocationRequest{}, InvalidAVPValue},
		"short AUTS":  {append(request.avps()[:1:1], vendor(avp.RequestedEUTRANAuthenticationInfo, group(vendor(avp.ResynchronizationInfo, datatype.OctetString("12")))), request.avps()[2]), &AuthenticationRequest{}, InvalidAVPValue},
		"no priority": {append(session.avps()[:6:6], base(avp.CalledStationID, datatype.UTF8String("a")), vendor(avp.DefaultEPSBearerQoS, group(vendor(avp.QoSClassIdentifier, datatype.Enumerated(9))))), &GxRequest{}, InvalidAVPValue},
	} {
		if err := c.into.parse(c.avps); !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", name, err, c.want)
		}
	}
}

func TestResults(t *testing.T) {
	for _, r := range []Result{Success, TooBusy, UserUnknown, InvalidAVPValue} {
		m := diam.NewMessage(purgeUE, 0, s6aApplication, 1, 2, nil)
		appendResult(m, r)
		if protocol := m.Header.CommandFlags&diam.ErrorFlag != 0; protocol != (r == TooBusy) {
			t.Errorf("result %v: the E bit is set: %v", r, protocol)
		}
		err := set(sent(t, m).AVP).result()
		if r == Success && err != nil || r != Success && !errors.Is(err, r) {
			t.Errorf("result %v was parsed as %v", r, err)
		}
	}
	if err := (set{}).result(); !errors.Is(err, ErrAnswer) {
		t.Errorf("answer without a result: got %v", err)
	}
	if UserUnknown.Error() == Result(UserUnknown.Code()).Error() {
		t.Error("3GPP's 5001 has the same text as the base protocol's")
	}
}

// TestAnswersKeepTheProxiableFlagAlone answers a request that was sent again: the T bit must
// not be set in an answer (RFC 6733 clause 3).
func TestAnswersKeepTheProxiableFlagAlone(t *testing.T) {
	again := diam.NewMessage(purgeUE, diam.RequestFlag|diam.ProxiableFlag|diam.RetransmittedFlag, s6aApplication, 1, 2, nil)
	if flags := beginAnswer(again, "hss.epc.test", "epc.test").Header.CommandFlags; flags != diam.ProxiableFlag {
		t.Errorf("got flags %#x", flags)
	}
}

// TestTshark compares the AVPs of each message with tshark's reading.
func TestTshark(t *testing.T) {
	var names []string
	var messages [][]byte
	for name, s := range samples() {
		b, err := s.message.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		names, messages = append(names, name), append(messages, b)
	}
	rows := wiretest.Fields(t, "diameter", messages, "diameter.cmd.code", "diameter.applicationId", "diameter.avp.code",
		"diameter.User-Name", "diameter.QoS-Class-Identifier", "diameter.Priority-Level", "diameter.Service-Selection",
		"diameter.Called-Station-Id", "diameter.RAT-Type", "diameter.avp.invalid-data", "diameter.avp.unknown")
	for i, row := range rows {
		m := samples()[names[i]].message
		var codes, users, qcis, priorities, services, stations, rats []string
		var walk func(s set)
		walk = func(s set) {
			for _, a := range s {
				codes = append(codes, strconv.Itoa(int(a.Code)))
				switch a.Code {
				case avp.UserName:
					users = append(users, string(a.Data.(datatype.UTF8String)))
				case avp.ServiceSelection:
					services = append(services, string(a.Data.(datatype.UTF8String)))
				case avp.CalledStationID:
					stations = append(stations, string(a.Data.(datatype.UTF8String)))
				case avp.QoSClassIdentifier:
					qcis = append(qcis, strconv.Itoa(int(a.Data.(datatype.Enumerated))))
				case avp.RATType:
					rats = append(rats, strconv.Itoa(int(a.Data.(datatype.Enumerated))))
				case avp.PriorityLevel:
					priorities = append(priorities, strconv.Itoa(int(a.Data.(datatype.Unsigned32))))
				}
				if g, ok := a.Data.(*diam.GroupedAVP); ok {
					walk(g.AVP)
				}
			}
		}
		walk(m.AVP)
		want := []string{strconv.Itoa(int(m.Header.CommandCode)), strconv.Itoa(int(m.Header.ApplicationID))}
		for _, values := range [][]string{codes, users, qcis, priorities, services, stations, rats, nil, nil} {
			want = append(want, strings.Join(values, ","))
		}
		for f := range row {
			if row[f] != want[f] {
				t.Errorf("%s: field %d: got %s, tshark has %s", names[i], f, want[f], row[f])
			}
		}
	}
}

// FuzzMessage checks that AVPs of any kind are refused or read. go-diameter's
// parser panics on some messages; the goroutine of a connection recovers and
// closes it, so that such messages reach nobody.
func FuzzMessage(f *testing.F) {
	for _, s := range samples() {
		b, err := s.message.Serialize()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var frames framing
		if len(data) < headerSize || !frames.check(data) || frames.have > 0 || frames.left > 0 {
			return
		}
		m := read(data)
		if m == nil {
			return
		}
		for _, p := range []parser{&AuthenticationRequest{}, &vector{}, &LocationRequest{}, &Subscription{}, &GxRequest{}, &Policy{}, &ResourceRequest{}, &Change{}} {
			err := p.parse(m.AVP)
			if r := Result(0); err != nil && !errors.Is(err, ErrAnswer) && !errors.As(err, &r) {
				t.Errorf("%T: %v", p, err)
			}
		}
		_ = set(m.AVP).result()
	})
}

// read reads a message as the goroutine of a connection does.
func read(data []byte) (m *diam.Message) {
	defer func() {
		if recover() != nil {
			m = nil
		}
	}()
	m, err := diam.ReadMessage(bytes.NewReader(data), dict.Default)
	if err != nil {
		return nil
	}
	return m
}
