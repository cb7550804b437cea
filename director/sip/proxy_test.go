package sip

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"vitrine"
	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

// A stage is a proxy on a table, without sockets.
type stage struct {
	t      testing.TB
	epochs *table.Epochs
	meter  *meter.Meter
	proxy  *Proxy
	now    time.Duration
}

const (
	udp4 = iota // listeners of a stage
	udp6
	tcp4
)

var (
	client = netip.MustParseAddrPort("192.0.2.7:5060")
)

func instances() []vitrine.Instance {
	var all []vitrine.Instance
	for i := range 4 {
		all = append(all,
			vitrine.Instance{Name: fmt.Sprintf("reg-%d", i+1), Type: "registration", Weight: 1, ID: uint16(i + 1), Address: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:5060", i+1))},
			vitrine.Instance{Name: fmt.Sprintf("ses-%d", i+1), Type: "session", Weight: 1, ID: uint16(0x11 + i), Address: netip.MustParseAddrPort(fmt.Sprintf("10.0.1.%d:5060", i+1))})
	}
	return append(all, vitrine.Instance{Name: "six", Type: "six", Weight: 1, Address: netip.MustParseAddrPort("[2001:db8::5]:5060")})
}

var typeNames = []string{"registration", "session", "six", "empty"}

func rulesConfig() RulesConfig {
	return RulesConfig{
		Types: typeNames,
		Rules: []Rule{
			{Method: "REGISTER", Type: "registration"},
			{Method: "INVITE", Type: "session"},
			{Method: "SUBSCRIBE", Event: "reg", Type: "registration"},
			{Method: "SUBSCRIBE", Event: "presence", Type: "session", Key: ByTo},
			{Method: "MESSAGE", Type: "six"},
			{Method: "PUBLISH", Type: "empty"},
		},
		Names: []string{"director.test"},
	}
}

// firstTable is made once, for it takes its time.
var firstTable = sync.OnceValues(func() (*table.Table, error) { return table.New(1, typeNames, instances()) })

func newStage(t testing.TB, c RulesConfig) *stage {
	t.Helper()
	tb, err := firstTable()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, meter: meter.New(1000, table.Transition), now: time.Second}
	if err := s.meter.Register(tb); err != nil {
		t.Fatal(err)
	}
	s.epochs = table.NewEpochs(table.Transition, 0, tb, nil)
	rules, err := NewRules(c)
	if err != nil {
		t.Fatal(err)
	}
	server := &core{epochs: s.epochs}
	server.rules.Store(rules)
	for _, text := range []string{"udp://198.51.100.1:5060", "udp://[2001:db8::1]:5060", "tcp://198.51.100.1:5060"} {
		l, err := ParseListener(text)
		if err != nil {
			t.Fatal(err)
		}
		p, err := newPlace(l, l.Address)
		if err != nil {
			t.Fatal(err)
		}
		server.places = append(server.places, p)
	}
	s.proxy = s.another(server)
	return s
}

// another makes one more proxy of the same director.
func (s *stage) another(server *core) *Proxy {
	return &Proxy{server: server, steering: table.NewSteering(s.epochs, 1000), meter: s.meter.Worker()}
}

// A result is what became of a message.
type result struct {
	text     string
	to       string
	listener int
	flow     netip.AddrPort
}

// pass gives a message to the proxy; ok is false when nothing comes out.
func (s *stage) pass(text string, from netip.AddrPort, listener int) (r result, ok bool) {
	s.t.Helper()
	return s.passTo(s.proxy, text, from, listener)
}

func (s *stage) passTo(p *Proxy, text string, from netip.AddrPort, listener int) (r result, ok bool) {
	data := []byte(text)
	var out Outgoing
	if !p.Handle(&datagram.Datagram{Data: data[:len(data):len(data)], From: from, Listener: listener, At: s.now}, make([]byte, 0, 1024), &out) {
		return r, false
	}
	return result{string(bytes.Join(out.Parts, nil)), out.To.String(), out.Listener, out.Flow}, true
}

// must is pass for a message that must go on.
func (s *stage) must(text string, from netip.AddrPort, listener int) (result, *sip.Message) {
	s.t.Helper()
	r, ok := s.pass(text, from, listener)
	if !ok {
		s.t.Fatalf("nothing came of\n%s", text)
	}
	var m sip.Message
	if n, err := m.Parse([]byte(r.text)); err != nil || n != len(r.text) {
		s.t.Fatalf("%d of %d bytes, %v:\n%s", n, len(r.text), err, r.text)
	}
	return r, &m
}

// status is must for a request that the director answers.
func (s *stage) status(want int, text string, from netip.AddrPort, listener int) (result, *sip.Message) {
	s.t.Helper()
	r, m := s.must(text, from, listener)
	if m.Status != want {
		s.t.Fatalf("status %d, want %d:\n%s", m.Status, want, r.text)
	}
	return r, m
}

