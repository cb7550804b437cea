package sip

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"vitrine/director/meter"
	"vitrine/wire/sip"
)

const register = "REGISTER sip:example.com SIP/2.0\r\n" +
	"Via: SIP/2.0/UDP 192.0.2.7:5060;rport;branch=z9hG4bKclient\r\n" +
	"Max-Forwards: 70\r\nFrom: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>\r\nCall-ID: reg1\r\nCSeq: 1 REGISTER\r\n" +
	"Contact: <sip:a@192.0.2.7>\r\nContent-Length: 0\r\n\r\n"

func TestRegister(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(register, netip.MustParseAddrPort("203.0.113.9:6000"), udp4)
	target := s.targetOf(r.to)
	if target.TypeName() != "registration" || r.listener != udp4 {
		t.Errorf("sent to %s by listener %d", r.to, r.listener)
	}
	want := "REGISTER sip:example.com SIP/2.0\r\n" +
		"Via: SIP/2.0/UDP 198.51.100.1:5060;branch=" + branch(m) + ";vm=" + mac(m) + "\r\n" +
		"Path: " + s.route('o', target, "") + "\r\n" +
		"Via: SIP/2.0/UDP 192.0.2.7:5060;rport=6000;received=203.0.113.9;branch=z9hG4bKclient\r\n" +
		"Max-Forwards: 69\r\nFrom: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>\r\nCall-ID: reg1\r\nCSeq: 1 REGISTER\r\n" +
		"Contact: <sip:a@192.0.2.7>\r\nContent-Length: 0\r\n\r\n"
	s.same("forwarded", r.text, want)
	if path := fmt.Sprintf("<sip:o.%04x..registration.0001", target.ID); !strings.HasPrefix(elements(m, sip.Path)[0], path) {
		t.Errorf("got Path %s, want %s", elements(m, sip.Path), path)
	}
	if !strings.HasPrefix(branch(m), "z9hG4bK") {
		t.Errorf("got branch %s, want one with the magic cookie", branch(m))
	}

	answer := "SIP/2.0 401 Unauthorized\r\nVia: SIP/2.0/UDP 198.51.100.1:5060;branch=" + branch(m) + ";vm=" + mac(m) + "\r\n" +
		"Via: SIP/2.0/UDP 192.0.2.7:5060;rport=6000;received=203.0.113.9;branch=z9hG4bKclient\r\n" +
		"From: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>;tag=2\r\nCall-ID: reg1\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n"
	back, _ := s.must(answer, target.Address, udp4)
	s.same("returned", back.text, "SIP/2.0 401 Unauthorized\r\n"+
		"Via: SIP/2.0/UDP 192.0.2.7:5060;rport=6000;received=203.0.113.9;branch=z9hG4bKclient\r\n"+
		"From: <sip:a@example.com>;tag=1\r\nTo: <sip:a@example.com>;tag=2\r\nCall-ID: reg1\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n")
	s.same("returned to", back.to, "203.0.113.9:6000")
	if n := s.counted(target.Name); n.Begun != 1 || n.Ended[meter.Declined.String()] != 1 {
		t.Errorf("got the wrong counts %+v", n)
	}
}

