// Package http2 reads HTTP/2 (RFC 9113, with HPACK of RFC 7541) from the bytes
// of a connection. A Decoder finds the heads, the bodies and the ends of the
// messages in one direction, in whatever way their streams are interleaved.
// Results are views into the caller's bytes or into the decoder's own buffers.
// In steady state the decoder allocates nothing, and its memory is bounded for
// any input. The package reads the connections of others, for example from a
// capture: it writes no frames.
//
// The two directions of a connection share no state: each has its own Decoder,
// and the stream number pairs a response with its request. A connection can
// begin with prior knowledge, after TLS is removed. It can also begin after the
// empty line of a 101 response to an upgrade to h2c; then the request of stream
// 1 is in HTTP/1.1.
//
// A Decoder can continue after a gap, or begin in the middle of a connection:
// see Lost. Header blocks after a gap may refer to fields that were sent before
// it. Such fields are unknown. The decoder counts them and never guesses them.
// Sections without a document are sections of RFC 9113.
package http2

import (
	"bytes"
	"errors"
	"fmt"
	"unsafe"
)

// The errors of a Decoder.
var (
	ErrPreface = errors.New("http2: connection begins with neither a preface nor SETTINGS") // section 3.4
	ErrFrame   = errors.New("http2: invalid frame")                                         // section 6
	ErrOrder   = errors.New("http2: frame within a header block, or continuation of none")  // section 6.10
	ErrBlock   = errors.New("http2: invalid header block")                                  // section 4.3
	ErrCut     = errors.New("http2: connection ended within a frame or a header block")
)

// An Event is what a Decoder finds next.
type Event uint8

// The events. The messages of several streams may be interleaved. Each is a Head,
// any number of Body, a Head with trailers if it has some, and an End or a Reset.
const (
	More     Event = iota // more bytes are needed
	Head                  // Message has a head or trailers
	Body                  // Data has octets of the body
	End                   // the message of Stream is complete; Whole reports whether all of it was read
	Reset                 // Stream ends in both directions, because of Code
	GoAway                // the sender ends the connection because of Code, and ignores streams above Stream
	Settings              // Parameters has the sender's settings

	again // inside Next: the state changed without an event
)

// Counts are the totals of one direction: what was read, and what was lost.
type Counts struct {
	Heads     uint64 // heads and trailers that were decoded
	Partial   uint64 // Heads that lack fields: Unknown or Dropped
	Undecoded uint64 // blocks that were not decoded: cut by a gap, invalid, or above the bound
	Malformed uint64 // Heads that are malformed
	Unclear   uint64 // Heads whose kind is unknown

	Fields         uint64 // fields of Heads
	Unknown        uint64 // Fields whose name is unknown
	Dropped        uint64 // Fields above the bounds
	UnknownMethods uint64 // requests whose method is unknown
	UnknownPaths   uint64 // requests whose path is unknown

	Whole     uint64 // messages that ended and were read completely
	Cut       uint64 // messages that ended, but lack their head, fields, or octets of the body
	Resets    uint64
	Forgotten uint64 // streams that were forgotten before they ended, because there were too many

	Gaps    uint64 // calls of Lost
	Skipped uint64 // octets that were read to find frames after gaps
}

// A Decoder reads one direction of a connection. Its zero value is ready at the
// beginning of a connection.
type Decoder struct {
	Stream     uint32     // of the last event
	Message    Message    // of the last Head
	Data       []byte     // of the last Body: a view
	Whole      bool       // of the last End
	Code       Code       // of the last Reset or GoAway
	Parameters Parameters // of the last Settings
	Counts     Counts

	state   state
	frame   frame
	left    int // octets of the frame, with padding, that have not arrived
	padding int // octets at the end of the frame
	block   block
	blocks  blockDecoder
	streams streams
	gap     uint64 // the number of gaps that may have taken octets of any stream
	resumed bool   // the next frame is the first one after such a gap
	unread  bool   // Next did not read all octets
	err     error
}

// A block is the last header block (section 4.3).
type block struct {
	octets   []byte // of its frames so far, unless one frame has the whole block
	stream   uint32
	isPush   bool   // it is a request that a server promises
	promised uint32 // the promised stream
	ends     bool   // the stream ends after it
	isOpen   bool   // CONTINUATION follows
	isLost   bool   // it cannot be decoded
}

// maxHead bounds a header block before it is decoded, in octets. Longer ones are
// not decoded. It is a sixteenth of the largest limit of common servers, and ten
// times real heads.
const maxHead = 64 << 10

type state uint8

const (
	atStart state = iota
	atSettings
	atFrame
	atPadding // at the octet with the length of the padding of DATA
	inData
	inBlock
	inControl
	inRest // of a frame, with nothing to read
	atEnd  // the stream of a head ends
	searching
)