func (s *stage) same(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

// lines joins header lines; those of the usual headers that are not given are
// added.
func lines(start string, given ...string) string {
	text := start + "\r\n"
	for _, line := range given {
		text += line + "\r\n"
	}
	method, _, _ := strings.Cut(start, " ")
	for _, line := range []string{
		"Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bKclient", "From: <sip:a@example.com>;tag=1", "To: <sip:b@example.com>",
		"Call-ID: c1", "CSeq: 7 " + method, "Max-Forwards: 70",
	} {
		if name, _, _ := strings.Cut(line, ":"); !strings.Contains(text, "\r\n"+name+": ") {
			text += line + "\r\n"
		}
	}
	return text + "\r\n"
}

// branch is that of a message's top Via.
func branch(m *sip.Message) string {
	b, _ := sip.Param(m.Via, "branch")
	return string(b)
}

const register = "REGISTER sip:example.com SIP/2.0\r\n" +
	"Via: SIP/2.0/UDP 192.0.2.7:5060;rport;branch=z9hG4bKclient\r\n" +
	"Max-Forwards: 70\r\nFrom: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>\r\nCall-ID: reg1\r\nCSeq: 1 REGISTER\r\n" +
	"Contact: <sip:a@192.0.2.7>\r\nContent-Length: 0\r\n\r\n"

func TestRegister(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(register, netip.MustParseAddrPort("203.0.113.9:6000"), udp4)
	target := s.targetOf(r.to)
	if target.TypeName() != "registration" || r.listener != udp4 {
		t.Errorf("to %s by listener %d", r.to, r.listener)
	}
	want := "REGISTER sip:example.com SIP/2.0\r\n" +
		"Via: SIP/2.0/UDP 198.51.100.1:5060;branch=" + branch(m) + "\r\n" +
		fmt.Sprintf("Path: <sip:o.%04x..registration@198.51.100.1:5060;lr>\r\n", target.ID) +
		"Via: SIP/2.0/UDP 192.0.2.7:5060;rport=6000;received=203.0.113.9;branch=z9hG4bKclient\r\n" +
		"Max-Forwards: 69\r\nFrom: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>\r\nCall-ID: reg1\r\nCSeq: 1 REGISTER\r\n" +
		"Contact: <sip:a@192.0.2.7>\r\nContent-Length: 0\r\n\r\n"
	s.same("forwarded", r.text, want)
	if !strings.HasPrefix(branch(m), "z9hG4bK") {
		t.Errorf("branch %s", branch(m))
	}

	answer := "SIP/2.0 401 Unauthorized\r\nVia: SIP/2.0/UDP 198.51.100.1:5060;branch=" + branch(m) + "\r\n" +
		"Via: SIP/2.0/UDP 192.0.2.7:5060;rport=6000;received=203.0.113.9;branch=z9hG4bKclient\r\n" +
		"From: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>;tag=2\r\nCall-ID: reg1\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n"
	back, _ := s.must(answer, target.Address, udp4)
	s.same("returned", back.text, "SIP/2.0 401 Unauthorized\r\n"+
		"Via: SIP/2.0/UDP 192.0.2.7:5060;rport=6000;received=203.0.113.9;branch=z9hG4bKclient\r\n"+
		"From: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>;tag=2\r\nCall-ID: reg1\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n")
	s.same("returned to", back.to, "203.0.113.9:6000")
	if n := s.counted(target.Name); n.Begun != 1 || n.Ended[meter.Declined.String()] != 1 {
		t.Errorf("counted %+v", n)
	}
}

func (s *stage) targetOf(address string) *table.Target {
	s.t.Helper()
	tb := s.epochs.View().Table
	for i := range int32(tb.Len()) {
		if tb.Target(i).Address.String() == address {
			return tb.Target(i)
		}
	}
	s.t.Fatalf("no instance has the address %s", address)
	return nil
}

func (s *stage) counted(name string) meter.Instance {
	s.t.Helper()
	for _, in := range s.meter.Instances() {
		if in.Name == name {
			return in
		}
	}
	s.t.Fatalf("no counts of %s", name)
	return meter.Instance{}
}

// TestInvariance: a retransmission becomes the same, at this proxy and at that of
// another director; CANCEL and ACK get their INVITE's branch and instance.
func TestInvariance(t *testing.T) {
	s, other := newStage(t, rulesConfig()), newStage(t, rulesConfig())
	instance := map[string]bool{}
	for i := range 100 {
		id := fmt.Sprintf("Call-ID: call-%d", i)
		via := fmt.Sprintf("Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bK%d", i)
		if i%3 == 0 {
			via = fmt.Sprintf("v: SIP/2.0/UDP host%d.example.com;branch=%d", i, i) // RFC 2543 had no cookie
		}
		text := lines("INVITE sip:b@example.com SIP/2.0", id, strings.Replace(via, "v:", "Via:", 1))
		first, m := s.must(text, client, udp4)
		instance[first.to] = true
		again, _ := s.must(text, client, udp4)
		elsewhere, ok := other.pass(text, client, udp4)
		if again != first || !ok || elsewhere != first {
			t.Errorf("a retransmission became\n%s\nand elsewhere\n%s\nwant\n%s", again.text, elsewhere.text, first.text)
		}
		for _, follower := range []string{
			strings.NewReplacer("INVITE sip", "CANCEL sip", "7 INVITE", "7 CANCEL").Replace(text),
			strings.NewReplacer("INVITE sip", "ACK sip", "7 INVITE", "7 ACK", "To: <sip:b@example.com>", "To: <sip:b@example.com>;tag=callee").Replace(text),
		} {
			r, f := s.must(follower, client, udp4)
			if r.to != first.to || branch(f) != branch(m) {
				t.Errorf("%s went to %s with %s; the INVITE to %s with %s", f.Method, r.to, branch(f), first.to, branch(m))
			}
		}
		for _, stranger := range []string{
			strings.Replace(text, "7 INVITE", "8 INVITE", 1),
			strings.Replace(text, "branch=", "branch=z9hG4bKx", 1),
			strings.Replace(text, "sip:b@", "sip:c@", 1),
		} {
			if _, f := s.must(stranger, client, udp4); branch(f) == branch(m) {
				t.Errorf("another transaction has the same branch:\n%s", stranger)
			}
		}
	}
	if len(instance) != 4 {
		t.Errorf("%d instances got something", len(instance))
	}
}

// TestCompact: compact names, any case, odd spaces and folded lines are known.
func TestCompact(t *testing.T) {
	s := newStage(t, rulesConfig())
	plain, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	odd := "INVITE sip:b@example.com SIP/2.0\r\ni :\tc1\r\nmAx-forwards:\r\n 0070\r\nt:<sip:b@example.com>\r\ncseq: 7\r\n  INVITE\r\n" +
		"V : SIP / 2.0 /\r\n UDP  192.0.2.7 : 5060 ; branch = z9hG4bKclient ; rport\r\nF: <sip:a@example.com>;tag=1\r\nl: 0\r\n\r\n"
	r, o := s.must(odd, client, udp4)
	if r.to != plain.to || branch(o) != branch(m) {
		t.Errorf("to %s with %s, the plain one to %s with %s", r.to, branch(o), plain.to, branch(m))
	}
	if want := "V : SIP / 2.0 /   UDP  192.0.2.7 : 5060 ; branch = z9hG4bKclient ; rport=5060;received=192.0.2.7\r\n"; !strings.Contains(r.text, want) {
		t.Errorf("no %q in\n%s", want, r.text)
	}
	if !strings.Contains(r.text, "mAx-forwards:   0069\r\n") {
		t.Errorf("Max-Forwards in\n%s", r.text)
	}
}

// TestReceived: where a request came from is written into its Via.
func TestReceived(t *testing.T) {
	s := newStage(t, rulesConfig())
	for _, c := range []struct{ via, from, want, reply string }{
		{"192.0.2.7:5060;branch=z9hG4bKa", "192.0.2.7:5060", "192.0.2.7:5060;branch=z9hG4bKa", "192.0.2.7:5060"},
		{"192.0.2.7;branch=z9hG4bKa", "192.0.2.7:7777", "192.0.2.7;branch=z9hG4bKa", "192.0.2.7:5060"},
		{"192.0.2.7;branch=z9hG4bKa", "192.0.2.8:7777", "192.0.2.7;branch=z9hG4bKa;received=192.0.2.8", "192.0.2.8:5060"},
		{"phone.example.com:9;branch=z9hG4bKa", "192.0.2.7:7777", "phone.example.com:9;branch=z9hG4bKa;received=192.0.2.7", "192.0.2.7:9"},
		{"192.0.2.7;rport;branch=z9hG4bKa", "192.0.2.7:7777", "192.0.2.7;rport=7777;received=192.0.2.7;branch=z9hG4bKa", "192.0.2.7:7777"},
		{"192.0.2.7;branch=z9hG4bKa ; rport", "192.0.2.7:7777", "192.0.2.7;branch=z9hG4bKa ; rport=7777;received=192.0.2.7", "192.0.2.7:7777"},
		// What a client claims of itself counts for nothing.
		{"192.0.2.7;rport=1;branch=z9hG4bKa;received=203.0.113.1", "192.0.2.7:7777", "192.0.2.7;rport=7777;branch=z9hG4bKa;received=192.0.2.7", "192.0.2.7:7777"},
		{"192.0.2.7;received=203.0.113.1;branch=z9hG4bKa", "192.0.2.7:7777", "192.0.2.7;received=192.0.2.7;branch=z9hG4bKa", "192.0.2.7:5060"},
		{"[2001:db8::7]:5062;branch=z9hG4bKa", "[2001:db8::7]:5062", "[2001:db8::7]:5062;branch=z9hG4bKa", "[2001:db8::7]:5062"},
		{"[2001:DB8:0::7]:5062;branch=z9hG4bKa", "[2001:db8::7]:5062", "[2001:DB8:0::7]:5062;branch=z9hG4bKa", "[2001:db8::7]:5062"},
		{"[2001:db8::7];rport;branch=z9hG4bKa", "[2001:db8::8]:5062", "[2001:db8::7];rport=5062;received=2001:db8::8;branch=z9hG4bKa", "[2001:db8::8]:5062"},
	} {
		from, listener := netip.MustParseAddrPort(c.from), udp4
		if from.Addr().Is6() {
			listener = udp6
		}
		r, m := s.must(lines("INVITE sip:b@example.com SIP/2.0", "Via: SIP/2.0/UDP "+c.via), from, listener)
		if got := string(m.NextVia); got != "SIP/2.0/UDP "+c.want {
			t.Errorf("from %s: Via %q, want %q", c.from, got, c.want)
		}
		back, _ := s.must(respond(r.text, 200, ""), s.targetOf(r.to).Address, udp4)
		if back.to != c.reply || back.listener != listener {
			t.Errorf("%s from %s: the response goes to %s by %d, want %s", c.via, c.from, back.to, back.listener, c.reply)
		}
	}
}

// respond makes a user agent's response to a request.
func respond(request string, status int, more string) string {
	var m sip.Message
	if _, err := m.Parse([]byte(request)); err != nil {
		panic(err)
	}
	b := sip.AppendResponse(nil, &m, status, "Some Reason", []byte("uas"), netip.AddrPort{})
	return string(sip.AppendEnd(append(b, more...), nil))
}

// TestResponseVias: the director's Via is taken off wherever its line ends, and
// what is not the director's goes nowhere.
func TestResponseVias(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	own := string(m.Via)
	const rest = "f: <sip:a@example.com>;tag=1\r\nt: <sip:b@example.com>;tag=2\r\ni: c1\r\nCSeq: 7 INVITE\r\n\r\n"
	for _, c := range []struct{ head, want string }{
		{"v: " + own + ", SIP/2.0/UDP 192.0.2.7 ,SIP/2.0/UDP x\r\n", "v: SIP/2.0/UDP 192.0.2.7 ,SIP/2.0/UDP x\r\n"},
		{"VIA:" + own + "\r\nSubject: x\r\nVia: SIP/2.0/UDP 192.0.2.7\r\n", "Subject: x\r\nVia: SIP/2.0/UDP 192.0.2.7\r\n"},
		{"Subject: x\r\nVia: " + own + "\r\nv: SIP/2.0/UDP 192.0.2.7, SIP/2.0/UDP x\r\n", "Subject: x\r\nv: SIP/2.0/UDP 192.0.2.7, SIP/2.0/UDP x\r\n"},
		{"Via: " + strings.Replace(own, "SIP/2.0/UDP ", "SIP / 2.0 / UDP\r\n ", 1) + "\r\nVia: SIP/2.0/UDP 192.0.2.7\r\n", "Via: SIP/2.0/UDP 192.0.2.7\r\n"},
	} {
		back, _ := s.must("SIP/2.0 180 \r\n"+c.head+rest, s.targetOf(r.to).Address, udp4)
		s.same("response", back.text, "SIP/2.0 180 \r\n"+c.want+rest)
		s.same("to", back.to, "192.0.2.7:5060")
	}
	for _, head := range []string{
		"Via: " + own + "\r\n", // for the director itself: it asked for nothing
		"Via: SIP/2.0/UDP 192.0.2.99;branch=z9hG4bK1\r\nVia: SIP/2.0/UDP 192.0.2.7\r\n",
		"Via: " + own + "\r\nVia: SIP/2.0/UDP no.address.example\r\n",
		"Via: " + own + "\r\nVia: nonsense\r\n",
	} {
		if got, ok := s.pass("SIP/2.0 200 OK\r\n"+head+rest, client, udp4); ok {
			t.Errorf("%q became\n%s", head, got.text)
		}
	}
	if n := s.proxy.counts.Dropped.Load(); n != 4 {
		t.Errorf("%d dropped", n)
	}
}

func TestMaxForwards(t *testing.T) {
	s := newStage(t, rulesConfig())
	for given, want := range map[string]string{"70": "69", "1": "0", "10": "09", "100": "099", "0068": "0067", "255": "254"} {
		_, m := s.must(lines("INVITE sip:b@example.com SIP/2.0", "Max-Forwards: "+given), client, udp4)
		s.same("Max-Forwards", string(m.MaxForwards), want)
	}
	r, m := s.must(strings.Replace(lines("INVITE sip:b@example.com SIP/2.0"), "Max-Forwards: 70\r\n", "", 1), client, udp4)
	s.same("added", string(m.MaxForwards), "70")
	if strings.Count(r.text, "Max-Forwards") != 1 {
		t.Errorf("%s", r.text)
	}
	for _, zero := range []string{"0", "000"} {
		r, m := s.status(483, lines("INVITE sip:b@example.com SIP/2.0", "Max-Forwards: "+zero), client, udp4)
		s.same("to", r.to, "192.0.2.7:5060")
		// The client's ACK ends here.
		ack := lines("ACK sip:b@example.com SIP/2.0", "To: "+string(m.To), "CSeq: 7 ACK")
		if got, ok := s.pass(ack, client, udp4); ok {
			t.Errorf("the ACK of a 483 became\n%s", got.text)
		}
	}
	if s.proxy.counts.Absorbed.Load() != 2 || s.failures(meter.NoType, meter.TooManyHops) != 2 {
		t.Errorf("absorbed %d", s.proxy.counts.Absorbed.Load())
	}
	for _, bad := range []string{"x", "-1", "7 0", "70a", ""} {
		s.status(400, lines("INVITE sip:b@example.com SIP/2.0", "Max-Forwards: "+bad), client, udp4)
	}
	if got, ok := s.pass(lines("ACK sip:b@example.com SIP/2.0", "Max-Forwards: 0"), client, udp4); ok {
		t.Errorf("an ACK was answered:\n%s", got.text)
	}
}

func (s *stage) failures(ty table.Type, cause meter.Cause) uint64 {
	types := s.meter.Types()
	if ty == meter.NoType {
		return types[len(types)-1].Failures[cause.String()]
	}
	return types[ty].Failures[cause.String()]
}

func TestRules(t *testing.T) {
	s := newStage(t, rulesConfig())
	for _, c := range []struct {
		start, header string
		want          string // type, or the status of the answer
	}{
		{"REGISTER sip:x SIP/2.0", "", "registration"},
		{"SUBSCRIBE sip:a@x SIP/2.0", "Event: reg", "registration"},
		{"SUBSCRIBE sip:a@x SIP/2.0", "o: reg;id=4", "registration"},
		{"SUBSCRIBE sip:a@x SIP/2.0", "Event: presence", "session"},
		{"NOTIFY sip:a@x SIP/2.0", "Event: presence", "session"},
		{"NOTIFY sip:a@x SIP/2.0", "Event: reg", "registration"},
		{"SUBSCRIBE sip:a@x SIP/2.0", "Event: other", "489"},
		{"SUBSCRIBE sip:a@x SIP/2.0", "", "489"},
		{"BYE sip:a@x SIP/2.0", "", "session"},
		{"UPDATE sip:a@x SIP/2.0", "", "session"},
		{"MESSAGE tel:+1234 SIP/2.0", "", "six"},
		{"PUBLISH sip:a@x SIP/2.0", "", "503"},
		{"invite sip:a@x SIP/2.0", "", "501"},
		{"OPTIONS sip:a@x SIP/2.0", "", "501"},
		{"OPTIONS sip:director.test SIP/2.0", "", "200"},
		{"OPTIONS sip:DIRECTOR.test;transport=tcp SIP/2.0", "", "200"},
		{"OPTIONS sip:198.51.100.1 SIP/2.0", "Max-Forwards: 0", "200"},
		{"OPTIONS sip:[2001:db8::1]:5060 SIP/2.0", "Route: <sip:director.test;lr>", "200"},
	} {
		given := []string{"Subject: x"}
		if c.header != "" {
			given = append(given, c.header)
		}
		r, m := s.must(lines(c.start, given...), client, udp4)
		got := fmt.Sprint(m.Status)
		if m.IsRequest() {
			got = s.targetOf(r.to).TypeName()
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.start, c.header, got, c.want)
		}
	}
	if s.failures(3, meter.NoInstance) != 1 || s.failures(meter.NoType, meter.Unruled) != 4 {
		t.Error("failures were not counted by cause")
	}
	c := rulesConfig()
	c.Rules = append(c.Rules, Rule{Type: "session"})
	r, _ := newStage(t, c).must(lines("OPTIONS sip:a@x SIP/2.0"), client, udp4)
	s.same("by the rule for any", s.targetOf(r.to).TypeName(), "session")
}