// TestInvariance checks that this director and another one handle a retransmission like the first
// request. CANCEL and ACK must get the branch and the instance of their INVITE.
func TestInvariance(t *testing.T) {
	s, other := newStage(t, rulesConfig()), newStage(t, rulesConfig())
	instance := map[string]bool{}
	for i := range 100 {
		id := fmt.Sprintf("Call-ID: call-%d", i)
		via := fmt.Sprintf("Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bK%d", i)
		if i%3 == 0 {
			via = fmt.Sprintf("v: SIP/2.0/UDP host%d.example.com;branch=%d", i, i) // branches of RFC 2543 have no cookie
		}
		text := lines("INVITE sip:b@example.com SIP/2.0", id, strings.Replace(via, "v:", "Via:", 1))
		first, m := s.must(text, client, udp4)
		instance[first.to] = true
		again, _ := s.must(text, client, udp4)
		elsewhere, ok := other.pass(text, client, udp4)
		if again != first || !ok || elsewhere != first {
			t.Errorf("a retransmission was forwarded as\n%s\nand by another director as\n%s\nwant\n%s", again.text, elsewhere.text, first.text)
		}
		for _, follower := range []string{
			strings.NewReplacer("INVITE sip", "CANCEL sip", "7 INVITE", "7 CANCEL").Replace(text),
			strings.NewReplacer("INVITE sip", "ACK sip", "7 INVITE", "7 ACK", "To: <sip:b@example.com>", "To: <sip:b@example.com>;tag=callee").Replace(text),
		} {
			r, f := s.must(follower, client, udp4)
			if r.to != first.to || branch(f) != branch(m) {
				t.Errorf("%s went to %s with branch %s; the INVITE to %s with %s", f.Method, r.to, branch(f), first.to, branch(m))
			}
		}
		for _, stranger := range []string{
			strings.Replace(text, "7 INVITE", "8 INVITE", 1),
			strings.Replace(text, "branch=", "branch=z9hG4bKx", 1),
			strings.Replace(text, "sip:b@", "sip:c@", 1),
		} {
			if _, f := s.must(stranger, client, udp4); branch(f) == branch(m) {
				t.Errorf("another transaction got the same branch:\n%s", stranger)
			}
		}
	}
	if len(instance) != 4 {
		t.Errorf("%d instances got requests, want 4", len(instance))
	}
}

// TestCompact checks compact header names, any case, unusual spaces and folded lines.
func TestCompact(t *testing.T) {
	s := newStage(t, rulesConfig())
	plain, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	odd := "INVITE sip:b@example.com SIP/2.0\r\ni :\tc1\r\nmAx-forwards:\r\n 0070\r\nt:<sip:b@example.com>\r\ncseq: 7\r\n  INVITE\r\n" +
		"V : SIP / 2.0 /\r\n UDP  192.0.2.7 : 5060 ; branch = z9hG4bKclient ; rport\r\nF: <sip:a@example.com>;tag=1\r\nl: 0\r\n\r\n"
	r, o := s.must(odd, client, udp4)
	if r.to != plain.to || branch(o) != branch(m) {
		t.Errorf("sent to %s with branch %s; the request in compact form to %s with %s", r.to, branch(o), plain.to, branch(m))
	}
	if want := "V : SIP / 2.0 /   UDP  192.0.2.7 : 5060 ; branch = z9hG4bKclient ; rport=5060;received=192.0.2.7\r\n"; !strings.Contains(r.text, want) {
		t.Errorf("missing %q in\n%s", want, r.text)
	}
	if !strings.Contains(r.text, "mAx-forwards:   0069\r\n") {
		t.Errorf("got the wrong Max-Forwards in\n%s", r.text)
	}
}

