// Package sip reads and writes SIP messages (RFC 3261) in place. A Message is a
// set of views into the parsed bytes, and messages are built by appending to a
// slice. Neither allocates. The package is a format, not a stack: it has no
// transactions and no transport.
package sip

import (
	"bytes"
	"errors"
	"fmt"
)

// The errors of Parse. Every error of Parse wraps one of them.
var (
	ErrEmpty     = errors.New("sip: nothing but line ends") // a keep-alive: RFC 5626 section 3.5.1
	ErrStartLine = errors.New("sip: bad start line")
	ErrVersion   = errors.New("sip: version is not SIP/2.0") // a server answers with 505
	ErrHeader    = errors.New("sip: bad header")
	ErrLength    = errors.New("sip: bad Content-Length")
	ErrMissing   = errors.New("sip: header missing") // a mandatory header of RFC 3261 section 8.1.1
)

// A Message is a request (Status is 0) or a response. Its slices are views into
// the parsed bytes and live as long as they do. For a header that may occur
// several times or hold a list, the field has the first element only; Fields
// yields all.
type Message struct {
	Method, URI []byte // set in a request
	Status      int    // set in a response: 100..699
	Reason      []byte // set in a response; may be empty

	StartLine []byte // request line or status line, without its end

	Via, From, To, CallID []byte
	NextVia               []byte // the second Via element
	Sequence              uint32 // CSeq's number
	SequenceMethod        []byte // CSeq's method
	Contact               []byte
	WWWAuthenticate       []byte // the first challenge of a 401
	ProxyAuthenticate     []byte // the first challenge of a 407
	Authorization         []byte
	ProxyAuthorization    []byte
	Expires               []byte
	Event                 []byte
	MaxForwards           []byte
	Route                 []byte // value of the first Route line
	ProxyRequire          []byte

	Header   []byte // every header line, without the empty line after them
	Body     []byte
	NoLength bool // there is no Content-Length; Body is the rest of the data

	salvaged bool
}

// IsRequest reports whether m is a request.
func (m *Message) IsRequest() bool { return m.Status == 0 }

// Parse parses the message at the start of data and returns its length in bytes.
// The message ends with the body of Content-Length bytes. Without a
// Content-Length it takes all of data, as in a datagram (RFC 3261 section 18.3).
//
// Parse writes to data: the line ends of folded headers become spaces, which have
// the same meaning (section 7.3.1). Parse interprets only the CSeq and
// Content-Length values; callers interpret the others. It rejects a request whose
// CSeq has another method (section 8.1.1.5).
func (m *Message) Parse(data []byte) (int, error) {
	*m = Message{}
	at := 0
	for at+1 < len(data) && data[at] == '\r' && data[at+1] == '\n' {
		at += 2 // section 7.5
	}
	if at == len(data) {
		return at, ErrEmpty
	}
	end := bytes.Index(data[at:], crlf)
	if end < 0 {
		return 0, fmt.Errorf("%w: no line end", ErrStartLine)
	}
	m.StartLine = data[at : at+end]
	if err := m.parseStartLine(m.StartLine); err != nil {
		return 0, err
	}
	at += end + 2
	length, n, err := m.parseHeader(data[at:])
	if err != nil {
		return 0, err
	}
	at += n
	if err := m.checkMandatory(); err != nil {
		return 0, err
	}
	switch {
	case length < 0:
		length, m.NoLength = len(data)-at, true
	case length > len(data)-at:
		return 0, fmt.Errorf("%w: %d, but %d bytes follow", ErrLength, length, len(data)-at)
	}
	m.Body = data[at : at+length]
	return at + length, nil
}

var crlf = []byte("\r\n")

// parseStartLine parses a request line or a status line. Exactly one space
// separates the fields (RFC 4475 sections 3.1.2.7 to 3.1.2.9).
func (m *Message) parseStartLine(line []byte) error {
	first, rest, ok := bytes.Cut(line, space)
	if !ok {
		return fmt.Errorf("%w: %.40q", ErrStartLine, line)
	}
	if len(first) > 4 && EqualFold(first[:4], "sip/") {
		return m.parseStatusLine(first, rest)
	}
	uri, v, ok := bytes.Cut(rest, space)
	if !ok || !isToken(first) || !IsRequestURI(uri) || bytes.IndexByte(v, ' ') >= 0 {
		return fmt.Errorf("%w: %.40q", ErrStartLine, line)
	}
	if !EqualFold(v, "sip/2.0") {
		return fmt.Errorf("%w: %.20q", ErrVersion, v)
	}
	m.Method, m.URI = first, uri
	return nil
}

var space = []byte(" ")

func (m *Message) parseStatusLine(v, rest []byte) error {
	if !EqualFold(v, "sip/2.0") {
		return fmt.Errorf("%w: %.20q", ErrVersion, v)
	}
	code, reason, _ := bytes.Cut(rest, space)
	n, ok := ParseNumber(code)
	if !ok || len(code) != 3 || n < 100 || n > 699 {
		return fmt.Errorf("%w: status %.20q", ErrStartLine, code)
	}
	m.Status, m.Reason = int(n), reason
	return nil
}