// TestKeys: what the rule names decides, and nothing else.
func TestKeys(t *testing.T) {
	s := newStage(t, rulesConfig())
	to := map[string]bool{}
	for i := range 50 {
		r, _ := s.must(lines("SUBSCRIBE sip:b@example.com SIP/2.0", "Event: presence", fmt.Sprintf("Call-ID: %d", i), "To: \"B\" <sip:b@example.com;x=1>"), client, udp4)
		to[r.to] = true
	}
	if len(to) != 1 {
		t.Errorf("one To goes to %d instances", len(to))
	}
	for _, key := range []string{"", "call-id", "from", "to", "request-uri"} {
		if _, err := ParseKey(key); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParseKey("imsi"); err == nil {
		t.Error("imsi is a key of SIP")
	}
	for _, bad := range []RulesConfig{
		{Types: []string{"a b"}}, {Types: []string{""}}, {Types: []string{"a"}, Rules: []Rule{{Type: "b"}}},
		{Types: []string{"a"}, Options: map[string]TypeOptions{"b": {}}}, {Types: []string{"a"}, Rules: []Rule{{Type: "a", Key: 9}}},
	} {
		if _, err := NewRules(bad); err == nil {
			t.Errorf("accepted: %+v", bad)
		}
	}
}

// TestDialog: both sides' later requests find the instance and the other side by
// Record-Route alone.
func TestDialog(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(lines("INVITE sip:b@example.com SIP/2.0", "Contact: <sip:a@192.0.2.7:5062>"), client, udp4)
	target := s.targetOf(r.to)
	routes := elements(m, sip.RecordRoute)
	if len(routes) != 2 {
		t.Fatalf("Record-Route %q", routes)
	}
	// The caller's route set is the reverse (RFC 3261 section 12.1.2). Its Call-ID
	// is another's here, so that only Route can tell.
	for _, start := range []string{"ACK sip:b@10.9.9.9 SIP/2.0", "BYE sip:b@10.9.9.9 SIP/2.0"} {
		r, m := s.must(lines(start, "Route: "+routes[1]+", "+routes[0]+",<sip:10.0.1.9;lr>", "To: <sip:b@example.com>;tag=2", "Call-ID: other"), client, udp4)
		s.same("caller's", r.to, target.Address.String())
		s.same("Route", string(m.Route), "<sip:10.0.1.9;lr>")
		if len(elements(m, sip.RecordRoute)) != 0 {
			t.Errorf("a request in a dialog is recorded again:\n%s", r.text)
		}
	}
	r, m = s.must(lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: "+routes[1], "Subject: between", "Route: "+routes[0], "To: <sip:b@example.com>;tag=2"), client, udp4)
	s.same("caller's in two lines", r.to, target.Address.String())
	if m.Route != nil {
		t.Errorf("Route %q", m.Route)
	}
	// The instance's side keeps the order.
	bye := lines("BYE sip:a@192.0.2.7:5062 SIP/2.0", "Via: SIP/2.0/UDP "+target.Address.String()+";branch=z9hG4bKi", "Route: "+routes[0]+","+routes[1], "To: <sip:a@example.com>;tag=1", "From: <sip:b@example.com>;tag=2")
	r, _ = s.must(bye, netip.AddrPortFrom(target.Address.Addr(), 33333), udp4)
	s.same("callee's", r.to, "192.0.2.7:5062")
	back, _ := s.must(respond(r.text, 200, ""), netip.MustParseAddrPort("192.0.2.7:5062"), udp4)
	s.same("its response", back.to, target.Address.String())
	// A stranger may not send outward: he goes to an instance like everybody.
	r, _ = s.must(bye, netip.MustParseAddrPort("203.0.113.5:5060"), udp4)
	if s.targetOf(r.to).TypeName() != "session" {
		t.Errorf("a stranger's went to %s", r.to)
	}
}

// elements are those of all lines of a header.
func elements(m *sip.Message, kind sip.Kind) (all []string) {
	for f := m.Fields(); f.Next(); {
		for rest := f.Value; f.Kind == kind && len(rest) > 0; {
			var e []byte
			e, rest = sip.CutElement(rest)
			all = append(all, string(e))
		}
	}
	return all
}

// TestPath: what an instance sends by a registration's Path goes to the client,
// and what that sends in the dialog comes to the instance.
func TestPath(t *testing.T) {
	s := newStage(t, rulesConfig())
	_, m := s.must(register, client, udp4)
	path := elements(m, sip.Path)
	if len(path) != 1 {
		t.Fatalf("Path %q", path)
	}
	caller := s.epochs.View().Table.ByName("ses-3")
	r, m := s.must(lines("INVITE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), caller.Address, udp4)
	s.same("to the client", r.to, "192.0.2.7:5064")
	routes := elements(m, sip.RecordRoute)
	if len(routes) != 2 {
		t.Fatalf("Record-Route %q", routes)
	}
	r, _ = s.must(lines("BYE sip:10.5.5.5 SIP/2.0", "Route: "+routes[0]+", "+routes[1], "To: <sip:b@example.com>;tag=2", "Call-ID: other"), client, udp4)
	s.same("from the client", r.to, "10.0.1.3:5060")
	r, _ = s.must(lines("BYE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+routes[1]+", "+routes[0], "To: <sip:b@example.com>;tag=2"), caller.Address, udp4)
	s.same("to the client again", r.to, "192.0.2.7:5064")
	// Without Route, from the instance's own address.
	r, _ = s.must(lines("MESSAGE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi"), caller.Address, udp4)
	s.same("by the request line", r.to, "192.0.2.7:5064")
	r, _ = s.must(lines("MESSAGE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: <sip:192.0.2.99;lr>"), caller.Address, udp4)
	s.same("by a Route of others", r.to, "192.0.2.99:5060")
	s.status(416, lines("MESSAGE tel:+123 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), caller.Address, udp4)
	s.status(502, lines("MESSAGE sip:a@phone.example.com SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), caller.Address, udp4)
}

// TestFlow: a client on TCP is spoken to on the connection it made.
func TestFlow(t *testing.T) {
	s := newStage(t, rulesConfig())
	conn := netip.MustParseAddrPort("192.0.2.7:40001")
	r, m := s.must(strings.Replace(register, "/UDP", "/TCP", 1), conn, tcp4)
	if r.listener != udp4 || !strings.Contains(r.text, "Via: SIP/2.0/UDP 198.51.100.1:5060;branch=") {
		t.Errorf("by listener %d:\n%s", r.listener, r.text)
	}
	back, _ := s.must(respond(r.text, 200, ""), s.targetOf(r.to).Address, udp4)
	if back.listener != tcp4 || back.flow != conn {
		t.Errorf("the response goes by %d to %v", back.listener, back.flow)
	}
	path := elements(m, sip.Path)
	r, m = s.must(lines("INVITE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), s.targetOf("10.0.1.3:5060").Address, udp4)
	if r.listener != tcp4 || r.flow != conn || r.to != "192.0.2.7:5064" || !strings.Contains(string(m.Via), "/TCP 198.51.100.1:5060;") {
		t.Errorf("the INVITE goes by %d to %v, %s with Via %s", r.listener, r.flow, r.to, m.Via)
	}
	routes := elements(m, sip.RecordRoute)
	if len(routes) != 2 || !strings.Contains(routes[0], ";transport=tcp") || strings.Contains(routes[1], "tcp") {
		t.Errorf("Record-Route %q", routes)
	}
	r, _ = s.must(lines("BYE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+routes[1]+", "+routes[0], "To: <sip:b@example.com>;tag=2"), s.targetOf("10.0.1.3:5060").Address, udp4)
	if r.flow != conn {
		t.Errorf("the BYE goes to %v", r.flow)
	}
}

// TestStrictRouter: RFC 3261 section 16.12.1.2.
func TestStrictRouter(t *testing.T) {
	s := newStage(t, rulesConfig())
	_, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	routes := elements(m, sip.RecordRoute)
	own := strings.Trim(routes[1], "<>")
	for _, c := range []struct{ route, want string }{
		{"<sip:b@10.9.9.9>", ""},
		{"<sip:10.0.1.9;lr>, <sip:b@10.9.9.9>", "<sip:10.0.1.9;lr>"},
		{"<sip:10.0.1.9;lr>\r\nRoute: <sip:b@10.9.9.9>", "<sip:10.0.1.9;lr>"},
	} {
		r, got := s.must(lines("BYE "+own+" SIP/2.0", "Route: "+c.route, "To: <sip:b@example.com>;tag=2"), client, udp4)
		s.same("request line", string(got.StartLine), "BYE sip:b@10.9.9.9 SIP/2.0")
		s.same("Route", string(got.Route), c.want)
		if s.targetOf(r.to).TypeName() != "session" {
			t.Errorf("to %s", r.to)
		}
	}
}

func TestLoop(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	s.status(482, r.text, client, udp4)
	via := "INVITE sip:b@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.3;branch=z9hG4bKp\r\n"
	s.status(482, strings.Replace(r.text, "INVITE sip:b@example.com SIP/2.0\r\n", via, 1), client, udp4)
	// A spiral is no loop: what it is routed by has changed.
	spiral, _ := s.must(strings.Replace(r.text, "INVITE sip:b@", "INVITE sip:c@", 1), client, udp4)
	if strings.Count(spiral.text, "-vd") != 2 {
		t.Errorf("%s", spiral.text)
	}
	if s.failures(meter.NoType, meter.Looped) != 2 {
		t.Error("loops were not counted")
	}
	// Another director's Via says nothing.
	other := strings.Replace(r.text, string(m.Via), strings.Replace(string(m.Via), "198.51.100.1", "198.51.100.2", 1), 1)
	s.must(other, client, udp4)
}

func TestOverload(t *testing.T) {
	c := rulesConfig()
	gate := overload.New(overload.Config{Target: time.Second, Initial: 1, Min: 1, Burst: 1}, 0)
	c.Options = map[string]TypeOptions{"registration": {Gate: gate}}
	c.Feedback = true
	s := newStage(t, c)
	text := strings.Replace(register, ";rport", ";rport;oc;oc-algo=\"loss,A\"", 1)
	r, _ := s.must(text, client, udp4)
	if !strings.Contains(r.text, `;oc;oc-algo="loss"`+"\r\n") {
		t.Errorf("the instance is not asked:\n%s", r.text)
	}
	back, m := s.must(respond(r.text, 200, ""), s.targetOf(r.to).Address, udp4)
	if want := `SIP/2.0/UDP 192.0.2.7:5060;rport=5060;received=192.0.2.7;branch=z9hG4bKclient;oc=0;oc-algo="loss";oc-validity=1000;oc-seq=0.0`; string(m.Via) != want {
		t.Errorf("Via %s, want %s in\n%s", m.Via, want, back.text)
	}
	r, m = s.status(503, strings.Replace(text, "reg1", "reg2", 1), client, udp4)
	if !strings.Contains(r.text, "\r\nRetry-After: 1\r\n") || !strings.Contains(string(m.Via), ";oc=0;") {
		t.Errorf("%s", r.text)
	}
	s.must(strings.Replace(register, "To: <sip:a@example.com>", "To: <sip:a@example.com>;tag=x", 1), client, udp4) // in a dialog
	if s.failures(0, meter.Overloaded) != 1 {
		t.Error("not counted")
	}
}

// TestInstanceFeedback: the share that an instance asks for is held back while
// that counts, and of one transaction all messages or none.
func TestInstanceFeedback(t *testing.T) {
	c := rulesConfig()
	c.Feedback = true
	s := newStage(t, c)
	refused := func() (n int) {
		for i := range 400 {
			text := lines("MESSAGE sip:b@example.com SIP/2.0", fmt.Sprintf("Call-ID: m%d", i))
			r, m := s.must(text, client, udp4)
			if again, _ := s.must(text, client, udp4); again != r {
				t.Errorf("a retransmission became\n%s", again.text)
			}
			if m.Status == 503 {
				n++
			}
		}
		return n
	}
	tell := func(parameters string) {
		r, m := s.must(lines("MESSAGE sip:b@example.com SIP/2.0", "To: <sip:b@x>;tag=3"), client, udp4)
		own := string(m.Via)
		answer := strings.Replace(respond(r.text, 200, ""), own, strings.Replace(own, `;oc;oc-algo="loss"`, parameters, 1), 1)
		if !strings.Contains(answer, parameters) {
			t.Fatalf("%s", answer)
		}
		s.must(answer, s.targetOf(r.to).Address, udp6)
	}
	for _, step := range []struct {
		parameters string
		low, high  int
	}{
		{`;oc=0;oc-algo="loss";oc-validity=1000;oc-seq=1.0`, 0, 0},
		{`;oc=50;oc-algo="loss";oc-validity=1000;oc-seq=2.5`, 140, 260},
		{`;oc=0;oc-algo="loss";oc-validity=1000;oc-seq=2.4`, 140, 260}, // overtaken
		{`;oc=101;oc-seq=3.0`, 140, 260},
		{`;oc=x;oc-seq=3.0`, 140, 260},
		{`;oc=100;oc-validity=1000;oc-seq=10.0`, 400, 400},
		{`;oc=20;oc-validity=0;oc-seq=11`, 0, 0}, // ended
		{`;oc=100;oc-seq=12`, 400, 400},
	} {
		tell(step.parameters)
		if n := refused(); n < step.low || n > step.high {
			t.Errorf("%s: %d of 400 refused", step.parameters, n)
		}
	}
	s.now += 501 * time.Millisecond
	if n := refused(); n != 0 {
		t.Errorf("%d refused after the feedback's time", n)
	}
}

// TestDraining: a transaction stays where it began; dialogs do as the type says.
func TestDraining(t *testing.T) {
	for _, dialogs := range []bool{false, true} {
		c := rulesConfig()
		c.Options = map[string]TypeOptions{"session": {Dialogs: dialogs}}
		s := newStage(t, c)
		text := lines("INVITE sip:b@example.com SIP/2.0")
		r, m := s.must(text, client, udp4)
		routes := elements(m, sip.RecordRoute)
		old := s.targetOf(r.to)
		all := instances()
		for i := range all {
			if all[i].Name == old.Name {
				all[i].State = vitrine.Draining
			}
		}
		tb, err := table.New(2, typeNames, all)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.meter.Register(tb); err != nil {
			t.Fatal(err)
		}
		s.now += time.Second
		if wait := s.epochs.Publish(s.now, tb, nil); wait != 0 {
			t.Fatal(wait)
		}
		again, _ := s.must(text, client, udp4)
		s.same("a retransmission", again.to, r.to)
		cancel, _ := s.must(strings.NewReplacer("INVITE sip", "CANCEL sip", "7 INVITE", "7 CANCEL").Replace(text), client, udp4)
		s.same("CANCEL", cancel.to, r.to)
		route := "Route: " + routes[1] + "," + routes[0]
		ack, _ := s.must(lines("ACK sip:b@10.9.9.9 SIP/2.0", route, "To: <sip:b@example.com>;tag=2"), client, udp4)
		s.same("ACK", ack.to, r.to)
		s.now += table.Transition + time.Second
		bye, _ := s.must(lines("BYE sip:b@10.9.9.9 SIP/2.0", route, "To: <sip:b@example.com>;tag=2", "CSeq: 8 BYE"), client, udp4)
		if (bye.to == r.to) != dialogs {
			t.Errorf("drain by dialog %v: BYE goes to %s, its INVITE went to %s", dialogs, bye.to, r.to)
		}
	}
}
