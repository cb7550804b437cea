package message

import (
	"bytes"

	"vitrine/wire/sip"
)

// identifierNone means that a name has no identifier kind.
const identifierNone IdentifierKind = 255

// personOf returns the kind of identity that follows a path segment, or is the value of a
// query parameter or field, with this name. It returns identifierNone for other names.
func personOf(name []byte) IdentifierKind {
	const longest = 24
	if len(name) == 0 || len(name) > longest {
		return identifierNone
	}
	switch {
	case sip.EqualFold(name, "impu"), sip.EqualFold(name, "aor"), sip.EqualFold(name, "public_id"), sip.EqualFold(name, "publicid"), sip.EqualFold(name, "publicidentity"):
		return IMPU
	case sip.EqualFold(name, "impi"), sip.EqualFold(name, "private_id"), sip.EqualFold(name, "username"), sip.EqualFold(name, "privateid"):
		return IMPI
	case sip.EqualFold(name, "imsi"), sip.EqualFold(name, "supi"):
		return IMSI
	case sip.EqualFold(name, "msisdn"), sip.EqualFold(name, "gpsi"):
		return MSISDN
	case sip.EqualFold(name, "call-id"), sip.EqualFold(name, "callid"), sip.EqualFold(name, "call_id"):
		return CallID
	case sip.EqualFold(name, "session-id"), sip.EqualFold(name, "sessionid"), sip.EqualFold(name, "session_id"):
		return SessionID
	}
	return identifierNone
}

// userKey adds the user in the value that follows name.
func (s *slot) userKey(name, value []byte) {
	if len(value) == 0 || len(value) > maxText {
		return
	}
	kind := personOf(name)
	switch kind {
	case IMSI, MSISDN:
		for _, prefix := range [...]string{"imsi-", "msisdn-"} {
			value = bytes.TrimPrefix(value, []byte(prefix))
		}
		s.add(kind, 0, value)
	case CallID, SessionID:
		from := len(s.text)
		s.text = appendDecoded(s.text, value)
		s.identify(kind, 0, from)
	case IMPI, IMPU:
		s.person(kind, s.decoded(value))
	default:
		s.token(value)
	}
}

// token adds an identity that is recognised by its form alone, if the value is one.
func (s *slot) token(value []byte) {
	switch {
	case bytes.HasPrefix(value, []byte("imsi-")) && isDigits(value[5:]):
		s.add(IMSI, 0, value[5:])
	case bytes.HasPrefix(value, []byte("msisdn-")) && isDigits(value[7:]):
		s.add(MSISDN, 0, value[7:])
	case len(value) == 15 && isDigits(value):
		s.add(IMSI, 0, value)
	case bytes.HasPrefix(value, []byte("tel:")), bytes.HasPrefix(value, []byte("tel%3A")), isPerson(value):
		s.public(withoutPath(s.decoded(value)))
	}
}

// withoutPath returns the user in the key of a record, such as reg/sip:alice@ims.test. A
// URI may have a slash in its user (RFC 3261 section 25.1).
func withoutPath(value []byte) []byte {
	if bytes.HasPrefix(value, []byte("sip")) || bytes.HasPrefix(value, []byte("tel:")) {
		return value
	}
	at := max(bytes.LastIndexByte(value, '@'), 0)
	return value[bytes.LastIndexByte(value[:at], '/')+1:]
}

// decoded returns a value without percent-encoding, in the memory where s.text goes on. It is only for
// person, which may write there in place, because it never writes beyond what it has read.
func (s *slot) decoded(value []byte) []byte {
	from := len(s.text)
	s.text = appendDecoded(s.text, value)
	text := s.text[from:]
	s.text = s.text[:from]
	return text
}

