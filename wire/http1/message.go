// Package http1 reads HTTP/1.0 and HTTP/1.1 messages (RFC 9112) from the bytes
// of a connection. A Decoder finds the head, the body and the trailers of each
// message in one direction. All results are views into the caller's bytes, and
// nothing is allocated. The package reads the messages of others, for example
// from a capture: it does not answer, and it writes no messages.
//
// The package is strict, as RFC 9112 requires of recipients, where two
// recipients could find different messages in the same bytes. It refuses
// Content-Lengths that differ, Transfer-Encoding in HTTP/1.0 or in a request
// without chunked at its end, a space before a colon, and a CR without LF. It
// accepts a line that ends in LF alone, a folded field, and a Content-Length
// that is repeated. Sections without a document are sections of RFC 9112.
package http1

import (
	"bytes"
	"errors"
	"fmt"
)

// The errors of a Decoder.
var (
	ErrStart    = errors.New("http1: neither a request line nor a status line") // sections 3 and 4
	ErrVersion  = errors.New("http1: version other than 1.0 and 1.1")           // section 2.3
	ErrField    = errors.New("http1: malformed header or trailer field")        // section 5
	ErrLength   = errors.New("http1: invalid Content-Length")                   // section 6.3, rule 5
	ErrTransfer = errors.New("http1: invalid Transfer-Encoding")                // section 6.3, rule 4
	ErrChunk    = errors.New("http1: malformed chunk")                          // section 7.1
	ErrBound    = errors.New("http1: head, trailers or chunk line above the bound")
	ErrCut      = errors.New("http1: connection ended within a message") // section 8
)

// A Message is the head of one message. Its slices are views into the bytes that
// the decoder was given.
type Message struct {
	Request bool
	Method  []byte // of a request
	Target  []byte // of a request
	Status  int    // of a response: 100 to 999
	Reason  []byte // of a response
	Minor   int    // 0 for HTTP/1.0, 1 for HTTP/1.1
	Octets  []byte // the head with the empty line at its end

	// HasLength reports a Content-Length, and Length has it.
	HasLength bool
	Length    int64
	// HasTransfer reports a Transfer-Encoding, and Chunked that it ends in chunked.
	// A Transfer-Encoding overrides a Content-Length (section 6.3, rule 3).
	HasTransfer, Chunked bool

	fields []byte
}

// IsInterim reports whether the message is a response of 1xx, which is followed
// by the final response (RFC 9110 section 15.2).
func (m *Message) IsInterim() bool { return !m.Request && m.Status < 200 }

// Fields returns an iterator over the header fields.
func (m *Message) Fields() Fields { return Fields{rest: m.fields} }

// Find returns the value of the first header field with a name, in any case;
// nil: none.
func (m *Message) Find(name string) []byte {
	for f := m.Fields(); f.Next(); {
		if equal(f.Name, name) {
			return f.Value
		}
	}
	return nil
}

// parse parses a head, which ends in an empty line.
func (m *Message) parse(head []byte) error {
	*m = Message{Octets: head}
	line, rest, _ := bytes.Cut(head, lf)
	line = bytes.TrimSuffix(line, cr)
	var err error
	if bytes.HasPrefix(line, prefix) {
		err = m.status(line)
	} else {
		err = m.request(line)
	}
	if err != nil {
		return err
	}
	m.fields = trimEmptyLine(rest)
	return m.frame()
}

var (
	cr, lf, space = []byte("\r"), []byte("\n"), []byte(" ")
	prefix        = []byte("HTTP/")
)

// request parses a request line (section 3).
func (m *Message) request(line []byte) error {
	first, last := bytes.IndexByte(line, ' '), bytes.LastIndexByte(line, ' ')
	if first < 0 || first == last {
		return ErrStart
	}
	m.Request, m.Method, m.Target = true, line[:first], line[first+1:last]
	if !isToken(m.Method) || len(m.Target) == 0 || !isVisible(m.Target) {
		return ErrStart
	}
	return m.version(line[last+1:])
}

// status parses a status line (section 4). The space before an empty reason may be
// missing.
func (m *Message) status(line []byte) error {
	version, rest, ok := bytes.Cut(line, space)
	if !ok || len(rest) < 3 || len(rest) > 3 && rest[3] != ' ' {
		return ErrStart
	}
	for _, c := range rest[:3] {
		if c < '0' || c > '9' {
			return ErrStart
		}
		m.Status = m.Status*10 + int(c-'0')
	}
	if m.Status < 100 {
		return ErrStart
	}
	m.Reason = rest[min(4, len(rest)):]
	return m.version(version)
}

func (m *Message) version(v []byte) error {
	if !bytes.HasPrefix(v, prefix) {
		return ErrStart
	}
	switch string(v[len(prefix):]) {
	case "1.0":
	case "1.1":
		m.Minor = 1
	default:
		return ErrVersion
	}
	return nil
}

// frame checks all fields and reads the fields that determine the length of the
// body (section 6.3).
func (m *Message) frame() error {
	fields := m.Fields()
	for fields.Next() {
		var err error
		switch {
		case equal(fields.Name, "content-length"):
			err = m.length(fields.Value)
		case equal(fields.Name, "transfer-encoding"):
			err = m.transfer(fields.Value)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case fields.bad:
		return fmt.Errorf("%w: %.40q", ErrField, fields.rest)
	case m.HasTransfer && (m.Minor == 0 || m.Request && !m.Chunked):
		return ErrTransfer
	}
	return nil
}

// length reads a Content-Length. A list of equal numbers is valid.
func (m *Message) length(value []byte) error {
	for more := true; more; {
		var text []byte
		text, value, more = bytes.Cut(value, comma)
		v, ok := parseLength(trim(text))
		if !ok || m.HasLength && v != m.Length {
			return ErrLength
		}
		m.HasLength, m.Length = true, v
	}
	return nil
}

// transfer reads a Transfer-Encoding. The codings of several fields form one
// list, and only the last coding may be chunked (section 6.1).
func (m *Message) transfer(value []byte) error {
	m.HasTransfer = true
	if bytes.IndexByte(value, '"') >= 0 { // commas in quotes would not separate codings
		return ErrTransfer
	}
	for more := true; more; {
		var coding []byte
		coding, value, more = bytes.Cut(value, comma)
		if coding = trim(coding); len(coding) == 0 {
			continue
		}
		if m.Chunked {
			return ErrTransfer
		}
		m.Chunked = equal(coding, "chunked")
	}
	return nil
}

var comma = []byte(",")

// most bounds lengths, so that sums of a few lengths do not overflow.
const most = 1 << 60

func parseLength(text []byte) (v int64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		digit := int64(c - '0')
		if v > (most-digit)/10 {
			return 0, false
		}
		v = v*10 + digit
	}
	return v, len(text) > 0
}
