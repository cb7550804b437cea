// Package gtpc reads and writes GTPv2-C messages (3GPP TS 29.274) in place: a
// Message is a set of views into the bytes it was parsed from, and messages are
// built by appending to a slice. Neither allocates. It is a format, not a
// stack: it has no transactions, no paths and no sockets.
package gtpc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What can be wrong with a message. Every error of Parse is one of them, or a
// VersionError.
var (
	ErrShort  = errors.New("gtpc: shorter than its header")                        // TS 29.274 clause 7.7.3
	ErrLength = errors.New("gtpc: its length field says more than there is")       // clause 7.7.3
	ErrIE     = errors.New("gtpc: an information element is longer than its room") // clause 7.7.3
)

// A VersionError says that a message is of another version than 2. It is the
// first octet of the message: three bits of version and, in GTP versions 0 and
// 1, one that tells GTP from GTP' (TS 29.060 clause 6).
type VersionError uint8

// Version is the version of the message: 0 to 7, not 2.
func (e VersionError) Version() int { return int(e >> 5) }

// Prime says whether it is GTP', the charging protocol (TS 32.295).
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
	headerTEID  = 12 // and with it
	headerFixed = 4  // octets that the length field leaves out (clause 5.5.1)

	// MaxSequence is the largest sequence number: three octets.
	MaxSequence = 1<<24 - 1
	// CommandSequence is the bit of a sequence number that a command sets, and
	// what the command triggers keeps (clause 7.6).
	CommandSequence = 1 << 23
)

// A Message is one message. Its slices are views into the parsed bytes and live
// as long as they do.
type Message struct {
	Type       Type
	Piggyback  bool   // another message follows in the datagram (clause 5.5.1)
	HasTEID    bool   // Echo and Version Not Supported Indication have none
	TEID       uint32 // of who receives it; 0 where that is not known yet
	Sequence   uint32 // 24 bits
	HasPrio    bool   // the MP flag: Priority counts
	Priority   uint8  // 0 (highest) to 15
	Octets     []byte // the whole message
	IEs        []byte // the information elements: from the end of the header
	sequenceAt int
}

// Parse reads the message that data begins with and says how many octets it
// takes. With Piggyback, the next message of the datagram begins there. The
// information elements are not looked at; Elements does.
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

// SetSequence writes another sequence number into the message's octets.
func (m *Message) SetSequence(sequence uint32) {
	b := m.Octets[m.sequenceAt:]
	b[0], b[1], b[2] = byte(sequence>>16), byte(sequence>>8), byte(sequence)
	m.Sequence = sequence & MaxSequence
}

// IsCommand says whether its sequence number is a command's, or of what a
// command triggered.
func (m *Message) IsCommand() bool { return m.Sequence&CommandSequence != 0 }

// ForeignSequence is the sequence number of a message of GTP version 1, which a
// Version Not Supported Indication repeats; false: it has none (TS 29.060
// clause 6).
func ForeignSequence(data []byte) (uint32, bool) {
	if len(data) < headerTEID || data[0]>>5 != 1 || data[0]&0x02 == 0 {
		return 0, false
	}
	return uint32(binary.BigEndian.Uint16(data[8:])), true
}