// Next returns the next event in data, and the number n of octets that it has
// read. The caller removes these octets from data. On More, the caller appends
// more octets to the rest and calls Next again. The rest is at most the header
// block or the settings of one frame, or two frames of 16 KiB after a gap.
// After an error, Next returns the same error until the caller calls Lost.
func (d *Decoder) Next(data []byte) (n int, e Event, err error) {
	for e = again; e == again && d.err == nil; {
		var took int
		took, e, d.err = d.step(data[n:])
		n += took
	}
	if d.err != nil {
		return n, More, d.err
	}
	d.unread = e == More && n < len(data)
	return n, e, nil
}

// Lost tells the decoder that n octets are missing; n is negative if the number
// is unknown. The caller calls it after Next returned More, or before the first
// Next if a capture begins within a connection. The caller drops the octets
// that Next did not read, and includes them in n. To continue after an error,
// the caller calls Lost with n = 0 and keeps the octets.
//
// Lost reports whether the gap lies within one frame, so that reading continues
// in that frame. Otherwise Next searches for three plausible frame headers in a
// row: of known types, with valid flags and lengths, of at most 16 KiB, each at
// the end of the previous frame. If a header block may be missing, all entries
// of the dynamic table become unknown; later entries are known again.
func (d *Decoder) Lost(n int64) bool {
	if n == 0 && d.err == nil {
		return true
	}
	d.Counts.Gaps++
	if d.err == nil && n > 0 && n <= int64(d.left) {
		d.loseInFrame(int(n))
		return true
	}
	if d.block.isOpen || d.state == inBlock {
		d.lose()
	}
	d.forget()
	d.block.isOpen, d.unread, d.err = false, false, nil
	d.gap++
	d.state, d.left, d.padding, d.resumed = searching, 0, 0, true
	return false
}

// loseInFrame skips n octets of a frame's payload.
func (d *Decoder) loseInFrame(n int) {
	d.left -= n
	d.padding = min(d.padding, d.left)
	switch d.state {
	case atPadding:
		d.state, d.padding = inRest, 0
	case inBlock:
		d.lose()
		d.state = inRest
	case inControl:
		d.state = inRest
	}
	if d.frame.kind == typeData {
		d.streams.cut(d.frame.stream)
	}
	d.unread = false
}

// Forget tells the decoder that a Reset in the other direction has ended a
// stream. Without this call the stream would stay open.
func (d *Decoder) Forget(stream uint32) { d.streams.close(stream) }

// Close tells the decoder that the connection has ended. The caller calls it
// after Next returned More. Close returns ErrCut if a frame or a header block
// is incomplete. It does not count the messages that have not ended.
func (d *Decoder) Close() error {
	switch {
	case d.err != nil:
		return d.err
	case d.state == searching, (d.state == atFrame || d.state == atSettings || d.state == atStart) && !d.unread && !d.block.isOpen:
		return nil
	}
	return ErrCut
}

// Memory returns the octets of the decoder and of its buffers.
func (d *Decoder) Memory() int {
	b, t := &d.blocks, &d.blocks.table
	return int(unsafe.Sizeof(*d)) + cap(d.block.octets) + cap(d.streams.places)*int(unsafe.Sizeof(stream{})) +
		cap(b.fields)*int(unsafe.Sizeof(Field{})) + cap(b.arena) + cap(t.text) + cap(t.entries)*int(unsafe.Sizeof(tableEntry{}))
}

func (d *Decoder) step(data []byte) (n int, e Event, err error) {
	switch d.state {
	case atStart:
		return d.preface(data)
	case atSettings, atFrame:
		return d.header(data)
	case atPadding:
		return d.pad(data)
	case inData:
		n, e = d.octets(data)
		return n, e, nil
	case inBlock:
		return d.fragment(data)
	case inControl:
		n, e = d.control(data)
		return n, e, nil
	case inRest:
		n, e = d.rest(data)
		return n, e, nil
	case atEnd:
		return 0, d.end(d.block.stream), nil
	}
	n, found := search(data)
	d.Counts.Skipped += uint64(n)
	if !found {
		return n, More, nil
	}
	d.state = atFrame
	return n, again, nil
}

// clientPreface begins the octets of a client (section 3.4). A server begins
// with SETTINGS, and the length of that frame does not begin with the octet P.
var clientPreface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

func (d *Decoder) preface(data []byte) (n int, e Event, err error) {
	switch known := min(len(data), len(clientPreface)); {
	case known == 0:
		return 0, More, nil
	case data[0] != clientPreface[0]:
	case !bytes.Equal(data[:known], clientPreface[:known]):
		return 0, More, ErrPreface
	case known < len(clientPreface):
		return 0, More, nil
	default:
		n = known
	}
	d.state, d.blocks = atSettings, newBlockDecoder()
	return n, again, nil
}

