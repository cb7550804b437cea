package http1

import "bytes"

// An Event is what a Decoder finds next.
type Event uint8

// The events. A message is a Head, any number of Body, and an End.
const (
	More   Event = iota // more bytes are needed
	Head                // Message has a head
	Body                // Data has octets of the body
	End                 // the message is complete, and Trailers has its trailers
	Tunnel              // Data has octets that are not HTTP: after 101, or after a successful CONNECT

	again // inside Next: the state changed without an event
)

// A Decoder reads the messages of one direction of a connection. Its zero value is
// ready at the beginning of a message.
type Decoder struct {
	Message  Message // of the last Head
	Data     []byte  // of the last Body or Tunnel: a view
	Trailers Fields  // of the last End

	state   state
	left    int64 // octets of the body, or of the chunk, that have not arrived
	scanned int   // octets of the head that were searched for its end
	begun   bool  // a head has begun, but its empty line has not arrived
	answers answered
	err     error
}

const (
	maxHead = 64 << 10 // octets of a head, and of a trailer section
	maxLine = 4 << 10  // octets of a chunk's first line, which extensions make long (section 7.1.1)
)

type state uint8

const (
	atHead state = iota
	atBody
	inLength
	inClose // the body ends with the connection
	inTunnel
	atChunk
	inChunk
	afterChunk
	inTrailers
)

// answered is the kind of request that the last response answers.
type answered uint8

const (
	other answered = iota
	head
	connect
)

// Next returns the next event in data, and the number n of octets that it has
// read. The caller removes these octets from data. On More, the caller appends
// more octets to the rest and calls Next again. An error is final, because the
// boundaries of messages are lost: Next returns the same error from then on. The
// first time, n includes the part of a malformed head or trailer section that Next
// has searched, so that the caller need not search it again.
func (d *Decoder) Next(data []byte) (n int, e Event, err error) {
	for e = again; e == again && d.err == nil; {
		var took int
		took, e, d.err = d.step(data[n:])
		n += took
	}
	if d.err != nil {
		return n, More, d.err
	}
	return n, e, nil
}

func (d *Decoder) step(data []byte) (n int, e Event, err error) {
	switch d.state {
	case atHead:
		return d.head(data)
	case atBody:
		return 0, d.body(), nil
	case inLength, inClose, inTunnel, inChunk:
		n, e = d.octets(data)
		return n, e, nil
	case afterChunk:
		return d.line(data)
	case atChunk:
		return d.chunk(data)
	}
	return d.trailers(data)
}

// Answer tells the decoder the method of the request that the response in
// Message answers. The caller must call it after the Head of a response if the
// method was HEAD or CONNECT, because these change the length of the body
// (section 6.3).
func (d *Decoder) Answer(method []byte) {
	switch string(method) {
	case "HEAD":
		d.answers = head
	case "CONNECT":
		d.answers = connect
	default:
		d.answers = other
	}
}

// Tunnels reports whether octets that are not HTTP follow the response in Message, in both
// directions: after 101, and after 2xx to CONNECT (RFC 9110 sections 15.2.2 and 9.3.6). The
// caller calls Answer before.
func (d *Decoder) Tunnels() bool {
	m := &d.Message
	return !m.Request && (m.Status == 101 || d.answers == connect && m.Status/100 == 2)
}

// Close tells the decoder that the connection has ended. The caller calls it
// after Next returned More. Close returns ErrCut if a message is incomplete. It
// reports whether it completes a message whose body ends with the connection.
func (d *Decoder) Close() (complete bool, err error) {
	switch {
	case d.err != nil:
		return false, d.err
	case d.state == inClose:
		d.state = atHead
		return true, nil
	case d.state == atHead && !d.begun, d.state == inTunnel:
		return false, nil
	}
	return false, ErrCut
}

// Skip tells the decoder that n octets are missing, because a capture lost
// them. It reports whether all of them belong to a body, so that reading can
// continue after them.
func (d *Decoder) Skip(n int64) bool {
	switch {
	case d.err != nil || n < 0:
		return false
	case d.state == inClose || d.state == inTunnel:
		return true
	case (d.state == inLength || d.state == inChunk) && n <= d.left:
		d.left -= n
		return true
	}
	return false
}

// section returns the length of the lines up to and including an empty line, or
// 0 if data has no empty line yet.
func (d *Decoder) section(data []byte) (n int, err error) {
	d.scanned = min(d.scanned, len(data))
	for {
		i := bytes.IndexByte(data[d.scanned:], '\n')
		if i < 0 {
			if len(data) > maxHead {
				return 0, ErrBound
			}
			return 0, nil
		}
		empty := i == 0 || i == 1 && data[d.scanned] == '\r'
		d.scanned += i + 1
		if d.scanned > maxHead {
			return 0, ErrBound
		}
		if empty {
			n, d.scanned = d.scanned, 0
			return n, nil
		}
	}
}