// isPerson reports whether a value is user@domain, perhaps with a scheme.
func isPerson(value []byte) bool {
	at, size := bytes.IndexByte(value, '@'), 1
	if at < 0 {
		at, size = bytes.Index(value, []byte("%40")), 3
	}
	const shortest = 3 // bytes of a domain
	if at <= 0 || at+size+shortest > len(value) {
		return false
	}
	for _, c := range value[:at] {
		if c <= ' ' || c >= 0x7f {
			return false
		}
	}
	for i, c := range value[at+size:] {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
		switch {
		case letter, i > 0 && (c == '.' || c == '-'):
		case i >= shortest && (c == ':' || c == ';' || c == '?' || c == '%'): // port, parameters
			return true
		case i == 0 && (c == '[' || c == '%'):
			return beginsWithIPv6(value[at+size:])
		default:
			return false
		}
	}
	return true
}

// beginsWithIPv6 reports whether a domain begins with an IPv6 address in brackets. They may be percent-encoded.
func beginsWithIPv6(domain []byte) bool {
	const longest = 3 * len("[0000:0000:0000:0000:0000:0000:255.255.255.255]") // percent-encoded
	var space [longest]byte
	address, _, closed := bytes.Cut(appendDecoded(space[:0], domain[:min(len(domain), longest)]), []byte("]"))
	address, opened := bytes.CutPrefix(address, []byte("["))
	colons := 0
	for _, c := range address { // netip.ParseAddr would allocate
		switch {
		case c == ':':
			colons++
		case c != '.' && !isHex(c):
			return false
		}
	}
	return opened && closed && colons >= 2
}

// appendDecoded appends text without percent-encoding.
func appendDecoded(b, text []byte) []byte {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) {
			c = unhex(text[i+1])<<4 | unhex(text[i+2])
			i += 2
		}
		b = append(b, c)
	}
	return b
}

// public adds a public identity: a SIP or tel URI, with or without its scheme.
func (s *slot) public(uri []byte) { s.person(IMPU, uri) }

// person adds an identity of a user in its normal form, which is the same in all protocols:
// without scheme, parameters, port and percent-encoding, and with its domain in lower case.
func (s *slot) person(kind IdentifierKind, uri []byte) {
	from := len(s.text)
	s.text = appendPerson(s.text, uri)
	id := s.identify(kind, 0, from)
	if id == nil {
		return
	}
	// The identities of a subscriber without an ISIM begin with the IMSI (TS 23.003
	// clause 13.3).
	if text := id.Text; len(text) > 16 && text[15] == '@' && isDigits(text[:15]) {
		s.add(IMSI, 0, text[:15])
	}
}

// appendPerson appends the normal form of an identity.
func appendPerson(b, uri []byte) []byte {
	start := len(b)
	number := false
	if i := bytes.IndexByte(uri, ':'); i >= 2 && i <= 4 {
		switch {
		case sip.EqualFold(uri[:i], "sip"), sip.EqualFold(uri[:i], "sips"), sip.EqualFold(uri[:i], "im"), sip.EqualFold(uri[:i], "pres"):
			uri = uri[i+1:]
		case sip.EqualFold(uri[:i], "tel"):
			uri, number = uri[i+1:], true
		}
	}
	domain, bracket := false, false // bracket: in an IPv6 address, whose colons begin no port
	for i := 0; i < len(uri); i++ {
		c := uri[i]
		switch {
		case c == ';' || c == '?' || domain && c == ':' && !bracket:
			return b
		case c == '%' && i+2 < len(uri) && isHex(uri[i+1]) && isHex(uri[i+2]):
			c = unhex(uri[i+1])<<4 | unhex(uri[i+2])
			i += 2
		case number && (c == '-' || c == '.' || c == '(' || c == ')'): // RFC 3966 section 5
			continue
		}
		if c == '@' {
			domain = true
			if colon := bytes.IndexByte(b[start:], ':'); colon >= 0 { // a password
				b = b[:start+colon]
			}
		}
		bracket = domain && (c == '[' || bracket && c != ']')
		if domain && c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		b = append(b, c)
	}
	return b
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c&^0x20 - 'A' + 10
}
