package bono

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/reference/ims/sipudp"
)

// TestRouteToADirector checks that a Route with a director leads there from Sprout alone.
func TestRouteToADirector(t *testing.T) {
	p, _ := entry(t)
	director, registrar, phone := netip.MustParseAddrPort("192.0.2.1:5060"), netip.MustParseAddrPort("192.0.2.2:5060"), netip.MustParseAddrPort("192.0.2.3:5060")
	p.pool.sprouts = map[netip.AddrPort]*sprout{registrar: {addr: registrar}}
	behind := []netip.AddrPort{director}
	for _, c := range []struct {
		name      string
		directors []netip.AddrPort
		from      netip.AddrPort
		want      hop
	}{
		{"from Sprout", behind, registrar, hop{client: director}},
		{"from a phone through the director", behind, director, hop{sprout: director}},
		{"from a phone", behind, phone, hop{sprout: director}},
		{"without --director", nil, registrar, hop{sprout: director}},
	} {
		p.directors = c.directors
		msg, err := sipudp.Parse(sip.NewParser(), []byte(message("INVITE", "1", phone.String(),
			"Route: <sip:"+p.socket.Local().String()+";lr>", "Route: <sip:o.0001@192.0.2.1:5060;lr>")))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.next(msg.(*sip.Request), c.from); err != nil || got != c.want {
			t.Errorf("%s: got %+v, error %v, want %+v", c.name, got, err, c.want)
		}
	}
}

// forward sends an INVITE of a client on to a Sprout, as Bono does, and returns what the Sprout
// receives.
func forward(t *testing.T, p *proxy, client netip.AddrPort, to sipudp.Peer, owner *sprout) *sip.Request {
	t.Helper()
	parse := func(text string) *sip.Request {
		msg, err := sipudp.Parse(sip.NewParser(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return msg.(*sip.Request)
	}
	tx, _ := p.transactions.Receive(parse(message("INVITE", "1", client.String())), sipudp.Peer{Socket: p.socket, To: client}, time.Now())
	if err := p.transactions.Forward(tx, tx.Request.Clone(), to, owner); err != nil {
		t.Fatal(err)
	}
	sent, _ := p.transactions.Sent(tx)
	return parse(string(sent))
}

// TestRepeatedRejectionCountsOnce has a Sprout send a 503 again, because the ACK was lost.
func TestRepeatedRejectionCountsOnce(t *testing.T) {
	p, client := entry(t)
	from := client.LocalAddr().(*net.UDPAddr).AddrPort()
	sent := forward(t, p, from, sipudp.Peer{Socket: p.socket, To: from}, &sprout{})
	for range 2 {
		p.response(sipudp.Reply(sent, sip.StatusServiceUnavailable, "Overloaded"), sipudp.Arrival{})
	}
	if got := testutil.ToFloat64(p.counts.refused); got != 1 {
		t.Errorf("counted %g answers 503 of Sprouts, want 1", got)
	}
}