// parseHeader parses the header lines and the empty line after them. length is -1
// if there is no Content-Length. n is the number of bytes read.
func (m *Message) parseHeader(data []byte) (length, n int, err error) {
	length = -1
	fields := Fields{rest: data, unfold: true}
	for fields.Next() {
		if fields.Kind == ContentLength {
			v, ok := ParseNumber(fields.Value)
			switch {
			case !ok || v > 1<<30:
				return 0, 0, fmt.Errorf("%w: %.20q", ErrLength, fields.Value)
			case length >= 0 && length != int(v):
				return 0, 0, fmt.Errorf("%w: given twice, %d and %d", ErrLength, length, v)
			}
			length = int(v)
			continue
		}
		if err := m.keep(&fields); err != nil {
			return 0, 0, err
		}
	}
	if fields.Err != nil {
		return 0, 0, fields.Err
	}
	n = len(data) - len(fields.rest)
	m.Header = data[:n-2]
	return length, n, nil
}

// keep stores the first element of the headers that Message has fields for. It
// rejects a second From, To, Call-ID or CSeq (RFC 4475 section 3.3.8).
func (m *Message) keep(f *Fields) error {
	var field *[]byte
	single := false
	switch f.Kind {
	case Via:
		m.keepVia(f.Value)
		return nil
	case From:
		field, single = &m.From, true
	case To:
		field, single = &m.To, true
	case CallID:
		field, single = &m.CallID, true
	case CSeq:
		if m.SequenceMethod != nil {
			return fmt.Errorf("%w: CSeq comes twice", ErrHeader)
		}
		return m.parseCSeq(f.Value)
	case Contact:
		field = &m.Contact
	case WWWAuthenticate:
		field = &m.WWWAuthenticate
	case ProxyAuthenticate:
		field = &m.ProxyAuthenticate
	case Authorization:
		field = &m.Authorization
	case ProxyAuthorization:
		field = &m.ProxyAuthorization
	case Expires:
		field = &m.Expires
	case Event:
		field = &m.Event
	case MaxForwards:
		field = &m.MaxForwards
	case Route:
		field = &m.Route
	case ProxyRequire:
		field = &m.ProxyRequire
	default:
		return nil
	}
	if *field != nil {
		if single {
			return fmt.Errorf("%w: %s comes twice", ErrHeader, f.Name)
		}
		return nil
	}
	*field = f.Value
	if f.Kind == Contact {
		*field, _ = CutElement(f.Value)
	}
	return nil
}

// keepVia stores the first two elements of all Via lines.
func (m *Message) keepVia(value []byte) {
	if m.NextVia != nil {
		return
	}
	first, rest := CutElement(value)
	switch {
	case m.Via != nil:
		m.NextVia = first
	case len(rest) > 0:
		m.Via = first
		m.NextVia, _ = CutElement(rest)
	default:
		m.Via = first
	}
}

// parseCSeq parses "number method". The number is below 2^31 (section 8.1.1.5).
func (m *Message) parseCSeq(value []byte) error {
	i := 0
	for i < len(value) && isDigit(value[i]) {
		i++
	}
	n, ok := ParseNumber(value[:i])
	method := trim(value[i:])
	if !ok || n >= 1<<31 || i == len(value) || !isSpace(value[i]) || !isToken(method) {
		return fmt.Errorf("%w: CSeq %.40q", ErrHeader, value)
	}
	if m.IsRequest() && !bytes.Equal(method, m.Method) {
		return fmt.Errorf("%w: CSeq names %.20q in a %.20q request", ErrHeader, method, m.Method)
	}
	m.Sequence, m.SequenceMethod = uint32(n), method
	return nil
}

func (m *Message) checkMandatory() error {
	switch {
	case len(m.Via) == 0:
		return fmt.Errorf("%w: Via", ErrMissing)
	case len(m.From) == 0:
		return fmt.Errorf("%w: From", ErrMissing)
	case len(m.To) == 0:
		return fmt.Errorf("%w: To", ErrMissing)
	case len(m.CallID) == 0:
		return fmt.Errorf("%w: Call-ID", ErrMissing)
	case m.SequenceMethod == nil:
		return fmt.Errorf("%w: CSeq", ErrMissing)
	}
	return nil
}

// Fields iterates over the message's header lines in order. For a salvaged
// message it skips malformed lines.
func (m *Message) Fields() Fields {
	return Fields{rest: m.Header, unfold: m.salvaged, salvage: m.salvaged}
}

// Salvage reads, from a request that Parse rejects, the parts that an answer
// needs: method, URI and the valid header lines. Of a header that may occur
// only once, it keeps the first. ok reports whether the five headers that an
// answer repeats are there (RFC 3261 section 8.2.6.2).
func (m *Message) Salvage(data []byte) (ok bool) {
	*m = Message{salvaged: true}
	data = bytes.TrimLeft(data, "\r\n")
	line, header, found := bytes.Cut(data, crlf)
	if !found {
		return false
	}
	method, rest, _ := bytes.Cut(line, space)
	if !isToken(method) || bytes.IndexByte(rest, ' ') < 0 {
		return false // a response, or not SIP
	}
	m.StartLine, m.Method, m.Header = line, method, header
	m.URI, _, _ = bytes.Cut(bytes.TrimLeft(rest, " "), space)
	sequence := false
	for f := m.Fields(); f.Next(); {
		switch f.Kind {
		case CSeq:
			sequence = true
		case Via, From, To, CallID:
			_ = m.keep(&f) // cannot fail: Fields skips repeated headers
		}
	}
	return sequence && len(m.Via) > 0 && len(m.From) > 0 && len(m.To) > 0 && len(m.CallID) > 0
}
