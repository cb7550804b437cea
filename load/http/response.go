package http

import (
	"bytes"
	"errors"
)

// Limits of a response. Without them, a line without end would exhaust the generator's memory. A body may
// be longer: the call's timeout ends it.
const (
	maxLine   = 8 << 10  // bytes of one line of the head, of a chunk's size or of a trailer
	maxFields = 64 << 10 // bytes of all lines of head and trailer, interim responses included
)

// A stage is the part of a response that comes next.
type stage uint8

const (
	statusLine stage = iota
	fieldLine
	bodyOfLength // as many bytes as length says
	bodyToEnd    // until the connection ends
	chunkSize
	chunkData
	chunkEnd // the line break after a chunk
	trailer
	complete
)

// A response parses one HTTP/1.x response (RFC 9112) as its bytes arrive. It
// stores at most a part of a line.
type response struct {
	stage   stage
	status  int
	old     bool   // HTTP/1.0, which has no Transfer-Encoding
	close   bool   // the connection carries no other response after this one
	chunked bool   // the last Transfer-Encoding is chunked
	coded   bool   // the head has a Transfer-Encoding
	sized   bool   // the head has a Content-Length
	length  int64  // bytes left of the body or of the chunk
	fields  int    // bytes of lines read so far
	line    []byte // the part of a line received so far
}

var errMalformed = errors.New("not a response of HTTP/1.x")

// reset prepares r for the next response and keeps its buffer.
func (r *response) reset() { *r = response{line: r.line[:0]} }

// begun reports whether a byte of the response has arrived.
func (r *response) begun() bool {
	return r.stage != statusLine || len(r.line) > 0 || r.fields > 0
}

// feed parses data up to the end of the response. It returns the number of bytes that it used, and
// whether the response is complete.
func (r *response) feed(data []byte) (n int, done bool, err error) {
	for n < len(data) && r.stage != complete {
		rest := data[n:]
		switch r.stage {
		case bodyToEnd:
			return len(data), false, nil
		case bodyOfLength, chunkData:
			take := min(int64(len(rest)), r.length)
			n += int(take)
			if r.length -= take; r.length == 0 {
				if r.stage == chunkData {
					r.stage = chunkEnd
				} else {
					r.stage = complete
				}
			}
		default:
			line, took, err := r.take(rest)
			n += took
			if err != nil {
				return n, false, err
			}
			if line == nil {
				return n, false, nil
			}
			if err := r.read(line); err != nil {
				return n, false, err
			}
			r.line = r.line[:0]
		}
	}
	return n, r.stage == complete, nil
}

// ended reports whether the response is complete after the connection has ended.
func (r *response) ended() bool { return r.stage == bodyToEnd }

// take returns the next line without its line break, or nil if the line is not complete. It stores
// the part of an incomplete line.
func (r *response) take(data []byte) (line []byte, n int, err error) {
	end := bytes.IndexByte(data, '\n')
	n = end + 1
	if end < 0 {
		n = len(data)
	}
	if len(r.line)+n > maxLine {
		return nil, n, errMalformed
	}
	if r.stage != chunkSize && r.stage != chunkEnd {
		if r.fields += n; r.fields > maxFields {
			return nil, n, errMalformed
		}
	}
	if end < 0 {
		r.line = append(r.line, data...)
		return nil, n, nil
	}
	line = data[:end]
	if len(r.line) > 0 {
		r.line = append(r.line, line...)
		line = r.line
	}
	// A single line feed also ends a line (RFC 9112 section 2.2).
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	return line, n, nil
}

// read parses one line.
func (r *response) read(line []byte) error {
	switch r.stage {
	case statusLine:
		return r.readStatus(line)
	case fieldLine:
		if len(line) == 0 {
			return r.endHead()
		}
		return r.readField(line)
	case chunkSize:
		return r.readChunkSize(line)
	case chunkEnd:
		r.stage = chunkSize
		if len(line) > 0 {
			return errMalformed
		}
	case trailer:
		if len(line) == 0 {
			r.stage = complete
		}
	}
	return nil
}

