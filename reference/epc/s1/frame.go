// Package s1 carries S1AP messages between eNodeBs and MMEs as frames over TCP.
//
// It is not S1AP's transport, which is SCTP (3GPP TS 36.412). TCP stands in for it
// where the kernel has no SCTP: it keeps the order of all messages of an
// association, so one lost packet delays all its UEs, and it has neither streams
// nor a second path. Results that were measured over it name Transport.
//
// A frame is a header of twelve octets and one message:
//
//	octets  0-3   length of the message
//	octets  4-7   SCTP payload protocol identifier: 18
//	octets  8-9   SCTP stream: 0 for messages about no UE
//	octets 10-11  zero
//
// All numbers are in network byte order. A library that carries another program's
// SCTP sockets over TCP can use the same frames.
package s1

import (
	"encoding/binary"
	"errors"
)

// Transport names the transport in reports and logs.
const Transport = "S1AP frames over TCP (not SCTP)"

// HeaderSize is the number of octets before the message of a frame.
const HeaderSize = 12

// MaxMessage is the longest message of a frame, in octets. S1AP messages that are
// not fragmented have at most 16,388.
const MaxMessage = 1<<14 + 64

// protocol is the payload protocol identifier of S1AP (TS 36.412 clause 7).
const protocol = 18

// ErrLength is the error for a frame that is empty or longer than MaxMessage. The
// octets behind it cannot be read.
var ErrLength = errors.New("s1: frame is empty or longer than a message may be")

// AppendFrame appends a frame that holds a message.
func AppendFrame(b []byte, stream uint16, message []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	b = binary.BigEndian.AppendUint32(b, protocol)
	b = binary.BigEndian.AppendUint16(b, stream)
	return append(append(b, 0, 0), message...)
}

// Cut returns the message of the first frame and the octets behind the frame. The
// message is nil if the frame is not complete.
func Cut(b []byte) (message, rest []byte, err error) {
	if len(b) < HeaderSize {
		return nil, b, nil
	}
	n := binary.BigEndian.Uint32(b)
	if n == 0 || n > MaxMessage {
		return nil, b, ErrLength
	}
	end := HeaderSize + int(n)
	if len(b) < end {
		return nil, b, nil
	}
	return b[HeaderSize:end:end], b[end:], nil
}

// room is the size of a Reader's buffer in octets: some hundred messages.
const room = 64 << 10

// A Reader cuts received octets into messages. It allocates its buffer once.
type Reader struct {
	buffer   []byte
	from, to int // the octets received and not yet returned
}

// Room returns where to receive next: at least the rest of a longest frame. The
// messages that Next returned become invalid.
func (r *Reader) Room() []byte {
	if r.buffer == nil {
		r.buffer = make([]byte, room)
	}
	if r.from > 0 {
		r.to = copy(r.buffer, r.buffer[r.from:r.to])
		r.from = 0
	}
	return r.buffer[r.to:]
}

// Received says that n octets were received into Room.
func (r *Reader) Received(n int) { r.to += n }

// Pending reports whether a part of a frame waits for its rest.
func (r *Reader) Pending() bool { return r.to > r.from }

// Next returns the next message, or nil if no whole one was received.
func (r *Reader) Next() (message []byte, err error) {
	message, rest, err := Cut(r.buffer[r.from:r.to])
	r.from = r.to - len(rest)
	return message, err
}
