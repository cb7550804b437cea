package bono

import (
	"net/netip"
	"testing"

	"github.com/emiago/sipgo/sip"

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
		msg, err := sipudp.Parse(p.parser, []byte(message("INVITE", "1", phone.String(),
			"Route: <sip:"+p.socket.Local().String()+";lr>", "Route: <sip:o.0001@192.0.2.1:5060;lr>")))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.next(msg.(*sip.Request), c.from); err != nil || got != c.want {
			t.Errorf("%s: got %+v, error %v, want %+v", c.name, got, err, c.want)
		}
	}
}