// TestReceived checks that the director writes a request's source address into the client's Via.
func TestReceived(t *testing.T) {
	s := newStage(t, rulesConfig())
	for _, c := range []struct{ via, from, want, reply string }{
		{"192.0.2.7:5060;branch=z9hG4bKa", "192.0.2.7:5060", "192.0.2.7:5060;branch=z9hG4bKa", "192.0.2.7:5060"},
		{"192.0.2.7;branch=z9hG4bKa", "192.0.2.7:7777", "192.0.2.7;branch=z9hG4bKa", "192.0.2.7:5060"},
		{"192.0.2.7;branch=z9hG4bKa", "192.0.2.8:7777", "192.0.2.7;branch=z9hG4bKa;received=192.0.2.8", "192.0.2.8:5060"},
		{"phone.example.com:9;branch=z9hG4bKa", "192.0.2.7:7777", "phone.example.com:9;branch=z9hG4bKa;received=192.0.2.7", "192.0.2.7:9"},
		{"192.0.2.7;rport;branch=z9hG4bKa", "192.0.2.7:7777", "192.0.2.7;rport=7777;received=192.0.2.7;branch=z9hG4bKa", "192.0.2.7:7777"},
		{"192.0.2.7;branch=z9hG4bKa ; rport", "192.0.2.7:7777", "192.0.2.7;branch=z9hG4bKa ; rport=7777;received=192.0.2.7", "192.0.2.7:7777"},
		{"192.0.2.7;rport=;branch=z9hG4bKa", "192.0.2.7:7777", "192.0.2.7;rport=7777;received=192.0.2.7;branch=z9hG4bKa", "192.0.2.7:7777"},
		{"192.0.2.7;branch=z9hG4bKa;rport =", "192.0.2.7:7777", "192.0.2.7;branch=z9hG4bKa;rport =7777;received=192.0.2.7", "192.0.2.7:7777"},
		// The director replaces values that the client wrote itself.
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
			t.Errorf("request from %s: got Via %q, want %q", c.from, got, c.want)
		}
		back, _ := s.must(respond(r.text, 200, ""), s.targetOf(r.to).Address, udp4)
		if back.to != c.reply || back.listener != listener {
			t.Errorf("%s from %s: the response was sent to %s by listener %d, want %s", c.via, c.from, back.to, back.listener, c.reply)
		}
	}
}

// TestResponseVias checks that the director's Via is removed, however the Via lines are split.
// Other responses must be dropped.
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
		"Via: " + own + "\r\n", // no second Via: for the director itself, which sent no request
		"Via: SIP/2.0/UDP 192.0.2.99;branch=z9hG4bK1\r\nVia: SIP/2.0/UDP 192.0.2.7\r\n",
		"Via: " + own + "\r\nVia: SIP/2.0/UDP no.address.example\r\n",
		"Via: " + own + "\r\nVia: nonsense\r\n",
	} {
		if got, ok := s.pass("SIP/2.0 200 OK\r\n"+head+rest, client, udp4); ok {
			t.Errorf("a response with %q was forwarded as\n%s", head, got.text)
		}
	}
	if n := s.proxy.counts.Dropped.Load(); n != 4 {
		t.Errorf("dropped %d messages, want 4", n)
	}
}

