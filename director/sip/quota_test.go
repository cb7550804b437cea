package sip

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/wire/sip"
)

// limited returns a stage with a quota of the given burst and one token per hour.
func limited(t testing.TB, burst float64) *stage {
	t.Helper()
	c := rulesConfig()
	c.Trusted = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	c.Quota = overload.NewQuota(overload.QuotaConfig{Rate: 1. / 3600, Burst: burst, Sources: 64})
	return newStage(t, c)
}

// TestQuota checks that a source over its limit gets as many refusals as its burst, and that its
// further requests are dropped. Another source must not be affected.
func TestQuota(t *testing.T) {
	s := limited(t, 3)
	sent, refused, dropped := 0, 0, 0
	for i := range 10 {
		r, ok := s.pass(lines("MESSAGE sip:b@example.com SIP/2.0", fmt.Sprintf("Call-ID: m%d", i)), client, udp4)
		switch {
		case !ok:
			dropped++
		case strings.HasPrefix(r.text, "SIP/2.0 503 ") && strings.Contains(r.text, "\r\nRetry-After: 1\r\n"):
			refused++
		case strings.HasPrefix(r.text, "MESSAGE "):
			sent++
		default:
			t.Errorf("%s", r.text)
		}
	}
	if sent != 3 || refused != 3 || dropped != 4 {
		t.Errorf("sent %d, refused %d, dropped %d, want 3, 3, 4", sent, refused, dropped)
	}
	if n := s.failures(meter.NoType, meter.OverQuota); n != 7 {
		t.Errorf("counted %d failures over the quota, want 7", n)
	}
	if n := s.meter.Drops("")["over_quota"]; n != 4 {
		t.Errorf("counted %d drops, want 4", n)
	}
	if _, m := s.must(register, netip.MustParseAddrPort("192.0.2.8:5060"), udp4); !m.IsRequest() {
		t.Error("a request from another source was refused")
	}
	s.now += time.Hour
	if _, m := s.must(register, client, udp4); !m.IsRequest() {
		t.Error("a request was refused an hour after the quota was used up")
	}
}

// TestQuotaSpares checks which messages pass although their source has no token: responses, ACK,
// requests within a dialog with the director's signed Route, and everything from instances and
// trusted networks.
func TestQuotaSpares(t *testing.T) {
	s := limited(t, 1)
	invite, m := s.must(lines("INVITE sip:b@example.com SIP/2.0"), client, udp4)
	routes, instance := elements(m, sip.RecordRoute), s.targetOf(invite.to).Address
	for { // until the source gets no refusals either
		if _, ok := s.pass(register, client, udp4); !ok {
			break
		}
	}
	route, tagged := "Route: "+routes[1]+", "+routes[0], "To: <sip:b@example.com>;tag=2"
	for _, c := range []struct {
		what, text string
		from       netip.AddrPort
		passes     bool
	}{
		{"a request", lines("MESSAGE sip:b@example.com SIP/2.0"), client, false},
		{"a malformed request", strings.Replace(register, "CSeq: 1 R", "CSeq: 1 X", 1), client, false},
		{"a request without hops", lines("MESSAGE sip:b@example.com SIP/2.0", "Max-Forwards: 0"), client, false},
		{"a request to the director", lines("OPTIONS sip:director.test SIP/2.0"), client, false},
		{"CANCEL", lines("CANCEL sip:b@example.com SIP/2.0"), client, false},
		{"a To tag alone", lines("BYE sip:b@example.com SIP/2.0", tagged), client, false},
		{"another dialog's Route", lines("BYE sip:b@example.com SIP/2.0", tagged, route, "Call-ID: other"), client, false},
		{"another port", lines("MESSAGE sip:b@example.com SIP/2.0"), netip.MustParseAddrPort("192.0.2.7:9"), false},
		{"ACK", lines("ACK sip:b@example.com SIP/2.0", tagged, route), client, true},
		{"BYE within the dialog", lines("BYE sip:b@10.9.9.9 SIP/2.0", tagged, route), client, true},
		{"a response", respond(invite.text, 200, ""), client, true},
		{"an instance's request", lines("MESSAGE sip:b@example.com SIP/2.0"), instance, true},
		{"a trusted request", lines("MESSAGE sip:b@example.com SIP/2.0"), netip.MustParseAddrPort("203.0.113.7:5060"), true},
	} {
		for range 3 {
			if r, ok := s.pass(c.text, c.from, udp4); ok != c.passes || strings.HasPrefix(r.text, "SIP/2.0 503") {
				t.Errorf("%s: %v\n%s", c.what, ok, r.text)
			}
		}
	}
}

// TestQuotaOverTCP checks that every refusal over TCP is answered, and that CANCEL passes, because the
// client repeats neither.
func TestQuotaOverTCP(t *testing.T) {
	s := limited(t, 1)
	for i := range 10 {
		r, m := s.must(lines("MESSAGE sip:b@example.com SIP/2.0", fmt.Sprintf("Call-ID: m%d", i), "Content-Length: 0"), client, tcp4)
		if refused := m.Status == 503 && r.flow == client; refused != (i > 0) {
			t.Errorf("request %d over TCP:\n%s", i, r.text)
		}
	}
	if r, m := s.must(lines("CANCEL sip:b@example.com SIP/2.0", "Content-Length: 0"), client, tcp4); !m.IsRequest() {
		t.Errorf("CANCEL over TCP was answered with\n%s", r.text)
	}
}

