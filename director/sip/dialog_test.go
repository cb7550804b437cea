package sip

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"vitrine/director/table"
	"vitrine/wire/sip"
)

// TestDialog checks that later requests of both sides reach the instance or the other side by
// Record-Route alone.
func TestDialog(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(lines("INVITE sip:b@example.com SIP/2.0", "Contact: <sip:a@192.0.2.7:5062>"), client, udp4)
	target := s.targetOf(r.to)
	routes := elements(m, sip.RecordRoute)
	if len(routes) != 2 {
		t.Fatalf("got Record-Route %q, want 2 elements", routes)
	}
	// The caller's route set has the reverse order (RFC 3261 section 12.1.2). It names another
	// instance than the key would choose, so only Route can decide.
	for _, other := range []string{"ses-1", "ses-2"} {
		if other := s.epochs.View().Table.ByName(other); other != target {
			target = other
		}
	}
	routes[1] = s.route('i', target, "c1")
	for _, start := range []string{"ACK sip:b@10.9.9.9 SIP/2.0", "BYE sip:b@10.9.9.9 SIP/2.0"} {
		r, m := s.must(lines(start, "Route: "+routes[1]+", "+routes[0]+",<sip:10.0.1.9;lr>", "To: <sip:b@example.com>;tag=2"), client, udp4)
		s.same("caller's", r.to, target.Address.String())
		s.same("Route", string(m.Route), "<sip:10.0.1.9;lr>")
		if len(elements(m, sip.RecordRoute)) != 0 {
			t.Errorf("a request in a dialog got a Record-Route:\n%s", r.text)
		}
	}
	r, m = s.must(lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: "+routes[1], "Subject: between", "Route: "+routes[0], "To: <sip:b@example.com>;tag=2"), client, udp4)
	s.same("caller's in two lines", r.to, target.Address.String())
	if m.Route != nil {
		t.Errorf("got Route %q, want none", m.Route)
	}
	// The instance's route set keeps the order.
	bye := lines("BYE sip:a@192.0.2.7:5062 SIP/2.0", "Via: SIP/2.0/UDP "+target.Address.String()+";branch=z9hG4bKi", "Route: "+routes[0]+","+routes[1], "To: <sip:a@example.com>;tag=1", "From: <sip:b@example.com>;tag=2")
	r, _ = s.must(bye, netip.AddrPortFrom(target.Address.Addr(), 33333), udp4)
	s.same("callee's", r.to, "192.0.2.7:5062")
	back, _ := s.must(respond(r.text, 200, ""), netip.MustParseAddrPort("192.0.2.7:5062"), udp4)
	s.same("its response", back.to, target.Address.String())
	// A stranger may not send outward: the request goes to an instance.
	r, _ = s.must(bye, netip.MustParseAddrPort("203.0.113.5:5060"), udp4)
	if s.targetOf(r.to).TypeName() != "session" {
		t.Errorf("the request from another sender went to %s, want a session instance", r.to)
	}
}

// TestPath checks that an instance's request reaches the client by the Path of its registration.
// The client's requests in the dialog must come back to the instance.
func TestPath(t *testing.T) {
	s := newStage(t, rulesConfig())
	_, m := s.must(register, client, udp4)
	path := elements(m, sip.Path)
	if len(path) != 1 {
		t.Fatalf("got Path %q, want 1 element", path)
	}
	caller := s.epochs.View().Table.ByName("ses-3")
	r, m := s.must(lines("INVITE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), caller.Address, udp4)
	s.same("to the client", r.to, "192.0.2.7:5064")
	routes := elements(m, sip.RecordRoute)
	if len(routes) != 2 {
		t.Fatalf("got Record-Route %q, want 2 elements", routes)
	}
	r, _ = s.must(lines("BYE sip:10.5.5.5 SIP/2.0", "Route: "+routes[0]+", "+routes[1], "To: <sip:b@example.com>;tag=2"), client, udp4)
	s.same("from the client", r.to, "10.0.1.3:5060")
	r, _ = s.must(lines("BYE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+routes[1]+", "+routes[0], "To: <sip:b@example.com>;tag=2"), caller.Address, udp4)
	s.same("to the client again", r.to, "192.0.2.7:5064")
	// A request from the instance's own address, without Route.
	r, _ = s.must(lines("MESSAGE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi"), caller.Address, udp4)
	s.same("by the request line", r.to, "192.0.2.7:5064")
	r, _ = s.must(lines("MESSAGE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: <sip:192.0.2.99;lr>"), caller.Address, udp4)
	s.same("by a Route of others", r.to, "192.0.2.99:5060")
	s.status(416, lines("MESSAGE tel:+123 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), caller.Address, udp4)
	s.status(502, lines("MESSAGE sip:a@phone.example.com SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), caller.Address, udp4)
	// A message in clear text to a TLS port would be a leak.
	s.status(502, lines("MESSAGE sip:a@192.0.2.7:5061;transport=tls SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), caller.Address, udp4)
	s.status(502, lines("MESSAGE sip:a@192.0.2.7:5061;transport=tls SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi"), caller.Address, udp4)
}

// TestFlow checks that a TCP client gets messages on the connection that the client opened.
func TestFlow(t *testing.T) {
	s := newStage(t, rulesConfig())
	conn := netip.MustParseAddrPort("192.0.2.7:40001")
	r, m := s.must(strings.Replace(register, "/UDP", "/TCP", 1), conn, tcp4)
	if r.listener != udp4 || !strings.Contains(r.text, "Via: SIP/2.0/UDP 198.51.100.1:5060;branch=") {
		t.Errorf("sent by listener %d:\n%s", r.listener, r.text)
	}
	back, _ := s.must(respond(r.text, 200, ""), s.targetOf(r.to).Address, udp4)
	if back.listener != tcp4 || back.flow != conn {
		t.Errorf("the response was sent by listener %d to %v", back.listener, back.flow)
	}
	path := elements(m, sip.Path)
	r, m = s.must(lines("INVITE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+path[0]), s.targetOf("10.0.1.3:5060").Address, udp4)
	if r.listener != tcp4 || r.flow != conn || r.to != "192.0.2.7:5064" || !strings.Contains(string(m.Via), "/TCP 198.51.100.1:5060;") {
		t.Errorf("the INVITE was sent by listener %d to %v, %s with Via %s", r.listener, r.flow, r.to, m.Via)
	}
	routes := elements(m, sip.RecordRoute)
	if len(routes) != 2 || !strings.Contains(routes[0], ";transport=tcp") || strings.Contains(routes[1], "tcp") {
		t.Errorf("got Record-Route %q, want TCP first, then UDP", routes)
	}
	r, _ = s.must(lines("BYE sip:a@192.0.2.7:5064 SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKi", "Route: "+routes[1]+", "+routes[0], "To: <sip:b@example.com>;tag=2"), s.targetOf("10.0.1.3:5060").Address, udp4)
	if r.flow != conn {
		t.Errorf("the BYE went to %v, want the phone's connection", r.flow)
	}
	// A phone that registered by a TLS proxy is reached by the connection of that proxy.
	r, _ = s.must(lines("INVITE sip:a@192.0.2.7:5061;transport=tls SIP/2.0", "Via: SIP/2.0/UDP 10.0.1.3:5060;branch=z9hG4bKj", "Route: "+path[0]), s.targetOf("10.0.1.3:5060").Address, udp4)
	if r.listener != tcp4 || r.flow != conn || r.to != conn.String() {
		t.Errorf("the INVITE to a TLS phone was sent by listener %d to %v, %s, want the connection", r.listener, r.flow, r.to)
	}
}

// TestAggregateWithoutRecordRoute checks a caller's BYE through an instance that records no route, so the
// route set has the entries of two passes side by side. The instance needs those of the second pass to
// reach the connection that the callee opened.
func TestAggregateWithoutRecordRoute(t *testing.T) {
	s := newStage(t, rulesConfig())
	conn := netip.MustParseAddrPort("192.0.2.7:40001")
	_, m := s.must(strings.Replace(register, "/UDP", "/TCP", 1), conn, tcp4)
	path := elements(m, sip.Path)
	r, m := s.must(lines("INVITE sip:a@example.com SIP/2.0"), client, udp4)
	instance, first := s.targetOf(r.to).Address, elements(m, sip.RecordRoute)
	via := "Via: SIP/2.0/UDP " + instance.String() + ";branch=z9hG4bKi"
	_, m = s.must(lines("INVITE sip:a@192.0.2.7:5064 SIP/2.0", via, "Route: "+path[0]), instance, udp4)
	second := elements(m, sip.RecordRoute)

	const bye, to = "BYE sip:a@192.0.2.7:5064 SIP/2.0", "To: <sip:a@example.com>;tag=2"
	rest := second[1] + ", " + second[0]
	for _, between := range []string{", ", "\r\nRoute: "} {
		r, m = s.must(lines(bye, "Route: "+strings.Join([]string{first[1], first[0], second[1], second[0]}, between), to), client, udp4)
		s.same("the caller's BYE", r.to, instance.String())
		s.same("Route at the instance", strings.Join(elements(m, sip.Route), ", "), rest)
	}
	r, m = s.must(lines(bye, via, "Route: "+rest, to), instance, udp4)
	if r.flow != conn || m.Route != nil {
		t.Errorf("the instance's BYE went to %v with Route %q, want the callee's connection and no Route", r.flow, m.Route)
	}
}

// A call is one call at an instance.
type call struct {
	*stage
	target *table.Target
	sent   string // the INVITE that the instance received
}

func newCall(s *stage) *call {
	r, _ := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	return &call{s, s.targetOf(r.to), r.text}
}

// answer sends the instance's response to a request.
func (c *call) answer(sent string, status int) {
	c.t.Helper()
	c.must(respond(sent, status, ""), c.target.Address, udp4)
}

// inside sends a client's request within the dialog and returns the request that the
// instance received.
func (c *call) inside(method, branch string) string {
	c.t.Helper()
	var m sip.Message
	if _, err := m.Parse([]byte(c.sent)); err != nil {
		c.t.Fatal(err)
	}
	routes := elements(&m, sip.RecordRoute)
	r, _ := c.must(lines(method+" sip:b@10.9.9.9 SIP/2.0", "Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bK"+branch,
		"Route: "+routes[1]+", "+routes[0], "To: <sip:b@example.com>;tag=uas"), client, udp4)
	return r.text
}

// hangUp sends a BYE from the instance and returns the forwarded BYE.
func (c *call) hangUp(more ...string) string {
	c.t.Helper()
	r, _ := c.must(lines("BYE sip:a@192.0.2.7:5062 SIP/2.0", append([]string{"Via: SIP/2.0/UDP " + c.target.Address.String() + ";branch=z9hG4bKi",
		"From: <sip:b@example.com>;tag=uas", "To: <sip:a@example.com>;tag=1"}, more...)...), c.target.Address, udp4)
	return r.text
}

func (c *call) dialogs(what string, begun, ended uint64) {
	c.t.Helper()
	if n := c.counted(c.target.Name); n.DialogsBegun != begun || n.DialogsEnded != ended {
		c.t.Errorf("%s: %d dialogs begun and %d ended, want %d and %d", what, n.DialogsBegun, n.DialogsEnded, begun, ended)
	}
}

// TestDialogsCounted checks that retransmissions and repeated requests do not count a dialog twice.
func TestDialogsCounted(t *testing.T) {
	c := newCall(newStage(t, rulesConfig()))
	c.answer(c.sent, 180)
	c.answer(c.sent, 200)
	c.answer(c.sent, 200)
	c.dialogs("a call", 1, 0)
	c.now += table.Transition + time.Second
	c.meter.Expire(c.now)
	again := c.inside("INVITE", "again")
	c.must(respond(again, 200, "Record-Route: <sip:10.0.1.9;lr>\r\n"), c.target.Address, udp4)
	c.dialogs("a re-INVITE that others record", 1, 0)
	c.answer(c.inside("BYE", "bye"), 407)
	c.dialogs("a BYE without credentials", 1, 0)
	bye := c.inside("BYE", "credentials")
	c.answer(bye, 200)
	c.answer(bye, 200)
	c.dialogs("a BYE with credentials", 1, 1)
	c.hangUp()
	c.dialogs("both hang up", 1, 1)
}

// TestByesOfNoDialogDoNotCount checks that a BYE ends a dialog only at the instance that the director's own
// Route entry names, although another instance answers it.
func TestByesOfNoDialogDoNotCount(t *testing.T) {
	c := newCall(newStage(t, rulesConfig()))
	c.answer(c.sent, 200)
	stray, _ := c.must(lines("BYE sip:b@example.com SIP/2.0", "CSeq: 8 BYE", "To: <sip:b@example.com>;tag=stray"), client, udp4)
	c.same("a BYE without Route", stray.to, c.target.Address.String())
	c.answer(stray.text, 481)
	c.dialogs("a BYE without Route", 1, 0)

	other := &call{stage: c.stage, target: c.epochs.View().Table.ByName("ses-1")}
	if other.target == c.target {
		other.target = c.epochs.View().Table.ByName("ses-2")
	}
	c.now += c.epochs.Pace()
	wait := c.epochs.Publish(c.now, c.epochs.View().Table, func(at *table.Target) table.Condition {
		if at.Name == other.target.Name {
			return table.Away
		}
		return table.Up
	})
	if wait != 0 {
		t.Fatalf("publication of the health has to wait %v", wait)
	}
	moved, _ := c.must(lines("BYE sip:b@example.com SIP/2.0", "CSeq: 9 BYE", "Route: "+c.route('i', other.target, "c1"), "To: <sip:b@example.com>;tag=moved"), client, udp4)
	c.same("the BYE of an instance that is away", moved.to, c.target.Address.String())
	c.answer(moved.text, 481)
	c.dialogs("the BYE of another instance", 1, 0)
	other.dialogs("its BYE while it is away", 0, 1)

	c.answer(c.inside("BYE", "bye"), 200)
	c.dialogs("its own BYE", 1, 1)
}

// TestDialogThatRingsLong checks that a late answer of the instance begins a dialog, even if the
// meter has forgotten the INVITE.
func TestDialogThatRingsLong(t *testing.T) {
	c := newCall(newStage(t, rulesConfig()))
	c.answer(c.sent, 180)
	c.now += table.Transition + time.Second
	c.meter.Expire(c.now)
	c.must(respond(c.sent, 200, ""), netip.MustParseAddrPort("203.0.113.5:5060"), udp4)
	c.dialogs("a stranger's answer", 0, 0)
	c.answer(c.sent, 200)
	c.answer(c.sent, 200)
	c.dialogs("a late answer", 1, 0)
	c.answer(c.inside("BYE", "bye"), 200)
	c.dialogs("its BYE", 1, 1)
}

// TestDialogOfInstance checks that dialogs that an instance begins or ends are counted, whether its
// BYE is answered or not. Requests that an instance only forwards must count only at the director
// through which they came inward.
func TestDialogOfInstance(t *testing.T) {
	c := newCall(newStage(t, rulesConfig()))
	c.answer(c.sent, 200)
	other := &call{stage: newStage(t, rulesConfig()), target: c.target} // a second director
	for _, sent := range []string{c.sent, c.inside("BYE", "bye")} {
		via := "\r\nVia: SIP/2.0/UDP " + c.target.Address.String() + ";branch=z9hG4bKi\r\nVia:"
		sent = strings.Replace(strings.Replace(sent, "sip:b@example.com SIP", "sip:b@192.0.2.8 SIP", 1), "\r\nVia:", via, 1)
		passed, _ := other.must(sent, c.target.Address, udp4)
		if passed.to == c.target.Address.String() {
			t.Errorf("the request was sent back to the instance: %s", passed.text)
		}
		other.must(respond(passed.text, 200, ""), netip.MustParseAddrPort("192.0.2.8:5060"), udp4)
	}
	other.dialogs("what is passed on", 0, 0)
	bye := c.hangUp()
	c.hangUp()
	c.dialogs("the instance's BYE", 1, 1)
	c.must(respond(bye, 200, ""), client, udp4)
	c.must(strings.Replace(respond(bye, 200, ""), "tag=1", "tag=forged", 1), client, udp4)
	c.dialogs("its answers", 1, 1)
	own, _ := c.must(lines("INVITE sip:a@192.0.2.7:5062 SIP/2.0", "Via: SIP/2.0/UDP "+c.target.Address.String()+";branch=z9hG4bKi", "Call-ID: own"), c.target.Address, udp4)
	c.must(respond(own.text, 200, ""), client, udp4)
	c.must(respond(own.text, 200, ""), client, udp4)
	c.dialogs("the instance's INVITE", 2, 1)
}

// TestRequestsNotSentDoNotCount checks that a request begins no transaction and ends no dialog if
// the director answers it itself because no listener has its transport.
func TestRequestsNotSentDoNotCount(t *testing.T) {
	config := rulesConfig()
	config.Options = map[string]TypeOptions{"six": {Stream: true}} // the stage has no listener for TCP over IPv6
	c := newCall(newStage(t, config))
	c.answer(c.sent, 200)
	inward, outward := c.proxy.counts.Inward.Load(), c.proxy.counts.Outward.Load()

	c.status(502, lines("MESSAGE sip:b@example.com SIP/2.0", "Via: SIP/2.0/UDP 192.0.2.7:5060;branch=z9hG4bKmessage"), client, udp4)
	if n := c.counted("six"); n.Begun != 0 || n.InFlight != 0 {
		t.Errorf("counted %d transactions begun and %d in flight at an instance that got no message", n.Begun, n.InFlight)
	}
	c.status(502, lines("BYE sip:a@[2001:db8::9];transport=tcp SIP/2.0", "Via: SIP/2.0/UDP "+c.target.Address.String()+";branch=z9hG4bKi",
		"From: <sip:b@example.com>;tag=uas", "To: <sip:a@example.com>;tag=1"), c.target.Address, udp4)
	c.dialogs("a BYE that is not sent", 1, 0)
	if in, out := c.proxy.counts.Inward.Load()-inward, c.proxy.counts.Outward.Load()-outward; in != 0 || out != 0 {
		t.Errorf("counted %d requests inward and %d outward, want 0", in, out)
	}
}
