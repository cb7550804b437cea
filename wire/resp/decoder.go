// Package resp reads requests and replies of Redis, in RESP2 and RESP3, from
// the bytes of a connection. A Decoder finds the values of each message in one
// direction, with any nesting and any number of pipelined messages. All results
// are views into the caller's bytes, and nothing is allocated. A Decoder keeps
// only the first octets of long strings, so no message needs a buffer of its
// size. The package writes no messages.
//
// The format follows the specification at
// https://redis.io/docs/latest/develop/reference/protocol-spec, including its
// section "Inline commands". The Decoder refuses strings and aggregates of
// unknown length ("streamed" in the first draft of RESP3), because no server
// sends them.
package resp

import (
	"bytes"
	"errors"
)

// The errors of a Decoder.
var (
	ErrType  = errors.New("resp: unknown type of value")
	ErrSize  = errors.New("resp: invalid size of a string or an aggregate")
	ErrEnd   = errors.New("resp: value without CR and LF at its end")
	ErrDepth = errors.New("resp: aggregates nested too deeply")
	ErrBound = errors.New("resp: line or string above the bound")
)

// A Type is the type of a value: its first octet.
type Type byte

// The types of values. Those from Null on are of RESP3.
const (
	String    Type = '+'
	Error     Type = '-'
	Integer   Type = ':'
	Bulk      Type = '$'
	Array     Type = '*'
	Null      Type = '_'
	Boolean   Type = '#'
	Double    Type = ','
	BigNumber Type = '('
	BulkError Type = '!'
	Verbatim  Type = '=' // three octets of format and a colon precede the text
	Map       Type = '%'
	Set       Type = '~'
	Push      Type = '>'
	Attribute Type = '|' // describes the value after it
	Inline    Type = 0   // a request that is a line of words
)

// A Value is one value of a message.
type Value struct {
	Type  Type
	Depth int   // 0 for the message itself, 1 for an element of it, and so on
	Index int64 // its place in the aggregate that it is in
	Of    int64 // how many values that aggregate has; 1 for the message itself
	// Size is the number of octets of a string, or of values of an aggregate: two
	// for each entry of a map or an attribute. It is -1 for a null of RESP2.
	Size int64
	// Text has the octets of a value that is not an aggregate, at most Decoder.Keep
	// of a string with a size. It is a view.
	Text []byte
}

// IsError reports whether the value is an error.
func (v *Value) IsError() bool { return v.Type == Error || v.Type == BulkError }

// Code returns the first word of the text: an error's code, such as WRONGTYPE
// or MOVED, or an inline command's name.
func (v *Value) Code() []byte {
	if i := bytes.IndexByte(v.Text, ' '); i >= 0 {
		return v.Text[:i]
	}
	return v.Text
}

// An Event is what a Decoder finds next.
type Event uint8

// The events. A message is one Found or more, and an End.
const (
	More  Event = iota // more bytes are needed
	Found              // Value has a value: an aggregate before its elements
	End                // the message is complete

	again // inside Next: the state changed without an event
)

// A Decoder reads the messages of one direction of a connection. Its zero value
// reads replies from the beginning of one.
type Decoder struct {
	Value Value // of the last Found
	// Requests makes the Decoder read requests: arrays of strings, and inline
	// commands.
	Requests bool
	// Keep bounds the octets of a string with a size in Value.Text; zero means
	// 4 KiB.
	Keep int

	state state
	rest  int64 // octets of the string that are skipped
	depth int
	open  [maxDepth]aggregate
	err   error
}

const (
	defaultKeep = 4 << 10
	maxDepth    = 32
	maxLine     = 64 << 10  // octets, as Redis bounds inline commands
	maxBulk     = 512 << 20 // octets, the largest string of Redis
	maxCount    = 1 << 31   // values of an aggregate
)

type state uint8

const (
	atValue state = iota
	inRest
	atLineEnd
	atEnd
)

// An aggregate is an open aggregate with the number of its missing elements.
type aggregate struct {
	of, left  int64
	attribute bool
}

// Next returns the next event in data, and the number n of octets that it has
// read. The caller removes these octets from data. On More, the caller appends
// more octets to the rest and calls Next again. An error is final, because the
// boundaries of messages are lost: Next returns the same error from then on.
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

// Skip tells the decoder that n octets are missing, because a capture lost
// them. It reports whether all of them belong to the skipped part of a string,
// so that reading can continue after them.
func (d *Decoder) Skip(n int64) bool {
	if d.err != nil || d.state != inRest || n < 0 || n > d.rest {
		return false
	}
	d.rest -= n
	return true
}