// TestLength checks that a message to a stream gets a Content-Length if it has none. A message from
// a stream must have one.
func TestLength(t *testing.T) {
	c := rulesConfig()
	c.Options = map[string]TypeOptions{"session": {Stream: true}}
	s := newStage(t, c)
	const body = "REGISTER sip:x SIP/2.0\r\n\r\n"
	text := lines("INVITE sip:b@example.com SIP/2.0") + body
	r, m := s.must(text, client, udp4)
	if string(m.Body) != body || strings.Count(r.text, "\r\nContent-Length: 26\r\n") != 1 || r.listener != tcp4 {
		t.Errorf("sent by listener %d:\n%s", r.listener, r.text)
	}
	given, _ := s.must(strings.Replace(text, "\r\n", "\r\nl: 26\r\n", 1), client, udp4)
	if strings.Contains(given.text, "Content-Length") || !strings.Contains(given.text, "\r\nl: 26\r\n") {
		t.Errorf("Content-Length was added twice:\n%s", given.text)
	}
	s.status(400, strings.Replace(text, "/UDP", "/TCP", 1), client, tcp4)
	r, _ = s.must(strings.Replace(register, "/UDP", "/TCP", 1), client, tcp4)
	answer := strings.Replace(respond(r.text, 200, ""), "Content-Length: 0\r\n", "", 1) + body
	back, m := s.must(answer, s.targetOf(r.to).Address, udp4)
	if string(m.Body) != body || !strings.Contains(back.text, "\r\nContent-Length: 26\r\n") || back.listener != tcp4 {
		t.Errorf("sent by listener %d:\n%s", back.listener, back.text)
	}
	if got, ok := s.pass(answer, s.targetOf(r.to).Address, tcp4); ok {
		t.Errorf("a response without Content-Length was forwarded:\n%s", got.text)
	}
	r, _ = s.must(register[:len(register)-len("Content-Length: 0\r\n\r\n")]+"\r\n"+body, client, udp4)
	if strings.Contains(r.text, "Content-Length") {
		t.Errorf("a datagram got a Content-Length:\n%s", r.text)
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
		// The director absorbs the client's ACK.
		ack := lines("ACK sip:b@example.com SIP/2.0", "To: "+string(m.To), "CSeq: 7 ACK")
		if got, ok := s.pass(ack, client, udp4); ok {
			t.Errorf("the ACK of a 483 was forwarded as\n%s", got.text)
		}
	}
	if s.proxy.counts.Absorbed.Load() != 2 || s.failures(meter.NoType, meter.TooManyHops) != 2 {
		t.Errorf("absorbed %d ACKs, want 2", s.proxy.counts.Absorbed.Load())
	}
	for _, bad := range []string{"x", "-1", "7 0", "70a", ""} {
		s.status(400, lines("INVITE sip:b@example.com SIP/2.0", "Max-Forwards: "+bad), client, udp4)
	}
	if got, ok := s.pass(lines("ACK sip:b@example.com SIP/2.0", "Max-Forwards: 0"), client, udp4); ok {
		t.Errorf("an ACK was answered with\n%s", got.text)
	}
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
		{"NOTIFY sip:a@x SIP/2.0", "Event: other", "489"},
		{"BYE sip:a@x SIP/2.0", "", "session"},
		{"UPDATE sip:a@x SIP/2.0", "", "session"},
		{"MESSAGE tel:+1234 SIP/2.0", "", "six"},
		{"PUBLISH sip:a@x SIP/2.0", "", "500"},
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
			t.Errorf("%s %s: got %s, want %s", c.start, c.header, got, c.want)
		}
		if strings.Contains(r.text, "\r\nAllow-Events: reg, presence\r\n") != (got == "489") {
			t.Errorf("%s %s: Allow-Events must be in 489 only:\n%s", c.start, c.header, r.text)
		}
	}
	if s.failures(3, meter.NoInstance) != 1 || s.failures(meter.NoType, meter.Unruled) != 5 {
		t.Error("failures were not counted by cause")
	}
	c := rulesConfig()
	c.Rules = append(c.Rules, Rule{Type: "session"})
	s = newStage(t, c)
	for _, text := range []string{lines("OPTIONS sip:a@x SIP/2.0"), lines("SUBSCRIBE sip:a@x SIP/2.0", "Event: other"), lines("NOTIFY sip:a@x SIP/2.0", "Event: other")} {
		r, _ := s.must(text, client, udp4)
		s.same("by the rule for any", s.targetOf(r.to).TypeName(), "session")
	}
}

// TestAdvertisedPlace checks that the director knows a listener by its Host and by its bound
// address.
func TestAdvertisedPlace(t *testing.T) {
	p, err := newPlace(Listener{Host: "sip.example.net:5060"}, netip.MustParseAddrPort("198.51.100.1:5060"))
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"sip.example.net": true, "SIP.example.net": true, "198.51.100.1": true, "198.51.100.2": false, "example.net": false} {
		if p.is([]byte(host), 5060) != want || p.is([]byte(host), 0) != want || p.is([]byte(host), 5061) {
			t.Errorf("is answers wrongly for host %s", host)
		}
	}
}

