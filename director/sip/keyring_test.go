package sip

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/sip"
)

var stranger = netip.MustParseAddrPort("203.0.113.66:5060")

// TestForgedResponses checks that a response is dropped and counted if the director did not write
// its top Via.
func TestForgedResponses(t *testing.T) {
	s := newStage(t, rulesConfig())
	r, m := s.must(register, client, udp4)
	own, from := string(m.Via), s.targetOf(r.to).Address
	answer := respond(r.text, 200, "")
	tampered := map[string]string{
		"no MAC":             strings.Replace(answer, ";vm="+mac(m), "", 1),
		"an empty MAC":       strings.Replace(answer, ";vm="+mac(m), ";vm", 1),
		"a short MAC":        strings.Replace(answer, ";vm="+mac(m), ";vm="+mac(m)[:35], 1),
		"a MAC in capitals":  strings.Replace(answer, mac(m), strings.ToUpper(mac(m)), 1),
		"another key":        strings.Replace(answer, ";vm=0001", ";vm=0002", 1),
		"no key":             strings.Replace(answer, ";vm=0001", ";vm=0000", 1),
		"a key beyond":       strings.Replace(answer, ";vm=0001", ";vm=0101", 1),
		"a wrong MAC":        strings.Replace(answer, ";vm=0001", ";vm=00010123456789abcdef0123456789abcdef;x=", 1),
		"another branch":     strings.Replace(answer, own, "SIP/2.0/UDP 198.51.100.1:5060;branch=z9hG4bKx", 1),
		"another listener":   strings.Replace(answer, "z9hG4bK-vd00", "z9hG4bK-vd01", 1),
		"the other way":      strings.Replace(answer, "z9hG4bK-vd00", "z9hG4bK-vd80", 1),
		"multicast":          strings.Replace(answer, "received=192.0.2.7", "received=239.1.2.3", 1),
		"an unrelated host":  strings.Replace(answer, "received=192.0.2.7", "received=192.0.2.8", 1),
		"an unrelated port":  strings.Replace(answer, "rport=5060", "rport=5061", 1),
		"a flow":             strings.Replace(answer, ";vm=", ";vf=c0000207139c;vm=", 1),
		"a flow that is not": strings.Replace(answer, ";vm=", ";vf=x;vm=", 1),
		"a dialog's begin":   strings.Replace(answer, ";vm=", ";vb;vm=", 1),
	}
	for name, text := range tampered {
		if text == answer {
			t.Fatalf("tampering %s did not change the message", name)
		}
		if got, ok := s.pass(text, from, udp4); ok {
			t.Errorf("%s: forwarded to %s by listener %d:\n%s", name, got.to, got.listener, got.text)
		}
	}
	if n := s.failures(meter.NoType, meter.Unverified); n != uint64(len(tampered)) {
		t.Errorf("counted %d unverified messages, want %d", n, len(tampered))
	}
	if n := s.counted(s.targetOf(r.to).Name); n.Ended[meter.Succeeded.String()] != 0 {
		t.Errorf("transactions were counted: %+v", n)
	}
	// A proxy may rewrite a Via with other case, order and spaces.
	anew := strings.NewReplacer(own, "sip/2.0/udp  198.51.100.1:5060 ; VM = "+mac(m)+" ;x=y; Branch="+branch(m),
		";rport=5060;received=192.0.2.7;branch=z9hG4bKclient", " ;branch=z9hG4bKclient; received = 192.0.2.7;RPORT=5060").Replace(answer)
	back, _ := s.must(strings.Replace(anew, "sip/2.0/udp", "SIP/2.0/UDP", 1), from, udp4)
	s.same("to", back.to, "192.0.2.7:5060")
}

