package http2

import "bytes"

// A Kind is the kind of a header block.
type Kind uint8

// The kinds of header blocks.
const (
	// Unclear is a block whose unknown fields may hide its kind.
	Unclear Kind = iota
	Request
	Response
	Trailers
)

// A Message is the head or the trailers of one message. Its slices are views, which
// are valid until the next call of the decoder.
type Message struct {
	Kind Kind
	// The fields of a request; nil: missing or unknown.
	Method, Scheme, Authority, Path []byte
	Status                          int // of a response: 100 to 999
	// Promised is the stream on which a server promised this request. It is zero for
	// the requests of clients.
	Promised uint32
	Fields   []Field // all fields in order, including those above
	Unknown  int     // fields whose name is unknown
	Dropped  int     // fields above the bounds, which are not in Fields
	// IsMalformed reports a violation of RFC 9113 sections 8.1 to 8.3: an empty
	// name or one with capitals, a pseudo-header field that is repeated,
	// missing or after a regular field, or an invalid status.
	IsMalformed bool
}

// IsInterim reports whether the message is a response of 1xx, which is followed
// by the final response (RFC 9110 section 15.2).
func (m *Message) IsInterim() bool { return m.Kind == Response && m.Status < 200 }

// IsPartial reports whether some fields are unknown or dropped.
func (m *Message) IsPartial() bool { return m.Unknown+m.Dropped > 0 }

// Find returns the value of the first field with a name in lower case; nil:
// none. If IsPartial, the message may have such a field nevertheless.
func (m *Message) Find(name string) []byte {
	for i := range m.Fields {
		if f := &m.Fields[i]; string(f.Name) == name {
			return f.Value
		}
	}
	return nil
}

// read reads the fields of a block.
func (m *Message) read(fields []Field, dropped int) {
	*m = Message{Fields: fields, Dropped: dropped}
	regular, pseudo := false, false
	for i := range fields {
		f := &fields[i]
		switch {
		case f.Name == nil:
			m.Unknown++
		case len(f.Name) > 0 && f.Name[0] == ':':
			m.IsMalformed = m.IsMalformed || regular
			pseudo = true
			m.pseudo(f)
		default:
			regular = true
			m.IsMalformed = m.IsMalformed || !isLower(f.Name)
		}
	}
	if !pseudo && m.Unknown+m.Dropped == 0 {
		m.Kind = Trailers
	}
	if pseudo && !m.IsPartial() && !m.isComplete() {
		m.IsMalformed = true
	}
}

// pseudo reads a pseudo-header field (section 8.3).
func (m *Message) pseudo(f *Field) {
	var to *[]byte
	kind := Request
	switch string(f.Name) {
	case ":method":
		to = &m.Method
	case ":scheme":
		to = &m.Scheme
	case ":authority":
		to = &m.Authority
	case ":path":
		to = &m.Path
	case ":protocol": // RFC 8441 section 4: see Find
	case ":status":
		kind = Response
		status, ok := parseStatus(f.Value)
		m.IsMalformed = m.IsMalformed || m.Status != 0 || !ok
		if m.Status == 0 {
			m.Status = status
		}
	default:
		m.IsMalformed = true
		return
	}
	if to != nil && *to != nil {
		m.IsMalformed = true
	} else if to != nil {
		*to = f.Value
	}
	if m.Kind == Unclear {
		m.Kind = kind
	}
	m.IsMalformed = m.IsMalformed || m.Kind != kind
}

// isComplete reports whether the head has all fields that it must have (sections
// 8.3 and 8.5).
func (m *Message) isComplete() bool {
	switch m.Kind {
	case Request:
		isTunnel := bytes.Equal(m.Method, connect) && m.Find(":protocol") == nil
		return m.Method != nil && (isTunnel || m.Scheme != nil && len(m.Path) > 0)
	case Response:
		return m.Status != 0
	}
	return false
}

var connect = []byte("CONNECT")

// lacks reports whether a mandatory field of a request is missing because it is
// unknown. The path is not mandatory for CONNECT.
func (m *Message) lacks(value []byte, isPath bool) bool {
	return m.Kind == Request && m.IsPartial() && value == nil && (!isPath || !bytes.Equal(m.Method, connect))
}

// parseStatus parses a status of three digits.
func parseStatus(text []byte) (status int, ok bool) {
	if len(text) != 3 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		status = status*10 + int(c-'0')
	}
	if status < 100 {
		return 0, false
	}
	return status, true
}

// isLower reports whether a name is not empty and has no capitals (section 8.2.1).
func isLower(name []byte) bool {
	for _, c := range name {
		if c >= 'A' && c <= 'Z' {
			return false
		}
	}
	return len(name) > 0
}
