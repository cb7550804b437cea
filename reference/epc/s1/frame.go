// Package s1 carries S1AP messages between eNodeBs and MMEs over SCTP, or as frames over
// TCP. Code above a connection sees frames in either case, in the format of package
// frame: those of SCTP are made from its messages, and each is sent as one.
package s1

import "vitrine/wire/s1ap/frame"

// What follows is the format's, so that users of the transport need one package.
const (
	HeaderSize = frame.HeaderSize
	MaxMessage = frame.MaxMessage
)

// ErrLength is frame.ErrLength.
var ErrLength = frame.ErrLength

// AppendFrame appends a frame that holds a message.
func AppendFrame(b []byte, stream uint16, message []byte) []byte {
	return frame.Append(b, stream, message)
}

// Cut returns the message of the first frame and the octets behind the frame. The
// message is nil if the frame is not complete.
func Cut(b []byte) (message, rest []byte, err error) { return frame.Cut(b) }

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