// TestWayBack checks the destination of responses (RFC 3261 section 18.2.2, RFC 3581
// section 4).
func TestWayBack(t *testing.T) {
	s := newStage(t, rulesConfig())
	for _, c := range []struct{ name, via, from, to, flow string }{
		{"sent-by", "UDP 192.0.2.7:5070", "192.0.2.7:40000", "192.0.2.7:5070", ""},
		{"the default port", "UDP phone.example.com", "192.0.2.7:40000", "192.0.2.7:5060", ""},
		{"rport", "UDP 10.1.1.1:5070;rport", "192.0.2.7:40000", "192.0.2.7:40000", ""},
		{"rport that lies", "UDP 10.1.1.1:5070;rport=9", "192.0.2.7:40000", "192.0.2.7:40000", ""},
		{"received that lies", "UDP 10.1.1.1:5070;received=198.51.100.99", "192.0.2.7:40000", "192.0.2.7:5070", ""},
		{"multicast maddr", "UDP 192.0.2.7:5070;maddr=239.1.2.3;ttl=1", "192.0.2.7:40000", "192.0.2.7:5070", ""},
		{"maddr of another", "UDP 192.0.2.7:5070;maddr=198.51.100.99", "192.0.2.7:40000", "192.0.2.7:5070", ""},
		{"maddr of its own", "UDP 10.1.1.1:5070;maddr=192.0.2.7", "192.0.2.7:40000", "192.0.2.7:5070", ""},
		{"TCP said over UDP", "TCP 192.0.2.7:5070", "192.0.2.7:40000", "192.0.2.7:5070", ""},
		{"TCP", "TCP 192.0.2.7:5070", "192.0.2.7:40000", "192.0.2.7:5070", "192.0.2.7:40000"},
		{"TCP with rport", "TCP 10.1.1.1:5070;rport", "192.0.2.7:40000", "192.0.2.7:5070", "192.0.2.7:40000"},
		{"UDP said over TCP", "UDP 10.1.1.1;rport", "192.0.2.7:40000", "192.0.2.7:5060", "192.0.2.7:40000"},
	} {
		listener := udp4
		if c.flow != "" {
			listener = tcp4
		}
		text := lines("INVITE sip:b@example.com SIP/2.0", "Via: SIP/2.0/"+c.via+";branch=z9hG4bKw", "Content-Length: 0")
		r, _ := s.must(text, netip.MustParseAddrPort(c.from), listener)
		back, _ := s.must(respond(r.text, 200, ""), s.targetOf(r.to).Address, udp4)
		flow := ""
		if back.flow.IsValid() {
			flow = back.flow.String()
		}
		if back.to != c.to || back.listener != listener || flow != c.flow {
			t.Errorf("%s: sent to %s by listener %d, flow %q; want %s by %d, flow %q", c.name, back.to, back.listener, flow, c.to, listener, c.flow)
		}
	}
}

