package http2

import (
	"bytes"
	"encoding/binary"
)

// A frameType is the type of a frame (section 6).
type frameType uint8

const (
	typeData frameType = iota
	typeHeaders
	typePriority
	typeReset
	typeSettings
	typePush
	typePing
	typeGoAway
	typeWindow
	typeContinuation
)

// Flags of frames.
const (
	flagAck        = 0x1 // SETTINGS and PING
	flagEndStream  = 0x1 // DATA and HEADERS
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

// flags has the flags that RFC 9113 defines for each type. It is never written to.
var flags = [...]uint8{
	typeData:         flagEndStream | flagPadded,
	typeHeaders:      flagEndStream | flagEndHeaders | flagPadded | flagPriority,
	typeSettings:     flagAck,
	typePush:         flagEndHeaders | flagPadded,
	typePing:         flagAck,
	typeContinuation: flagEndHeaders,
}

// Sizes of frames, in octets.
const (
	frameHeader = 9
	// maxControl bounds SETTINGS. It is the largest frame that every peer takes
	// (SETTINGS_MAX_FRAME_SIZE, section 6.5.2).
	maxControl = 16 << 10
)

// A frame is the header of a frame (section 4.1).
type frame struct {
	kind     frameType
	flags    uint8
	length   int
	stream   uint32
	reserved bool // the bit before stream
}

// parseFrame parses the first frameHeader octets of b.
func parseFrame(b []byte) frame {
	stream := binary.BigEndian.Uint32(b[5:])
	return frame{
		length: int(b[0])<<16 | int(b[1])<<8 | int(b[2]),
		kind:   frameType(b[3]), flags: b[4],
		stream: stream &^ (1 << 31), reserved: stream>>31 != 0,
	}
}

func (f frame) has(flag uint8) bool { return f.flags&flag != 0 }

// hasBlock reports whether the frame has a part of a header block.
func (f frame) hasBlock() bool {
	return f.kind == typeHeaders || f.kind == typePush || f.kind == typeContinuation
}

// overhead returns the number of octets that precede data or a header block.
func (f frame) overhead() (n int) {
	if f.has(flagPadded) && flags[f.kind]&flagPadded != 0 {
		n++
	}
	switch {
	case f.kind == typeHeaders && f.has(flagPriority):
		n += 5
	case f.kind == typePush:
		n += 4
	}
	return n
}

// isValid reports whether the frame is none of those that end a connection
// (section 6).
func (f frame) isValid() bool {
	switch f.kind {
	case typeData, typeHeaders, typePush, typeContinuation:
		return f.stream != 0 && f.length >= f.overhead()
	case typePriority:
		return f.stream != 0
	case typeReset:
		return f.stream != 0 && f.length == 4
	case typeSettings:
		return f.stream == 0 && f.length%6 == 0 && f.length <= maxControl && (f.length == 0 || !f.has(flagAck))
	case typePing:
		return f.stream == 0 && f.length == 8
	case typeGoAway:
		return f.stream == 0 && f.length >= 8
	case typeWindow:
		return f.length == 4
	}
	return true // others are ignored (section 5.5)
}

// isPlausible reports whether the frame is one that software sends: valid, of a
// known type, of a length that every peer takes, with no undefined bit.
func (f frame) isPlausible() bool {
	return int(f.kind) <= int(typeContinuation) && f.length <= maxControl && !f.reserved &&
		(int(f.kind) >= len(flags) || f.flags&^flags[f.kind] == 0) && f.isValid() &&
		(f.kind != typePriority || f.length == 5)
}

// follows reports whether the frame may follow another one: the frames of a header
// block follow each other (section 6.10).
func (f frame) follows(before frame) bool {
	if before.hasBlock() && !before.has(flagEndHeaders) {
		return f.kind == typeContinuation && f.stream == before.stream
	}
	return f.kind != typeContinuation
}

// chain is how many plausible frame headers in a row are taken for frames. Of random
// octets, 1 in 2^22 begins one: the length is at most 2^14 (2^-10), the reserved bit
// is 0 (2^-1), and HEADERS, the type that says least, has one of 256 types and four
// of eight flags free (2^-12). Three in a row are chance at one in 2^66 octets. The
// body of another message is not random: one that has frames of HTTP/2 itself is
// taken for frames.
const chain = 3

// search looks for frames in octets that begin anywhere. n is how many octets
// precede them or, if none is found, how many precede all that may begin one. To
// tell whether octets begin a chain takes at most two frames and a header.
func search(data []byte) (n int, found bool) {
	for ; ; n++ {
		zero := bytes.IndexByte(data[n:], 0) // the first octet of a length below 2^16
		if zero < 0 {
			return len(data), false
		}
		n += zero
		if isStart, needsMore := startsChain(data[n:]); isStart || needsMore {
			return n, isStart
		}
	}
}

// startsChain reports whether data starts with a chain of frames, or whether this
// takes more data to tell.
func startsChain(data []byte) (isStart, needsMore bool) {
	var before frame
	for i, at := 0, 0; i < chain; i++ {
		if len(data) < at+frameHeader {
			return false, true
		}
		f := parseFrame(data[at:])
		if !f.isPlausible() || i > 0 && !f.follows(before) {
			return false, false
		}
		before, at = f, at+frameHeader+f.length
	}
	return true, false
}