// readStatus parses HTTP/1.x SP status SP reason; the reason may be missing.
func (r *response) readStatus(line []byte) error {
	const prefix = "HTTP/1."
	if len(line) < len(prefix)+5 || string(line[:len(prefix)]) != prefix {
		return errMalformed
	}
	minor, rest := line[len(prefix)], line[len(prefix)+1:]
	if minor != '0' && minor != '1' || rest[0] != ' ' || len(rest) > 4 && rest[4] != ' ' {
		return errMalformed
	}
	r.status = 0
	for _, c := range rest[1:4] {
		if c < '0' || c > '9' {
			return errMalformed
		}
		r.status = 10*r.status + int(c-'0')
	}
	if r.status < 100 || r.status > 599 || r.status == 101 { // the request did not ask to switch protocols
		return errMalformed
	}
	r.old = minor == '0'
	r.close = r.old
	r.stage = fieldLine
	return nil
}

// readField parses the fields that determine where the response and the connection
// end.
func (r *response) readField(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if line[0] == ' ' || line[0] == '\t' || colon <= 0 || line[colon-1] == ' ' || line[colon-1] == '\t' {
		return errMalformed // also rejects folded lines, which RFC 9112 section 5.2 has removed
	}
	name := line[:colon]
	switch len(name) {
	case len("Connection"):
		if equal(name, "connection") {
			r.readConnection(line[colon+1:])
		}
	case len("Content-Length"):
		if equal(name, "content-length") {
			return r.readLength(bytes.Trim(line[colon+1:], " \t"))
		}
	case len("Transfer-Encoding"):
		if equal(name, "transfer-encoding") {
			// The last coding counts (RFC 9112 section 6.3).
			list := line[colon+1:]
			last := bytes.Trim(list[bytes.LastIndexByte(list, ',')+1:], " \t")
			r.coded, r.chunked = true, equal(last, "chunked")
		}
	}
	return nil
}

// equal compares b with a lower-case text, ignoring case.
func equal(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func (r *response) readConnection(list []byte) {
	for len(list) > 0 {
		option := list
		if comma := bytes.IndexByte(list, ','); comma >= 0 {
			option, list = list[:comma], list[comma+1:]
		} else {
			list = nil
		}
		switch option = bytes.Trim(option, " \t"); {
		case equal(option, "close"):
			r.close = true
		case equal(option, "keep-alive"): // for HTTP/1.0, which closes by default
			r.close = false
		}
	}
}

func (r *response) readLength(digits []byte) error {
	const most = 18 // digits that an int64 holds
	if len(digits) == 0 || len(digits) > most {
		return errMalformed
	}
	var length int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return errMalformed
		}
		length = 10*length + int64(c-'0')
	}
	if r.sized && length != r.length {
		return errMalformed
	}
	r.sized, r.length = true, length
	return nil
}

// endHead sets the stage after the head (RFC 9112 section 6.3).
func (r *response) endHead() error {
	switch {
	case r.status < 200: // interim: the response is still to come
		fields := r.fields
		r.reset()
		r.fields = fields
	case r.status == 204 || r.status == 304:
		r.stage = complete
	case r.chunked && !r.old:
		r.stage = chunkSize
		r.close = r.close || r.sized // the head has both lengths, and one of them is wrong
	case r.coded || !r.sized:
		r.stage, r.close = bodyToEnd, true
	case r.length == 0:
		r.stage = complete
	default:
		r.stage = bodyOfLength
	}
	return nil
}

// readChunkSize parses hexadecimal digits. Extensions follow a semicolon.
func (r *response) readChunkSize(line []byte) error {
	if semicolon := bytes.IndexByte(line, ';'); semicolon >= 0 {
		line = line[:semicolon]
	}
	line = bytes.TrimRight(line, " \t")
	const most = 15 // digits that an int64 holds
	if len(line) == 0 || len(line) > most {
		return errMalformed
	}
	r.length = 0
	for _, c := range line {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return errMalformed
		}
		r.length = r.length<<4 | int64(c)
	}
	r.stage = chunkData
	if r.length == 0 {
		r.stage = trailer
	}
	return nil
}