// TestRotation changes keys between an INVITE and its later messages. They must still reach the
// same instance and client.
func TestRotation(t *testing.T) {
	s := newStage(t, rulesConfig())
	set := func(r *Keyring) { s.proxy.server.keys.Store(r) }
	text := lines("INVITE sip:b@example.com SIP/2.0")
	sent, m := s.must(text, client, udp4)
	instance := s.targetOf(sent.to)
	routes := elements(m, sip.RecordRoute)
	other := s.epochs.View().Table.ByName("ses-1")
	if other == instance {
		other = s.epochs.View().Table.ByName("ses-2")
	}
	named := s.route('i', other, "c1") // an instance that the key alone would not choose
	old := keyring(t, 1)
	set(keyring(t, 2, 1))
	again, n := s.must(text, client, udp4)
	if again.to != sent.to || branch(n) != branch(m) || mac(n) == mac(m) || !strings.HasPrefix(mac(n), "0002") {
		t.Errorf("the retransmission was sent to %s with Via %s", again.to, n.Via)
	}
	cancel, n := s.must(strings.NewReplacer("INVITE sip", "CANCEL sip", "7 INVITE", "7 CANCEL").Replace(text), client, udp4)
	if cancel.to != sent.to || branch(n) != branch(m) {
		t.Errorf("the CANCEL was sent to %s with Via %s", cancel.to, n.Via)
	}
	ack, n := s.must(strings.NewReplacer("INVITE sip", "ACK sip", "7 INVITE", "7 ACK", "b@example.com>", "b@example.com>;tag=2").Replace(text), client, udp4)
	if ack.to != sent.to || branch(n) != branch(m) {
		t.Errorf("the ACK of a failure was sent to %s with Via %s", ack.to, n.Via)
	}
	for _, status := range []int{180, 487, 200} {
		for _, r := range []result{sent, again} {
			back, _ := s.must(respond(r.text, status, ""), instance.Address, udp4)
			s.same("the late response goes", back.to, client.String())
		}
	}
	if n := s.counted(instance.Name); n.DialogsBegun != 1 {
		t.Errorf("%+v", n)
	}
	tag := "To: <sip:b@example.com>;tag=2"
	for _, method := range []string{"ACK", "BYE"} {
		r, _ := s.must(lines(method+" sip:b@10.9.9.9 SIP/2.0", "Route: "+named+", "+routes[0], tag), client, udp4)
		s.same(method, r.to, other.Address.String())
	}
	bye := lines("BYE sip:a@192.0.2.7:5062 SIP/2.0", "Via: SIP/2.0/UDP "+instance.Address.String()+";branch=z9hG4bKi", "Route: "+routes[0]+","+routes[1], tag)
	r, _ := s.must(bye, instance.Address, udp4)
	s.same("the instance's BYE", r.to, "192.0.2.7:5062")

	// Later the old key verifies only dialogs, and in the end nothing.
	later := []SigningKey{{ID: 2, Secret: [16]byte{2, 0x5e}, Via: true, Route: true}, {ID: 1, Secret: [16]byte{1, 0x5e}, Route: true}}
	ring, err := NewKeyring(later)
	if err != nil {
		t.Fatal(err)
	}
	set(ring)
	if got, ok := s.pass(respond(sent.text, 200, ""), instance.Address, udp4); ok {
		t.Errorf("a response signed with an expired key was sent to %s", got.to)
	}
	r, _ = s.must(lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: "+named, tag), client, udp4)
	s.same("BYE within the life of dialogs", r.to, other.Address.String())
	set(keyring(t, 2))
	r, _ = s.must(lines("BYE sip:b@10.9.9.9 SIP/2.0", "Route: "+named, tag), client, udp4)
	s.same("BYE after it goes by its key", r.to, sent.to)
	set(old)
	s.must(respond(sent.text, 200, ""), instance.Address, udp4)
}

// TestStrangersDoNotCount checks that a stranger's response with a copied Via is forwarded, but
// neither ends a transaction nor begins a dialog. Anyone may answer a request from an instance.
func TestStrangersDoNotCount(t *testing.T) {
	c := newCall(newStage(t, rulesConfig()))
	c.must(respond(c.sent, 200, ""), stranger, udp4)
	c.dialogs("a stranger's answer", 0, 0)
	if n := c.counted(c.target.Name); n.InFlight != 1 || c.meter.Samples()["session"].Count != 0 {
		t.Errorf("%+v", n)
	}
	c.answer(c.sent, 200)
	c.dialogs("the instance's", 1, 0)
	if n := c.counted(c.target.Name); n.InFlight != 0 {
		t.Errorf("%+v", n)
	}
	own, _ := c.must(lines("INVITE sip:a@192.0.2.7:5062 SIP/2.0", "Via: SIP/2.0/UDP "+c.target.Address.String()+";branch=z9hG4bKi", "Call-ID: own"), c.target.Address, udp4)
	c.must(respond(own.text, 200, ""), stranger, udp4)
	c.dialogs("the answer to the instance's own INVITE", 2, 0)
}

// TestForgedRoutes checks that a Route entry neither steers a request nor opens a flow if the
// director did not write it.
func TestForgedRoutes(t *testing.T) {
	s := newStage(t, rulesConfig())
	conn := netip.MustParseAddrPort("192.0.2.7:40001")
	_, m := s.must(strings.Replace(register, "/UDP", "/TCP", 1), conn, tcp4)
	path := elements(m, sip.Path)[0]
	instance := s.epochs.View().Table.ByName("reg-1").Address
	notify := func(route string) result {
		r, _ := s.must(lines("NOTIFY sip:a@192.0.2.9:5064 SIP/2.0", "Event: reg", "Via: SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bKi", "Route: "+route), instance, udp4)
		return r
	}
	if r := notify(path); r.flow != conn {
		t.Errorf("the NOTIFY was sent to %v, want the connection in its Path", r.flow)
	}
	if r := notify(strings.Replace(path, "9c41", "9c42", 1)); r.flow.IsValid() || r.to != "192.0.2.9:5064" {
		t.Errorf("the NOTIFY with a forged flow was sent to %v, %s", r.flow, r.to)
	}
	r, _ := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	for i := range 4 {
		target := s.epochs.View().Table.Target(int32(i))
		for _, route := range []string{
			s.route('i', target, "another"), strings.Replace(s.route('i', target, "c1"), "..", ".c00002079c41.", 1),
			fmt.Sprintf("<sip:i.%04x..%s@198.51.100.1:5060;lr>", target.ID, target.TypeName()),
		} {
			got, _ := s.must(lines("BYE sip:b@example.com SIP/2.0", "Route: "+route, "To: <sip:b@x>;tag=2"), client, udp4)
			s.same("by a forged Route", got.to, r.to)
		}
	}
	if n := s.proxy.counts.Unsigned.Load(); n != 13 {
		t.Errorf("counted %d unsigned messages, want 13", n)
	}
}

func TestBadKeyrings(t *testing.T) {
	for _, keys := range [][]SigningKey{nil, {{ID: 0}}, {{ID: 1}, {ID: 1}}} {
		if _, err := NewKeyring(keys); err == nil {
			t.Errorf("NewKeyring accepted %v", keys)
		}
	}
	a, b := newStage(t, rulesConfig()), newStage(t, rulesConfig())
	ring, err := randomKeyring()
	if err != nil {
		t.Fatal(err)
	}
	a.proxy.server.keys.Store(ring)
	r, _ := a.must(register, client, udp4)
	if got, ok := b.pass(respond(r.text, 200, ""), table.Target{}.Address, udp4); ok {
		t.Errorf("a director with other keys forwarded %s", got.text)
	}
}