// TestQuotaExplains checks that Explain takes no token.
func TestQuotaExplains(t *testing.T) {
	s := limited(t, 1)
	d := &Server{core: core{places: s.proxy.server.places, epochs: s.epochs}}
	d.core.rules.Store(s.proxy.server.rules.Load())
	d.core.keys.Store(s.proxy.server.keys.Load())
	for range 3 {
		if x, err := d.Explain(s.now, s.meter.Probe(), client, []byte(register)); err != nil || !strings.HasPrefix(string(x.Message), "REGISTER ") {
			t.Fatalf("%s %v", x.Message, err)
		}
	}
	if _, m := s.must(register, client, udp4); !m.IsRequest() {
		t.Error("Explain used a token of the quota")
	}
}

// TestDropReasons checks the reason for every kind of message that the proxy drops. The other
// reasons belong to package gtpc or to the transports. Each message must count once as received and once as
// handled, also if it does not parse.
func TestDropReasons(t *testing.T) {
	elsewhere := map[meter.Cause]string{
		meter.Overloaded: "an ACK passes every gate", meter.Unsent: "transport", meter.SocketFull: "transport",
		meter.QueueFull: "transport", meter.NoConnection: "transport", meter.Stranger: "only GTP-C has a list of peers",
		meter.NoRoom: "only S1AP limits the connections of UEs",
	}
	s := limited(t, 1)
	request, m := s.must(register, client, udp4)
	forged := strings.Replace(respond(request.text, 200, ""), ";vm="+mac(m), ";vm=0001"+strings.Repeat("0", 32), 1)
	loop, _ := s.must(lines("ACK sip:b@example.com SIP/2.0"), client, udp4)
	for { // until the source gets no refusals either
		if _, ok := s.pass(register, client, udp4); !ok {
			break
		}
	}
	texts := map[meter.Cause]string{
		meter.NoInstance:  lines("ACK sip:b@example.com SIP/2.0", "Route: "+s.typeRoute("empty")),
		meter.Malformed:   "INVITE nothing",
		meter.Unruled:     lines("ACK sip:b@example.com SIP/2.0"),
		meter.TooManyHops: lines("ACK sip:b@example.com SIP/2.0", "Max-Forwards: 0"),
		meter.Looped:      loop.text,
		meter.Unroutable:  "SIP/2.0 200 OK\r\n" + strings.SplitN(lines("ACK sip:b SIP/2.0"), "\r\n", 2)[1],
		meter.Unverified:  forged,
		meter.OverQuota:   register,
	}
	few := rulesConfig()
	few.Rules = few.Rules[:1] // REGISTER
	registerOnly, err := NewRules(few)
	if err != nil {
		t.Fatal(err)
	}
	rules := map[bool]*Rules{true: registerOnly, false: s.proxy.server.rules.Load()}
	for _, cause := range meter.Causes() {
		text, ok := texts[cause]
		if why := elsewhere[cause]; !ok && why == "" {
			t.Errorf("no message is dropped for %s", cause)
		} else if !ok {
			continue
		}
		before, dropped := s.meter.Drops("")[cause.String()], s.proxy.counts.Dropped.Load()
		s.proxy.server.rules.Store(rules[cause == meter.Unruled])
		r, ok := s.pass(text, client, udp4)
		if n := s.meter.Drops("")[cause.String()] - before; ok || n != 1 || s.proxy.counts.Dropped.Load() != dropped+1 {
			t.Errorf("%s: counted %d drops, want 1; sent\n%s", cause, n, r.text)
		}
	}
	c := &s.proxy.counts
	received := c.Requests.Load() + c.Responses.Load() + c.Malformed.Load()
	handled := c.Inward.Load() + c.Outward.Load() + c.Returned.Load() + c.Answered.Load() + c.Absorbed.Load() + c.Dropped.Load()
	if n := c.Malformed.Load(); n != 1 || received != handled {
		t.Errorf("received %d messages, of which %d are malformed, and handled %d; want one that is malformed, and all handled", received, n, handled)
	}
}

// typeRoute returns the director's own Route entry for an instance that is gone.
func (s *stage) typeRoute(typeName string) string {
	s.proxy.keys = s.proxy.server.keys.Load()
	s.proxy.message.CallID = []byte("c1")
	return string(s.proxy.appendURI(nil, &s.proxy.server.places[udp4], 'i', 9, netip.AddrPort{}, []byte(typeName)))
}

// TestQuotaAllocatesNothing checks that requests with and without a token allocate nothing.
func TestQuotaAllocatesNothing(t *testing.T) {
	s := limited(t, 100)
	data, room := make([]byte, len(register)), make([]byte, 0, datagram.RoomSize)
	var out Outgoing
	var in datagram.Datagram
	n := uint32(0)
	if allocated := testing.AllocsPerRun(1000, func() {
		in = datagram.Datagram{Data: data[:copy(data, register)], From: client, At: s.now}
		s.proxy.Handle(&in, room, &out)
		in.Data, in.From = data[:copy(data, register)], netip.AddrPortFrom(netip.AddrFrom4([4]byte{11, 0, byte(n >> 8), byte(n)}), 5060)
		s.proxy.Handle(&in, room, &out)
		n++
	}); allocated != 0 {
		t.Errorf("%v allocations", allocated)
	}
}
