package sip

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"vitrine"
	"vitrine/wire/sip"
)

// A Listener is an address on which the director receives SIP.
type Listener struct {
	Stream  bool           // TCP; else UDP
	Address netip.AddrPort // to bind
	// Host is the "host" or "host:port" that Via, Record-Route and Path give for the
	// address; empty: the address itself. An unspecified address needs it. Directors side
	// by side must use the same.
	Host string
}

func (l Listener) String() string {
	if l.Stream {
		return "tcp://" + l.Address.String()
	}
	return "udp://" + l.Address.String()
}

// A place is a listener with the texts that name it in messages.
type place struct {
	Listener
	via  []byte     // the Via line up to the stamp
	uri  []byte     // what follows the user in Record-Route and Path, with the closing bracket
	host string     // in lower case
	addr netip.Addr // of host; invalid if host is a name
	port uint16     // 0: not given, which means sip.DefaultPort
	is4  bool
}

// newPlace prepares the texts of a listener; address is the bound address.
func newPlace(l Listener, address netip.AddrPort) (place, error) {
	l.Address = address
	text := l.Host
	if text == "" {
		if address.Addr().IsUnspecified() {
			return place{}, &vitrine.BadInput{Found: l.String(), Want: "an unspecified address needs the host that clients and instances reach it by"}
		}
		text = address.String()
	}
	p := place{Listener: l, is4: address.Addr().Is4()}
	host, port, ok := sip.ParseHostPort([]byte(text))
	if !ok || strings.ContainsAny(text, " ;,<>@\"\r\n") {
		return place{}, &vitrine.BadInput{Found: strconv.Quote(text), Want: "a host, or host:port"}
	}
	p.host, p.port = strings.ToLower(string(host)), port
	p.addr, _ = sip.ParseHost(host)
	transport, parameter := "UDP ", ""
	if l.Stream {
		transport, parameter = "TCP ", ";transport=tcp"
	}
	p.via = fmt.Appendf(nil, "Via: SIP/2.0/%s%s;branch=%s%s", transport, text, sip.BranchCookie, mark)
	p.uri = fmt.Appendf(nil, "@%s%s;lr>", text, parameter)
	return p, nil
}

// is reports whether a host and port name the listener.
func (p *place) is(host []byte, port uint16) bool {
	if port == p.port && string(host) == p.host {
		return true
	}
	if port == 0 {
		port = sip.DefaultPort
	}
	if p.Host != "" && port == p.Address.Port() { // the bound address names the listener too
		if addr, ok := sip.ParseHost(host); ok && addr == p.Address.Addr().Unmap() {
			return true
		}
	}
	own := p.port
	if own == 0 {
		own = sip.DefaultPort
	}
	if port != own {
		return false
	}
	if p.addr.IsValid() {
		addr, ok := sip.ParseHost(host)
		return ok && addr == p.addr
	}
	return sip.EqualFold(host, p.host)
}
