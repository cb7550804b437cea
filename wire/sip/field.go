package sip

import (
	"bytes"
	"fmt"
)

// A Kind is a header that this package recognizes by its long or compact name, in
// any case.
type Kind uint8

// The known headers. Every other header is Other.
const (
	Other Kind = iota
	Via
	From
	To
	CallID
	CSeq
	Contact
	ContentLength
	MaxForwards
	Route
	RecordRoute
	ServiceRoute // RFC 3608
	Path         // RFC 3327
	WWWAuthenticate
	ProxyAuthenticate
	Authorization
	ProxyAuthorization
	Expires
	Event
	ProxyRequire
)

// kindOf returns the kind of a header name (RFC 3261 section 7.3.3).
func kindOf(name []byte) Kind {
	if len(name) == 1 {
		return compact(name[0] | 0x20)
	}
	// Most lengths have one candidate, so a name is compared once.
	switch len(name) {
	case 2:
		return match(name, "To", "to", To)
	case 3:
		return match(name, "Via", "via", Via)
	case 4:
		switch name[0] | 0x20 {
		case 'f':
			return match(name, "From", "from", From)
		case 'c':
			return match(name, "CSeq", "cseq", CSeq)
		}
		return match(name, "Path", "path", Path)
	case 5:
		if name[0]|0x20 == 'e' {
			return match(name, "Event", "event", Event)
		}
		return match(name, "Route", "route", Route)
	}
	return kindOfLong(name)
}

// frequent recognizes the names that nearly every message has, if they have
// their usual spelling and the colon follows directly. n is the length of the
// name; 0 means no match.
func frequent(line []byte) (kind Kind, n int) {
	if len(line) == 0 {
		return Other, 0
	}
	switch line[0] {
	case 'V':
		if begins(line, "Via:") {
			return Via, 3
		}
	case 'F':
		if begins(line, "From:") {
			return From, 4
		}
	case 'T':
		if begins(line, "To:") {
			return To, 2
		}
	case 'M':
		if begins(line, "Max-Forwards:") {
			return MaxForwards, 12
		}
	case 'U':
		if begins(line, "User-Agent:") {
			return Other, 10
		}
	case 'C':
		return frequentC(line)
	}
	return Other, 0
}

// frequentC is frequent for names that begin with C.
func frequentC(line []byte) (kind Kind, n int) {
	switch {
	case begins(line, "Call-ID:"):
		return CallID, 7
	case begins(line, "CSeq:"):
		return CSeq, 4
	case begins(line, "Contact:"):
		return Contact, 7
	case begins(line, "Content-Length:"):
		return ContentLength, 14
	}
	return Other, 0
}

func begins(line []byte, name string) bool {
	return len(line) >= len(name) && string(line[:len(name)]) == name
}

func kindOfLong(name []byte) Kind {
	switch len(name) {
	case 7:
		switch name[1] | 0x20 {
		case 'a':
			return match(name, "Call-ID", "call-id", CallID)
		case 'o':
			return match(name, "Contact", "contact", Contact)
		}
		return match(name, "Expires", "expires", Expires)
	case 12:
		if name[0]|0x20 == 'm' {
			return match(name, "Max-Forwards", "max-forwards", MaxForwards)
		}
		return match(name, "Record-Route", "record-route", RecordRoute)
	case 13:
		switch name[0] | 0x20 {
		case 's':
			return match(name, "Service-Route", "service-route", ServiceRoute)
		case 'p':
			return match(name, "Proxy-Require", "proxy-require", ProxyRequire)
		}
		return match(name, "Authorization", "authorization", Authorization)
	case 14:
		return match(name, "Content-Length", "content-length", ContentLength)
	case 16:
		return match(name, "WWW-Authenticate", "www-authenticate", WWWAuthenticate)
	case 18:
		return match(name, "Proxy-Authenticate", "proxy-authenticate", ProxyAuthenticate)
	case 19:
		return match(name, "Proxy-Authorization", "proxy-authorization", ProxyAuthorization)
	}
	return Other
}

