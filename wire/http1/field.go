package http1

import "bytes"

// Fields iterates over the fields of a head or of trailers in order. Name and Value
// belong to the field that Next reached.
type Fields struct {
	Name  []byte
	Value []byte // without white space around it; a folded one has line ends in it (section 5.2)

	rest []byte
	bad  bool // Next stopped at a malformed field
}

// Next moves to the next field and reports whether there is one.
func (f *Fields) Next() bool {
	if len(f.rest) == 0 || f.bad {
		return false
	}
	end := fieldEnd(f.rest)
	line := bytes.TrimSuffix(bytes.TrimSuffix(f.rest[:end], lf), cr)
	colon := bytes.IndexByte(line, ':')
	if colon < 0 || !isToken(line[:colon]) || !isValue(line[colon+1:]) {
		f.bad = true
		return false
	}
	f.Name, f.Value, f.rest = line[:colon], trim(line[colon+1:]), f.rest[end:]
	return true
}

// fieldEnd returns the length of the first field, including its line end. A
// line that begins with white space continues the previous line.
func fieldEnd(b []byte) int {
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return len(b)
		}
		at += i + 1
		if at == len(b) || b[at] != ' ' && b[at] != '\t' {
			return at
		}
	}
}

// isValue reports whether a field's value has neither NUL nor a CR without LF (RFC
// 9110 section 5.5).
func isValue(v []byte) bool {
	for i, c := range v {
		if c == 0 || c == '\r' && (i+1 == len(v) || v[i+1] != '\n') {
			return false
		}
	}
	return true
}

// isToken reports whether v is a token (RFC 9110 section 5.6.2).
func isToken(v []byte) bool {
	for _, c := range v {
		if !tokens[c] {
			return false
		}
	}
	return len(v) > 0
}

var tokens = func() (t [256]bool) {
	const punctuation = "!#$%&'*+-.^_`|~"
	for c := range t {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		t[c] = letter || c >= '0' && c <= '9' || bytes.IndexByte([]byte(punctuation), byte(c)) >= 0
	}
	return t
}()

// isVisible reports whether v has neither white space nor control characters.
func isVisible(v []byte) bool {
	for _, c := range v {
		if c <= ' ' || c == 0x7f {
			return false
		}
	}
	return true
}

// trim removes white space, and line ends of a folded field, from both ends.
func trim(v []byte) []byte {
	for len(v) > 0 && isSpace(v[0]) {
		v = v[1:]
	}
	for len(v) > 0 && isSpace(v[len(v)-1]) {
		v = v[:len(v)-1]
	}
	return v
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// equal compares a name in any case with a name in lower case.
func equal(name []byte, lower string) bool {
	if len(name) != len(lower) {
		return false
	}
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// trimEmptyLine removes the empty line at the end of fields.
func trimEmptyLine(b []byte) []byte { return bytes.TrimSuffix(bytes.TrimSuffix(b, lf), cr) }