// TestKeys checks that only the header that the rule names as key decides on the instance.
func TestKeys(t *testing.T) {
	s := newStage(t, rulesConfig())
	to := map[string]bool{}
	for i := range 50 {
		r, _ := s.must(lines("SUBSCRIBE sip:b@example.com SIP/2.0", "Event: presence", fmt.Sprintf("Call-ID: %d", i), "To: \"B\" <sip:b@example.com;x=1>"), client, udp4)
		to[r.to] = true
	}
	if len(to) != 1 {
		t.Errorf("requests with one To went to %d instances, want 1", len(to))
	}
	for _, key := range []string{"", "call-id", "from", "to", "request-uri"} {
		if _, err := ParseKey(key); err != nil {
			t.Error(err)
		}
	}
	if _, err := ParseKey("imsi"); err == nil {
		t.Error("ParseKey accepted imsi for SIP")
	}
	for _, bad := range []RulesConfig{
		{Types: []string{"a b"}}, {Types: []string{""}}, {Types: []string{"a"}, Rules: []Rule{{Type: "b"}}},
		{Types: []string{"a"}, Options: map[string]TypeOptions{"b": {}}}, {Types: []string{"a"}, Rules: []Rule{{Type: "a", Key: 9}}},
	} {
		if _, err := NewRules(bad); err == nil {
			t.Errorf("NewRules accepted %+v", bad)
		}
	}
}

// TestStrictRouter checks requests from strict routers (RFC 3261 section 16.12.1.2). They name another
// instance than the key would choose, so only the entry in the request line can decide.
func TestStrictRouter(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	target := s.epochs.View().Table.ByName("ses-1")
	if target.Address.String() == r.to {
		target = s.epochs.View().Table.ByName("ses-2")
	}
	partner, own := elements(m, sip.RecordRoute)[0], strings.Trim(s.route('i', target, "c1"), "<>")
	for _, c := range []struct{ route, want string }{
		{"<sip:b@10.9.9.9>", ""},
		{"<sip:10.0.1.9;lr>, <sip:b@10.9.9.9>", "<sip:10.0.1.9;lr>"},
		{"<sip:10.0.1.9;lr>\r\nRoute: <sip:b@10.9.9.9>", "<sip:10.0.1.9;lr>"},
		{partner + ", <sip:b@10.9.9.9>", ""},
		{partner + "\r\nRoute: <sip:b@10.9.9.9>", ""},
		{partner + ", <sip:10.0.1.9;lr>, <sip:b@10.9.9.9>", "<sip:10.0.1.9;lr>"},
	} {
		r, got := s.must(lines("BYE "+own+" SIP/2.0", "Route: "+c.route, "To: <sip:b@example.com>;tag=2"), client, udp4)
		s.same("request line", string(got.StartLine), "BYE sip:b@10.9.9.9 SIP/2.0")
		s.same("Route", string(got.Route), c.want)
		s.same("sent to", r.to, target.Address.String())
		if strings.Contains(r.text, "\r\nRoute:") != (c.want != "") {
			t.Errorf("Route %q became an empty line in\n%s", c.route, r.text)
		}
	}
}

func TestLoop(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	s.status(482, r.text, client, udp4)
	via := "INVITE sip:b@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 203.0.113.3;branch=z9hG4bKp\r\n"
	s.status(482, strings.Replace(r.text, "INVITE sip:b@example.com SIP/2.0\r\n", via, 1), client, udp4)
	// A spiral is no loop, because its routing fields have changed.
	spiral, _ := s.must(strings.Replace(r.text, "INVITE sip:b@", "INVITE sip:c@", 1), client, udp4)
	if strings.Count(spiral.text, "-vd") != 2 {
		t.Errorf("%s", spiral.text)
	}
	if s.failures(meter.NoType, meter.Looped) != 2 {
		t.Error("loops were not counted")
	}
	// An instance may send a request back unchanged, but only once.
	direct, _ := s.must(lines("INVITE sip:b@192.0.2.8 SIP/2.0"), client, udp4)
	instance := s.targetOf(direct.to).Address
	out, _ := s.must(direct.text, instance, udp4)
	s.same("out", out.to, "192.0.2.8:5060")
	s.status(482, out.text, instance, udp4)
	s.status(482, out.text, client, udp4)
	// Another director's Via does not make a loop.
	other := strings.Replace(r.text, string(m.Via), strings.Replace(string(m.Via), "198.51.100.1", "198.51.100.2", 1), 1)
	s.must(other, client, udp4)
}
