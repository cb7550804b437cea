package sip

import (
	"bytes"
	"strings"
)

// CutElement parts the first element of a comma-separated list from the rest.
// Commas in quotes and in angle brackets part nothing.
func CutElement(list []byte) (first, rest []byte) {
	if bytes.IndexByte(list, ',') < 0 {
		return trim(list), nil
	}
	quoted, angled := false, false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '<':
			angled = true
		case c == '>':
			angled = false
		case c == ',' && !angled:
			return trim(list[:i]), trim(list[i+1:])
		}
	}
	return trim(list), nil
}

// Param finds a parameter of a header's value, such as Via's branch or To's
// tag; those inside an address in angle brackets are the address's own and are
// passed over. ok says whether it is there, even without a value.
func Param(value []byte, name string) (param []byte, ok bool) {
	quoted, angled, inName := false, false, false
	start := 0
	for i := 0; i <= len(value); i++ {
		var c byte = ';' // after the end
		if i < len(value) {
			c = value[i]
		}
		switch {
		case quoted && i < len(value):
			switch c {
			case '\\':
				i++
			case '"':
				quoted = false
			}
		case c == '"':
			quoted = true
		case c == '<':
			angled = true
		case c == '>':
			angled = false
		case c == ';' && (!angled || i == len(value)):
			if inName {
				key, v, _ := bytes.Cut(value[start:i], equals)
				if equalFold(trim(key), name) {
					return trim(v), true
				}
			}
			inName, start = true, i+1
		}
	}
	return nil, false
}

var equals = []byte("=")

// Address is the URI of a From, To, Contact or Route value, without display
// name, brackets and the header's parameters; nil when brackets or quotes do
// not close.
func Address(value []byte) []byte {
	quoted := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '<' && !quoted:
			end := bytes.IndexByte(value[i:], '>')
			if end < 0 {
				return nil
			}
			return value[i+1 : i+end]
		}
	}
	if quoted {
		return nil
	}
	if i := bytes.IndexByte(value, ';'); i >= 0 {
		value = value[:i]
	}
	return trim(value)
}

// User is the user part of a SIP URI; nil when it has none.
func User(uri []byte) []byte {
	_, rest, ok := bytes.Cut(uri, colon)
	if !ok {
		return nil
	}
	user, _, ok := bytes.Cut(rest, at)
	if !ok {
		return nil
	}
	if i := bytes.IndexByte(user, ':'); i >= 0 {
		user = user[:i] // a password
	}
	return user
}

var (
	colon = []byte(":")
	at    = []byte("@")
)

// SentBy is the host and port of a Via value; port is 0 when not given. ok is
// false when the value is not a Via's.
func SentBy(via []byte) (host []byte, port uint16, ok bool) {
	// SIP / 2.0 / UDP host:port;params, with spaces around the slashes at will.
	for range 2 {
		_, rest, found := bytes.Cut(via, slash)
		if !found {
			return nil, 0, false
		}
		via = rest
	}
	via = trim(via)
	i := 0
	for i < len(via) && !isSpace(via[i]) {
		i++
	}
	via = trim(via[i:])
	if j := bytes.IndexByte(via, ';'); j >= 0 {
		via = trim(via[:j])
	}
	host = via
	// A colon after the bracket of an IPv6 address, if it has one.
	if j := bytes.LastIndexByte(via, ':'); j > bytes.IndexByte(via, ']') {
		n, isNumber := number(trim(via[j+1:]))
		if !isNumber || n == 0 || n > 65535 {
			return nil, 0, false
		}
		host, port = trim(via[:j]), uint16(n)
	}
	return host, port, len(host) > 0
}

var slash = []byte("/")

func number(text []byte) (uint64, bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	var n uint64
	for _, c := range text {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isSpace(c byte) bool { return c == ' ' || c == '\t' }

// isToken checks against RFC 3261 section 25.1's token.
func isToken(text []byte) bool {
	for _, c := range text {
		if !isTokenByte[c] {
			return false
		}
	}
	return len(text) > 0
}

// isTokenByte says which bytes a token is made of. It is never written to.
var isTokenByte = func() (is [256]bool) {
	for c := range is {
		b := byte(c)
		is[c] = b|0x20 >= 'a' && b|0x20 <= 'z' || isDigit(b) || strings.IndexByte("-.!%*_+`'~", b) >= 0
	}
	return is
}()

func trim(text []byte) []byte {
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}
	for len(text) > 0 && isSpace(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

// equalFold compares ASCII without case; lower must be lower case.
func equalFold(text []byte, lower string) bool {
	if len(text) != len(lower) {
		return false
	}
	for i, c := range text {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}
