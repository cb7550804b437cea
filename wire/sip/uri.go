package sip

import (
	"bytes"
	"net/netip"
	"unsafe"
)

// DefaultPort is the port of SIP over UDP and TCP if a URI or Via has none (RFC
// 3261 sections 18.1.1 and 19.1.2).
const DefaultPort = 5060

// Address returns the URI of a From, To, Contact or Route value (RFC 3261 section
// 20.10), without display name, brackets and the header's parameters. It returns
// nil if brackets or quotes do not close.
func Address(value []byte) []byte {
	for i := 0; i < len(value); i++ {
		switch value[i] {
		case '"':
			if i = skipQuoted(value, i) - 1; i == len(value) {
				return nil
			}
		case '<':
			end := bytes.IndexByte(value[i:], '>')
			if end < 0 {
				return nil
			}
			return value[i+1 : i+end]
		}
	}
	value, _, _ = bytes.Cut(value, semicolon)
	return trim(value)
}

// IsRequestURI reports whether uri may stand in a request line: it is not empty and has
// neither brackets around it nor a space in it (RFC 3261 section 25.1; RFC 4475
// sections 3.1.2.7 and 3.1.2.8).
func IsRequestURI(uri []byte) bool {
	return len(uri) > 0 && uri[0] != '<' && bytes.IndexByte(uri, ' ') < 0
}

var semicolon, colon, at = []byte(";"), []byte(":"), []byte("@")

// A URI is a parsed SIP URI (RFC 3261 section 19.1). Its slices are views.
type URI struct {
	User   []byte // without password; nil if there is none
	Host   []byte // an IPv6 address includes its brackets
	Port   uint16 // 0 if there is none
	MAddr  []byte
	Stream bool // transport=tcp
	Other  bool // a transport other than UDP and TCP, such as transport=tls
}

// ParseURI parses a SIP URI. ok is false for other schemes, including SIPS, for a
// URI without a host and for a wrong port.
func ParseURI(text []byte) (u URI, ok bool) {
	if len(text) < 5 || !EqualFold(text[:4], "sip:") {
		return u, false
	}
	// The user may contain semicolons and question marks; the text after the user
	// has no @.
	rest := text[4:]
	if user, after, found := bytes.Cut(rest, at); found {
		u.User, _, _ = bytes.Cut(user, colon) // a password follows
		rest = after
	}
	host := hostOf(rest)
	if u.Host, u.Port, ok = ParseHostPort(host); !ok {
		return u, false
	}
	rest = rest[len(host):]
	if i := bytes.IndexByte(rest, '?'); i >= 0 {
		rest = rest[:i] // headers
	}
	for len(rest) > 0 {
		var name, value []byte
		name, value, rest = CutParam(rest)
		switch {
		case EqualFold(name, "maddr"):
			u.MAddr = value
		case EqualFold(name, "transport"):
			u.Stream = EqualFold(value, "tcp")
			u.Other = !u.Stream && len(value) > 0 && !EqualFold(value, "udp")
		}
	}
	return u, true
}

// hostOf returns text up to parameters and headers. text is a URI, or its part
// after the user.
func hostOf(text []byte) []byte {
	for i, c := range text {
		if c == ';' || c == '?' {
			return text[:i]
		}
	}
	return text
}

// WithoutURIParams returns a URI of any scheme without its parameters and
// headers.
func WithoutURIParams(uri []byte) []byte {
	user := bytes.IndexByte(uri, '@') + 1
	return uri[:user+len(hostOf(uri[user:]))]
}

// Target returns the address of the URI (RFC 3263 section 4, for IP addresses).
// ok is false for a host name, which Target does not look up.
func (u *URI) Target() (a netip.AddrPort, ok bool) {
	host := u.Host
	if len(u.MAddr) > 0 {
		host = u.MAddr
	}
	return target(host, u.Port)
}

func target(host []byte, port uint16) (netip.AddrPort, bool) {
	if port == 0 {
		port = DefaultPort
	}
	addr, ok := ParseHost(host)
	return netip.AddrPortFrom(addr, port), ok
}

// ParseHostPort parses "host" or "host:port", with optional spaces around the
// colon (hostport and sent-by, RFC 3261 section 25.1). port is 0 if there is
// none. ParseHostPort does not check the characters of the host.
func ParseHostPort(text []byte) (host []byte, port uint16, ok bool) {
	host = trim(text)
	bracket := -1 // end of an IPv6 address, which contains colons
	if len(host) > 0 && host[0] == '[' {
		if bracket = bytes.IndexByte(host, ']'); bracket < 0 {
			return nil, 0, false
		}
	}
	if i := bytes.LastIndexByte(host, ':'); i > bracket {
		if port, ok = ParsePort(trim(host[i+1:])); !ok {
			return nil, 0, false
		}
		host = trim(host[:i])
	}
	return host, port, len(host) > 0
}

// ParsePort parses a port, 1 to 65535.
func ParsePort(text []byte) (uint16, bool) {
	n, ok := ParseNumber(text)
	return uint16(n), ok && n > 0 && n <= 65535
}

// ParseHost parses an IP address of a Via or a URI; an IPv6 address may be in
// brackets or bare (RFC 3261 section 25.1, host). ok is false for a host name.
func ParseHost(host []byte) (a netip.Addr, ok bool) {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	} else if len(host) > 0 && isDigit(host[0]) {
		if a, ok = parseIPv4(host); ok {
			return a, true
		}
	}
	if bytes.IndexByte(host, ':') < 0 {
		return a, false
	}
	a, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(host), len(host)))
	return a, err == nil && a.Zone() == "" && !a.Is4In6()
}

// parseIPv4 parses an IPv4address (RFC 3261 section 25.1), which may have leading
// zeros.
func parseIPv4(text []byte) (netip.Addr, bool) {
	var ip [4]byte
	part, n, size := 0, 0, 0
	for _, c := range text {
		switch {
		case isDigit(c):
			n, size = n*10+int(c-'0'), size+1
			if n > 255 || size > 3 {
				return netip.Addr{}, false
			}
		case c == '.' && size > 0 && part < 3:
			ip[part] = byte(n)
			part, n, size = part+1, 0, 0
		default:
			return netip.Addr{}, false
		}
	}
	ip[3] = byte(n)
	return netip.AddrFrom4(ip), part == 3 && size > 0
}
