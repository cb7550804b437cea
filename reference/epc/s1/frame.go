// Package s1 carries S1AP messages between eNodeBs and MMEs over SCTP, or as frames over
// TCP. In both cases, code above a connection reads and writes frames in the format of
// package frame. Over SCTP, each frame is sent and received as one SCTP message.
package s1

import "vitrine/wire/s1ap/frame"

// room is the size of a Reader's buffer in octets: the longest frame, or some hundred usual ones.
const room = frame.HeaderSize + frame.MaxMessage

// A Reader splits received octets into messages. It allocates its buffer once.
type Reader struct {
	buffer   []byte
	from, to int // octets that were received but not yet returned
}

// Room returns the buffer for the next receive. It has room for at least the rest of the
// longest frame. Room invalidates the messages that Next has returned.
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

// Received reports that n octets were received into Room.
func (r *Reader) Received(n int) { r.to += n }

// Pending reports whether part of a frame was received.
func (r *Reader) Pending() bool { return r.to > r.from }

// Next returns the next message, or nil if no whole message was received.
func (r *Reader) Next() (message []byte, err error) {
	message, rest, err := frame.Cut(r.buffer[r.from:r.to])
	r.from = r.to - len(rest)
	return message, err
}
