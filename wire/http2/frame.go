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

// flags are the flags that RFC 9113 defines for each type. It is read-only.
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

// isValid reports whether the frame is valid: an invalid frame ends the
// connection (section 6).
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
	return true // unknown types are ignored (section 5.5)
}

// isPlausible reports whether the frame is one that real software sends: valid,
// of a known type, of a length that every peer accepts, without undefined
// flags.
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

// chain is the number of plausible frame headers in a row that count as frames.
// Of random octets, less than 1 in 2^22 is the start of a plausible header: the
// length is at most 2^14 (2^-10), the reserved bit is 0 (2^-1), and HEADERS,
// the most permissive type, is one of 256 types with four of eight flags free
// (2^-12). Three in a row occur by chance at one in 2^66 octets. The body of a
// message is not random: if it contains HTTP/2 frames itself, they count as
// frames.
const chain = 3

// search looks for a chain of frames at any offset. n is the number of octets
// before the chain. Without a chain, n is the number of octets that cannot
// begin one. A decision about one offset needs at most two frames and a header.
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

// startsChain reports whether data starts with a chain of frames, or whether it
// needs more data to decide.
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