// head reads a head. It skips empty lines before it (section 2.2).
func (d *Decoder) head(data []byte) (n int, e Event, err error) {
	start := 0
	for d.scanned == 0 {
		rest := data[start:]
		if len(rest) >= 1 && rest[0] == '\n' {
			start++
		} else if len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n' {
			start += 2
		} else {
			break
		}
	}
	size, err := d.section(data[start:])
	d.begun = size == 0 && start < len(data)
	if err != nil {
		return start + d.scanned, More, err
	}
	if size == 0 {
		return start, More, nil
	}
	end := start + size
	if err := d.Message.parse(data[start:end:end]); err != nil {
		return end, More, err
	}
	d.state, d.answers = atBody, other
	return end, Head, nil
}

// body begins the body. It returns End if there is none (section 6.3).
func (d *Decoder) body() Event {
	m := &d.Message
	switch {
	case d.Tunnels():
		d.state = inTunnel
	case !m.Request && (d.answers == head || m.Status < 200 || m.Status == 204 || m.Status == 304):
		return d.end(nil)
	case m.Chunked:
		d.state = atChunk
	case m.HasTransfer, !m.HasLength && !m.Request:
		d.state = inClose
	default: // a request without Content-Length has no body
		d.state, d.left = inLength, m.Length
	}
	return again
}

func (d *Decoder) end(trailers []byte) Event {
	d.state, d.Trailers = atHead, Fields{rest: trailers}
	return End
}

// octets reads octets of a body or of a tunnel.
func (d *Decoder) octets(data []byte) (n int, e Event) {
	n, e = len(data), Body
	if d.state == inTunnel {
		e = Tunnel
	}
	if d.state == inLength || d.state == inChunk {
		if d.left == 0 {
			return 0, d.complete()
		}
		n = int(min(int64(n), d.left))
		d.left -= int64(n)
	}
	if n == 0 {
		return 0, More
	}
	d.Data = data[:n:n]
	return n, e
}

// complete ends a body of known length, or a chunk.
func (d *Decoder) complete() Event {
	if d.state == inLength {
		return d.end(nil)
	}
	d.state = afterChunk
	return again
}

// line reads the line end after a chunk (section 7.1).
func (d *Decoder) line(data []byte) (n int, e Event, err error) {
	if len(data) < 2 {
		return 0, More, nil
	}
	if data[0] != '\r' || data[1] != '\n' {
		return 0, More, ErrChunk
	}
	d.state = atChunk
	return 2, again, nil
}

// chunk reads the line before a chunk (section 7.1).
func (d *Decoder) chunk(data []byte) (n int, e Event, err error) {
	i := bytes.IndexByte(data, '\n')
	switch {
	case i > maxLine || i < 0 && len(data) > maxLine:
		return 0, More, ErrBound
	case i < 0:
		return 0, More, nil
	case i == 0 || data[i-1] != '\r':
		return 0, More, ErrChunk
	}
	size, ok := parseChunk(data[:i-1])
	if !ok {
		return 0, More, ErrChunk
	}
	if d.state, d.left = inChunk, size; size == 0 {
		d.state = inTrailers
	}
	return i + 1, again, nil
}

// parseChunk parses the size of a chunk, which extensions may follow.
func parseChunk(line []byte) (size int64, ok bool) {
	digits := 0
	for ; digits < len(line); digits++ {
		v, isHex := hex(line[digits])
		if !isHex {
			break
		}
		if size > most>>4 {
			return 0, false
		}
		size = size<<4 | v
	}
	rest := bytes.TrimLeft(line[digits:], " \t")
	return size, digits > 0 && (len(rest) == 0 || rest[0] == ';') && isValue(rest)
}

func hex(c byte) (v int64, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0'), true
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int64(c|0x20-'a') + 10, true
	}
	return 0, false
}

// trailers reads the trailer section (section 7.1.2).
func (d *Decoder) trailers(data []byte) (n int, e Event, err error) {
	n, err = d.section(data)
	if err != nil {
		return d.scanned, More, err
	}
	if n == 0 {
		return 0, More, nil
	}
	lines := trimEmptyLine(data[:n:n])
	fields := Fields{rest: lines}
	for fields.Next() {
	}
	if fields.bad {
		return n, More, ErrField
	}
	return n, d.end(lines), nil
}
