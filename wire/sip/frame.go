package sip

import (
	"bytes"
	"fmt"
)

// Length returns the length of the first message in the bytes of a stream (RFC 3261 section 18.3),
// including line ends before it, or 0 if the header is not complete. The length may exceed len(data):
// a caller that waits for n bytes reads the header once, however the body arrives. A message on a
// stream must have a Content-Length. A message longer than most bytes is an error.
func Length(data []byte, most int) (n int, err error) {
	start := 0
	for start+1 < len(data) && data[start] == '\r' && data[start+1] == '\n' {
		start += 2
	}
	i := bytes.Index(data[start:], headerEnd)
	if i < 0 {
		if len(data)-start > most {
			return 0, fmt.Errorf("%w: longer than %d bytes", ErrHeader, most)
		}
		return 0, nil
	}
	header := data[start : start+i+len(headerEnd)]
	_, rest, ok := bytes.Cut(header, crlf)
	if !ok {
		return 0, ErrStartLine
	}
	length := -1
	for fields := (Fields{rest: rest, unfold: true}); ; {
		if !fields.Next() {
			if fields.Err != nil {
				return 0, fields.Err
			}
			break
		}
		if fields.Kind == ContentLength {
			v, ok := ParseNumber(fields.Value)
			if !ok {
				return 0, fmt.Errorf("%w: %.20q", ErrLength, fields.Value)
			}
			length = int(min(v, 1<<30))
			break
		}
	}
	switch {
	case length < 0:
		return 0, fmt.Errorf("%w: none, on a stream", ErrLength)
	case len(header)+length > most:
		return 0, fmt.Errorf("%w: message longer than %d bytes", ErrLength, most)
	}
	return start + len(header) + length, nil
}

var headerEnd = []byte("\r\n\r\n")