func (d *Decoder) step(data []byte) (n int, e Event, err error) {
	switch d.state {
	case atValue:
		return d.value(data)
	case inRest:
		n = int(min(d.rest, int64(len(data))))
		if d.rest -= int64(n); d.rest > 0 {
			return n, More, nil
		}
		d.state = atLineEnd
		return n, again, nil
	case atLineEnd:
		if len(data) < 2 {
			return 0, More, nil
		}
		if data[0] != '\r' || data[1] != '\n' {
			return 0, More, ErrEnd
		}
		d.state = atEnd
		return 2, again, nil
	}
	return 0, d.leave(), nil
}

// value reads the line of a value and, for a string with a size, the octets to
// keep.
func (d *Decoder) value(data []byte) (n int, e Event, err error) {
	if len(data) == 0 {
		return 0, More, nil
	}
	i := bytes.IndexByte(data, '\n')
	if i > maxLine || i < 0 && len(data) > maxLine {
		return 0, More, ErrBound
	}
	t := Type(data[0])
	if d.Requests && d.depth == 0 && t != Array {
		return d.inline(data, i)
	}
	if !t.valid() || d.Requests && d.depth > 0 && t != Bulk {
		return 0, More, ErrType
	}
	if i < 0 {
		return 0, More, nil
	}
	if i < 2 || data[i-1] != '\r' {
		return 0, More, ErrEnd
	}
	text := data[1 : i-1 : i-1]
	v := Value{Type: t, Depth: d.depth, Of: 1, Text: text}
	if d.depth > 0 {
		in := d.open[d.depth-1]
		v.Index, v.Of = in.of-in.left, in.of
	}
	switch t {
	case Bulk, BulkError, Verbatim:
		return d.bulk(v, data, i+1)
	case Array, Map, Set, Push, Attribute:
		return i + 1, Found, d.enter(v)
	}
	v.Size = int64(len(text))
	d.Value, d.state = v, atEnd
	return i + 1, Found, nil
}

func (t Type) valid() bool {
	switch t {
	case String, Error, Integer, Bulk, Array, Null, Boolean, Double, BigNumber, BulkError, Verbatim, Map, Set, Push, Attribute:
		return true
	}
	return false
}

// inline reads an inline command, whose line ends at i. Empty lines are skipped.
func (d *Decoder) inline(data []byte, i int) (n int, e Event, err error) {
	if i < 0 {
		return 0, More, nil
	}
	line := bytes.TrimLeft(bytes.TrimSuffix(data[:i:i], []byte("\r")), " \t")
	if len(line) == 0 {
		return i + 1, again, nil
	}
	d.Value, d.state = Value{Type: Inline, Of: 1, Size: int64(len(line)), Text: line}, atEnd
	return i + 1, Found, nil
}

// bulk reads a string with a size, which begins at start.
func (d *Decoder) bulk(v Value, data []byte, start int) (n int, e Event, err error) {
	size, ok := parseSize(v.Text, maxBulk)
	if !ok {
		return 0, More, ErrSize
	}
	v.Size, v.Text = size, nil
	if size < 0 {
		d.Value, d.state = v, atEnd
		return start, Found, nil
	}
	keep := int64(d.Keep)
	if keep <= 0 {
		keep = defaultKeep
	}
	keep = min(keep, size)
	if int64(len(data)-start) < keep {
		return 0, More, nil
	}
	end := start + int(keep)
	v.Text = data[start:end:end]
	d.Value, d.rest, d.state = v, size-keep, inRest
	return end, Found, nil
}

// enter begins an aggregate.
func (d *Decoder) enter(v Value) error {
	count, ok := parseSize(v.Text, maxCount)
	if !ok {
		return ErrSize
	}
	attribute := v.Type == Attribute
	if attribute || v.Type == Map {
		count = max(2*count, -1)
	}
	v.Size, v.Text = count, nil
	d.Value = v
	switch {
	case count > 0 && d.depth == maxDepth:
		return ErrDepth
	case count > 0:
		d.open[d.depth] = aggregate{of: count, left: count, attribute: attribute}
		d.depth++
	case !attribute: // an empty attribute changes nothing
		d.state = atEnd
	}
	return nil
}

// leave counts a complete value, and the aggregates that it completes.
func (d *Decoder) leave() Event {
	d.state = atValue
	for d.depth > 0 {
		in := &d.open[d.depth-1]
		if in.left--; in.left > 0 {
			return again
		}
		d.depth--
		if in.attribute {
			return again // the value that the attribute describes takes its place
		}
	}
	return End
}

// parseSize parses the size of a string or of an aggregate. -1 is a null.
func parseSize(text []byte, most int64) (v int64, ok bool) {
	if string(text) == "-1" {
		return -1, true
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		if v = v*10 + int64(c-'0'); v > most {
			return 0, false
		}
	}
	return v, len(text) > 0
}
