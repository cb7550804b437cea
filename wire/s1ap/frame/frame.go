// Package frame reads and writes S1AP messages as frames on a stream of octets.
//
// It is not S1AP's transport, which is SCTP (3GPP TS 36.412). TCP stands in for
// SCTP where the kernel has no SCTP. TCP keeps the order of all messages of an
// association, so one lost packet delays all its UEs. TCP has neither streams
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
// SCTP sockets over TCP can use the same frames. Package sctp in internal gives the
// messages of real SCTP sockets the same header.
package frame

import (
	"encoding/binary"
	"errors"
)

// Transport names the transport in reports and logs.
const Transport = "S1AP frames over TCP (not SCTP)"

// HeaderSize is the number of octets before the message of a frame.
const HeaderSize = 12

// MaxMessage is the longest message of a frame, in octets. S1AP has no limit. Its longest
// messages have a UE's radio capability, which may have more than 16,384 octets.
const MaxMessage = 1 << 16

// The streams of an association (TS 36.412 clause 7): one for messages about no
// UE, one for messages about UEs.
const (
	Common = 0
	UE     = 1
)

// protocol is the payload protocol identifier of S1AP (TS 36.412 clause 7).
const protocol = 18

// ErrLength is the error for a frame that is empty or longer than MaxMessage.
// After it, the stream of frames cannot be read on.
var ErrLength = errors.New("s1: frame is empty or longer than a message may be")

// Append appends a frame that holds a message.
func Append(b []byte, stream uint16, message []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	b = binary.BigEndian.AppendUint32(b, protocol)
	b = binary.BigEndian.AppendUint16(b, stream)
	return append(append(b, 0, 0), message...)
}

// Cut returns the message of the first frame and the octets after the frame.
// The message is nil if the frame is not complete.
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