// header reads the header of a frame.
func (d *Decoder) header(data []byte) (n int, e Event, err error) {
	if len(data) < frameHeader {
		return 0, More, nil
	}
	f := parseFrame(data)
	if d.state == atSettings && (f.kind != typeSettings || f.has(flagAck) || !f.isValid()) {
		return 0, More, ErrPreface
	}
	if !f.isValid() {
		return 0, More, fmt.Errorf("%w: type %d of %d octets on stream %d", ErrFrame, f.kind, f.length, f.stream)
	}
	if err := d.order(f); err != nil {
		return 0, More, err
	}
	d.frame, d.left, d.padding = f, f.length, 0
	switch f.kind {
	case typeData:
		d.state = inData
		if f.has(flagPadded) {
			d.state = atPadding
		}
	case typeHeaders, typePush, typeContinuation:
		d.state = inBlock
	case typeReset, typeGoAway:
		d.state = inControl
	case typeSettings:
		d.state = inControl
		if f.has(flagAck) {
			d.state = inRest
		}
	default:
		d.state = inRest
	}
	return frameHeader, again, nil
}

// order checks the order of the frames of a header block (section 6.10), and
// begins a new block.
func (d *Decoder) order(f frame) error {
	resumed := d.resumed
	d.resumed = false
	b := &d.block
	if f.kind == typeContinuation && resumed {
		*b = block{octets: b.octets[:0], stream: f.stream, isOpen: !f.has(flagEndHeaders)}
		d.lose()
		return nil
	}
	if (f.kind == typeContinuation) != b.isOpen || b.isOpen && f.stream != b.stream {
		return ErrOrder
	}
	if f.kind == typeHeaders || f.kind == typePush {
		isPush := f.kind == typePush
		*b = block{octets: b.octets[:0], stream: f.stream, isPush: isPush, ends: !isPush && f.has(flagEndStream)}
	}
	if f.hasBlock() {
		b.isOpen = !f.has(flagEndHeaders)
	}
	return nil
}

// pad reads the length of the padding of DATA (section 6.1).
func (d *Decoder) pad(data []byte) (n int, e Event, err error) {
	if len(data) == 0 {
		return 0, More, nil
	}
	d.padding = int(data[0])
	d.left--
	if d.padding > d.left {
		return 0, More, fmt.Errorf("%w: padding of %d in %d octets", ErrFrame, d.padding, d.frame.length)
	}
	d.state = inData
	return 1, again, nil
}

// octets reads octets of a body.
func (d *Decoder) octets(data []byte) (n int, e Event) {
	n = min(len(data), d.left-d.padding)
	switch {
	case d.left == d.padding:
		d.state = inRest
		return 0, again
	case n == 0:
		return 0, More
	}
	d.left -= n
	d.Stream, d.Data = d.frame.stream, data[:n:n]
	return n, Body
}

// rest reads the rest of a frame.
func (d *Decoder) rest(data []byte) (n int, e Event) {
	n = min(len(data), d.left)
	if d.left -= n; d.left > 0 {
		return n, More
	}
	d.state = atFrame
	switch f := d.frame; {
	case f.kind == typeData && f.has(flagEndStream):
		return n, d.end(f.stream)
	case f.hasBlock() && !d.block.isOpen && d.block.ends: // the block is lost
		return n, d.end(f.stream)
	}
	return n, again
}

// end ends a message.
func (d *Decoder) end(id uint32) Event {
	d.state, d.Stream, d.Whole = atFrame, id, false
	if of := d.streams.find(id); of != nil {
		d.Whole = of.isWhole && of.gap == d.gap
		d.streams.close(id)
	}
	if d.Whole {
		d.Counts.Whole++
	} else {
		d.Counts.Cut++
	}
	return End
}

// control reads RST_STREAM, SETTINGS and GOAWAY (sections 6.4, 6.5 and 6.8).
func (d *Decoder) control(data []byte) (n int, e Event) {
	need := d.frame.length
	if d.frame.kind == typeGoAway {
		need = 8 // debug data follows
	}
	if len(data) < need {
		return 0, More
	}
	d.left -= need
	d.state, d.Stream = inRest, d.frame.stream
	switch d.frame.kind {
	case typeReset:
		d.Code = code(data)
		d.Counts.Resets++
		d.streams.close(d.Stream)
		return need, Reset
	case typeGoAway:
		d.Stream, d.Code = streamID(data), code(data[4:])
		return need, GoAway
	}
	d.Parameters = Parameters{rest: data[:need:need]}
	return need, Settings
}
