package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// The protocol between the instances of a cluster: frames over TCP, big-endian.
//
//	uint32 length of the rest | uint8 op | uint32 id | body
//
// An answer has the id of its request. Answers may arrive in any order.
const (
	opHello    = 1 // body: magic, sender's address        -> opOK
	opPing     = 2 // no body                              -> opOK
	opGet      = 3 // body: key                            -> opRecord or opMissing
	opCompare  = 4 // body: uint64 expected version, record -> opVersion or opConflict
	opSet      = 5 // body: record with its version        -> opOK
	opOK       = 0x81
	opRecord   = 0x82 // body: record
	opMissing  = 0x83
	opVersion  = 0x84 // body: uint64 the new version
	opConflict = 0x85
	opRefused  = 0x86 // body: the reason; the connection then ends
)

const (
	magic        = "vitrine-ims-replica/1 "
	frameHeader  = 4 + 1 + 4
	maxFrame     = 1 << 20 // bytes after the length
	maxKey       = 1 << 10
	flagTimer    = 1
	flagDeleted  = 2
	recordHeader = 2 + 1 + 8 + 8 + 4
)

// errWire is wrapped by every protocol error.
var errWire = errors.New("cluster protocol")

// A frame is one message of the protocol.
type frame struct {
	op   byte
	id   uint32
	body []byte
}

// beginFrame reserves space for the header, and endFrame fills it.
func beginFrame(b []byte) []byte { return append(b[:0], make([]byte, frameHeader)...) }

func endFrame(b []byte, op byte, id uint32) []byte {
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	b[4] = op
	binary.BigEndian.PutUint32(b[5:], id)
	return b
}

// readFrame reads one frame. Its body is in buf and valid until the next call.
func readFrame(r *bufio.Reader, buf []byte) (frame, []byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, buf, err
	}
	length := binary.BigEndian.Uint32(header[:])
	if length < frameHeader-4 || length > maxFrame {
		return frame{}, buf, fmt.Errorf("%w: frame of %d bytes", errWire, length)
	}
	n := int(length) - (frameHeader - 4)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(r, buf); err != nil {
		return frame{}, buf, err
	}
	return frame{op: header[4], id: binary.BigEndian.Uint32(header[5:]), body: buf}, buf, nil
}

// appendRecord appends a record.
func appendRecord(b []byte, key string, r Record) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, key...)
	var flags byte
	if r.Timer {
		flags |= flagTimer
	}
	if r.deleted {
		flags |= flagDeleted
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint64(b, r.Version)
	var expires int64
	if !r.Expires.IsZero() {
		expires = r.Expires.UnixMilli()
	}
	b = binary.BigEndian.AppendUint64(b, uint64(expires))
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Value)))
	return append(b, r.Value...)
}

// parseRecord parses a record that fills b. The value is a copy.
func parseRecord(b []byte) (key string, r Record, err error) {
	if len(b) < recordHeader {
		return "", r, fmt.Errorf("%w: record of %d bytes", errWire, len(b))
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > maxKey || len(b) < recordHeader+n {
		return "", r, fmt.Errorf("%w: key of %d bytes in a record of %d", errWire, n, len(b))
	}
	key, b = string(b[2:2+n]), b[2+n:]
	r.Timer, r.deleted = b[0]&flagTimer != 0, b[0]&flagDeleted != 0
	r.Version = binary.BigEndian.Uint64(b[1:])
	if ms := int64(binary.BigEndian.Uint64(b[9:])); ms != 0 {
		r.Expires = time.UnixMilli(ms)
	}
	size := binary.BigEndian.Uint32(b[17:])
	b = b[21:]
	if uint64(size) != uint64(len(b)) {
		return "", r, fmt.Errorf("%w: value of %d bytes where %d are left", errWire, size, len(b))
	}
	if size > 0 {
		r.Value = append([]byte(nil), b...)
	}
	return key, r, nil
}

// parseVersion parses the uint64 at the start of b.
func parseVersion(b []byte) (uint64, []byte, error) {
	if len(b) < 8 {
		return 0, nil, fmt.Errorf("%w: version of %d bytes", errWire, len(b))
	}
	return binary.BigEndian.Uint64(b), b[8:], nil
}
