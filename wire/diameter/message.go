// Package diameter reads Diameter messages (RFC 6733) in place. A Message is a
// set of views into the parsed bytes, and reading does not allocate. One
// iterator reads the AVPs of a message and those inside a grouped AVP. The
// package is a format, not a stack: it has no peers, no routing and no timers,
// and it writes no messages.
//
// The package follows section 3 for the header and section 4 for AVPs. Names of
// commands and AVPs are from RFC 6733 (base), RFC 4006 and TS 32.299 (Gy, Rf),
// TS 29.228 and TS 29.229 (Cx), TS 29.329 (Sh), TS 29.272 (S6a), TS 29.212 (Gx)
// and TS 29.214 (Rx). Sections without a document are sections of RFC 6733.
package diameter

import (
	"encoding/binary"
	"errors"
)

// The errors of Frame, of Parse and of AVPs.
var (
	ErrShort   = errors.New("diameter: message shorter than its header") // section 3
	ErrVersion = errors.New("diameter: version other than 1")            // section 7.1.5: 5011
	ErrLength  = errors.New("diameter: invalid length of a message")     // section 7.1.5: 5015
	ErrBound   = errors.New("diameter: message longer than the caller's bound")
	ErrAVP     = errors.New("diameter: AVP shorter than its header or longer than the space left") // section 7.1.5: 5014
)

const (
	headerSize = 20
	version    = 1
)

// A Flags holds the command flags (section 3).
type Flags uint8

// The command flags.
const (
	Request       Flags = 0x80
	Proxiable     Flags = 0x40
	Error         Flags = 0x20 // a protocol error: the answer has the form of section 7.2
	Retransmitted Flags = 0x10 // potentially retransmitted: the T flag
)

// A Message is one message. Its slices are views into the parsed bytes.
type Message struct {
	Flags       Flags
	Command     Command
	Application Application
	HopByHop    uint32 // pairs an answer with its request on one connection
	EndToEnd    uint32 // with Origin-Host, detects duplicates
	Octets      []byte // the whole message
	AVPs        []byte
}

// IsRequest reports whether the message is a request.
func (m *Message) IsRequest() bool { return m.Flags&Request != 0 }

// Name returns the name of the message, such as Update-Location-Request. It allocates.
func (m *Message) Name() string { return m.Command.name(m.IsRequest()) }

// Frame finds the first message in the bytes of a stream. n is its length, or 0
// if more bytes are needed. Frame fails for octets that do not begin a message,
// and for a message longer than most octets. Diameter has no marker that begins
// a message, so the caller must decide how to continue after an error.
func Frame(data []byte, most int) (n int, err error) {
	if len(data) == 0 {
		return 0, nil
	}
	if data[0] != version {
		return 0, ErrVersion
	}
	if len(data) < 4 {
		return 0, nil
	}
	n = int(binary.BigEndian.Uint32(data) & 0xffffff)
	switch {
	case n < headerSize || n%4 != 0:
		return 0, ErrLength
	case n > most:
		return 0, ErrBound
	case n > len(data):
		return 0, nil
	}
	return n, nil
}

// Parse parses the header of the first message in data. n is the length of the
// message, or 0 with an error. It does not check the AVPs; Check does.
func (m *Message) Parse(data []byte) (n int, err error) {
	*m = Message{}
	if len(data) < headerSize {
		return 0, ErrShort
	}
	n, err = Frame(data, len(data))
	switch {
	case errors.Is(err, ErrBound):
		return 0, ErrLength
	case err != nil:
		return 0, err
	}
	m.Flags = Flags(data[4])
	m.Command = Command(binary.BigEndian.Uint32(data[4:]) & 0xffffff)
	m.Application = Application(binary.BigEndian.Uint32(data[8:]))
	m.HopByHop = binary.BigEndian.Uint32(data[12:])
	m.EndToEnd = binary.BigEndian.Uint32(data[16:])
	m.Octets, m.AVPs = data[:n:n], data[headerSize:n:n]
	return n, nil
}

// Check walks over the message's own AVPs. It returns ErrAVP if one is
// malformed. It does not walk into grouped AVPs, because it has no dictionary
// that tells which AVPs are grouped.
func (m *Message) Check() error {
	a := m.Each()
	for a.Next() {
	}
	return a.Err
}