func compact(letter byte) Kind {
	switch letter {
	case 'v':
		return Via
	case 'f':
		return From
	case 't':
		return To
	case 'i':
		return CallID
	case 'm':
		return Contact
	case 'l':
		return ContentLength
	case 'o':
		return Event
	}
	return Other
}

// match compares a name with its usual spelling, then without case.
func match(name []byte, usual, lower string, kind Kind) Kind {
	if string(name) == usual || EqualFold(name, lower) {
		return kind
	}
	return Other
}

// Fields iterates over header lines:
//
//	for f := m.Fields(); f.Next(); {
type Fields struct {
	Name  []byte // as written
	Kind  Kind
	Value []byte // without surrounding spaces; folded lines are joined
	Err   error  // the error at which Next stopped; nil at the end

	rest    []byte
	unfold  bool // lines may still be folded, and an empty line ends the header
	salvage bool // skip malformed and repeated lines
	seen    uint32
}

// Next moves to the next header line. It returns false at the end or after an
// error.
func (f *Fields) Next() bool {
	for {
		ok, end := f.next()
		if ok || end || !f.salvage {
			return ok
		}
	}
}

// next reads a line. end reports whether no line is left.
func (f *Fields) next() (ok, end bool) {
	if len(f.rest) == 0 {
		if f.unfold {
			f.Err = fmt.Errorf("%w: no empty line ends the header", ErrHeader)
		}
		return false, true
	}
	line, ok := f.line()
	if !ok {
		return false, len(f.rest) == 0
	}
	if f.unfold && len(line) == 0 {
		return false, true
	}
	if kind, n := frequent(line); n > 0 {
		f.Name, f.Kind, f.Value = line[:n], kind, trim(line[n+1:])
		if f.salvage && f.again() {
			return false, false
		}
		return true, false
	}
	n := 0
	for n < len(line) && isTokenByte[line[n]] {
		n++
	}
	colon := n
	for colon < len(line) && isSpace(line[colon]) {
		colon++
	}
	if n == 0 || colon == len(line) || line[colon] != ':' {
		if !f.salvage { // nobody reads the error
			f.Err = fmt.Errorf("%w: no name and colon in %.40q", ErrHeader, line)
		}
		return false, false
	}
	f.Name = line[:n]
	f.Kind, f.Value = kindOf(f.Name), trim(line[colon+1:])
	if f.salvage && f.again() {
		return false, false
	}
	return true, false
}

// line removes the next line from rest and returns it unfolded and without its
// end.
func (f *Fields) line() (line []byte, ok bool) {
	end := bytes.IndexByte(f.rest, '\n')
	for f.unfold && end > 1 && end+1 < len(f.rest) && (f.rest[end+1] == ' ' || f.rest[end+1] == '\t') {
		if f.rest[end-1] == '\r' {
			f.rest[end-1] = ' '
		}
		f.rest[end] = ' '
		next := bytes.IndexByte(f.rest[end:], '\n')
		if next < 0 {
			end = -1
			break
		}
		end += next
	}
	if end < 1 || f.rest[end-1] != '\r' {
		if f.salvage { // nobody reads the error; one for each line would cost the square of their number
			f.rest = f.rest[end+1:]
			if end < 0 {
				f.rest = nil
			}
			return nil, false
		}
		f.Err = fmt.Errorf("%w: a line without CR LF at its end: %q", ErrHeader, f.rest[:min(len(f.rest), 40)])
		return nil, false
	}
	line = f.rest[:end-1]
	f.rest = f.rest[end+1:]
	return line, true
}

// again reports whether the current header may occur only once and has occurred
// before.
func (f *Fields) again() bool {
	switch f.Kind {
	case From, To, CallID, CSeq, MaxForwards, ContentLength:
		bit := uint32(1) << f.Kind
		again := f.seen&bit != 0
		f.seen |= bit
		return again
	}
	return false
}
