// Package gtpc reads and writes GTPv2-C messages (3GPP TS 29.274) in place. A
// Message is a set of views into the parsed bytes, and messages are built by
// appending to a slice. Neither allocates. The package is a format, not a stack:
// it has no transactions, no paths and no sockets.
package gtpc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The errors of Parse and of Elements. Parse may also return a VersionError.
var (
	ErrShort  = errors.New("gtpc: message shorter than its header")            // TS 29.274 clause 7.7.3
	ErrLength = errors.New("gtpc: length field exceeds the message")           // clause 7.7.3
	ErrIE     = errors.New("gtpc: information element exceeds the space left") // clause 7.7.3
)

// A VersionError reports a message of a version other than 2. Its value is the
// first octet of the message: three bits of version and, in GTP versions 0 and 1,
// one bit that distinguishes GTP from GTP' (TS 29.060 clause 6).
type VersionError uint8

// Version returns the version of the message: 0 to 7, not 2.
func (e VersionError) Version() int { return int(e >> 5) }

// Prime reports whether the message is GTP', the charging protocol (TS 32.295).
func (e VersionError) Prime() bool { return e.Version() < 2 && e&0x10 == 0 }

func (e VersionError) Error() string {
	if e.Prime() {
		return fmt.Sprintf("gtpc: version %d of GTP', not GTPv2-C", e.Version())
	}
	return fmt.Sprintf("gtpc: version %d, not 2", e.Version())
}

const (
	version       = 2 << 5
	flagPiggyback = 0x10
	flagTEID      = 0x08
	flagPriority  = 0x04

	headerPlain = 8  // octets of a header without TEID
	headerTEID  = 12 // octets of a header with TEID
	headerFixed = 4  // octets that the length field does not count (clause 5.5.1)

	// MaxSequence is the largest sequence number: three octets.
	MaxSequence = 1<<24 - 1
	// CommandSequence is the bit that is set in the sequence number of a command
	// and of the messages that the command triggers (clause 7.6).
	CommandSequence = 1 << 23
)

// A Message is one message. Its slices are views into the parsed bytes and live
// as long as they do.
type Message struct {
	Type       Type
	Piggyback  bool   // another message follows in the datagram (clause 5.5.1)
	HasTEID    bool   // false for Echo and Version Not Supported Indication
	TEID       uint32 // TEID of the receiver; 0 if the sender does not know it yet
	Sequence   uint32 // 24 bits
	HasPrio    bool   // the MP flag: Priority is valid
	Priority   uint8  // 0 (highest) to 15
	Octets     []byte // the whole message
	IEs        []byte // the information elements: from the end of the header
	sequenceAt int
}

// Parse parses the message at the start of data and returns its length in octets.
// If Piggyback is set, the next message of the datagram begins there. Parse does
// not check the information elements; Elements does.
func (m *Message) Parse(data []byte) (int, error) {
	*m = Message{}
	if len(data) < headerPlain {
		return 0, ErrShort
	}
	flags := data[0]
	if flags>>5 != version>>5 {
		return 0, VersionError(flags)
	}
	end := headerFixed + int(binary.BigEndian.Uint16(data[2:]))
	if end > len(data) {
		return 0, ErrLength
	}
	header := headerPlain
	if flags&flagTEID != 0 {
		header = headerTEID
	}
	if end < header {
		return 0, ErrShort
	}
	m.Type = Type(data[1])
	m.Piggyback = flags&flagPiggyback != 0
	m.sequenceAt = headerFixed
	if flags&flagTEID != 0 {
		m.HasTEID = true
		m.TEID = binary.BigEndian.Uint32(data[4:])
		m.sequenceAt = headerTEID - 4
		if flags&flagPriority != 0 {
			m.HasPrio, m.Priority = true, data[11]>>4
		}
	}
	m.Sequence = binary.BigEndian.Uint32(data[m.sequenceAt:]) >> 8
	m.Octets = data[:end:end]
	m.IEs = data[header:end:end]
	return end, nil
}

// SetSequence overwrites the sequence number in the message's octets.
func (m *Message) SetSequence(sequence uint32) {
	b := m.Octets[m.sequenceAt:]
	b[0], b[1], b[2] = byte(sequence>>16), byte(sequence>>8), byte(sequence)
	m.Sequence = sequence & MaxSequence
}

// SetTEID overwrites the TEID in the octets of a message that has one.
func (m *Message) SetTEID(teid uint32) {
	if m.HasTEID {
		binary.BigEndian.PutUint32(m.Octets[4:], teid)
		m.TEID = teid
	}
}

// IsCommand reports whether the sequence number belongs to a command or to a
// message that a command triggered.
func (m *Message) IsCommand() bool { return m.Sequence&CommandSequence != 0 }

// ForeignSequence returns the sequence number of a message of GTP version 1,
// which a Version Not Supported Indication repeats. It returns false if the
// message has none (TS 29.060 clause 6).
func ForeignSequence(data []byte) (uint32, bool) {
	if len(data) < headerTEID || data[0]>>5 != 1 || data[0]&0x02 == 0 {
		return 0, false
	}
	return uint32(binary.BigEndian.Uint16(data[8:])), true
}

// PeekHeader returns type and sequence number of a message that Parse refused
// with ErrLength. It returns false if the header is incomplete.
func PeekHeader(data []byte) (t Type, sequence uint32, ok bool) {
	at := headerPlain
	if len(data) > 0 && data[0]&flagTEID != 0 {
		at = headerTEID
	}
	if len(data) < at || data[0]>>5 != version>>5 {
		return 0, 0, false
	}
	return Type(data[1]), binary.BigEndian.Uint32(data[at-4:]) >> 8, true
}
