package quick

import (
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	// largeBytes is the size from which a part of a body is written at once, and not copied.
	largeBytes = 32 << 10
	// keepBytes bounds the memory that an idle connection keeps.
	keepBytes = 8 << 10
)

// answer is the http.ResponseWriter of quick requests. It sends the answer in one write.
type answer struct {
	conn   net.Conn
	header http.Header
	status int
	body   []byte
	head   []byte
	sent   bool // the head was written, and the body with it
	err    error

	now    time.Time
	second int64  // of date
	date   []byte // the field Date, with its line end
}

func (a *answer) init(c net.Conn) { a.conn, a.header = c, http.Header{} }

// begin makes the writer ready for an answer.
func (a *answer) begin(now time.Time) {
	clear(a.header)
	a.status, a.body, a.sent, a.err = 0, a.body[:0], false, nil
	a.now = now
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= http.StatusOK {
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if !hasBody(a.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if a.err != nil || a.sent {
		return 0, http.ErrContentLength
	}
	if length := a.header["Content-Length"]; len(p) < largeBytes || len(a.body) > 0 || len(length) != 1 || length[0] != strconv.Itoa(len(p)) {
		a.body = append(a.body, p...)
		return len(p), nil
	}
	a.sent = true
	a.makeHead()
	parts := net.Buffers{a.head, p}
	_, a.err = parts.WriteTo(a.conn)
	return len(p), a.err
}

// hasBody reports whether an answer of this status may have a body.
func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// finish sends the rest of the answer.
func (a *answer) finish() error {
	if a.sent || a.err != nil {
		return a.err
	}
	a.WriteHeader(http.StatusOK)
	if length := a.header["Content-Length"]; len(length) > 0 && hasBody(a.status) && length[0] != strconv.Itoa(len(a.body)) {
		return http.ErrContentLength // closes the connection
	}
	a.makeHead()
	a.head = append(a.head, a.body...)
	_, err := a.conn.Write(a.head)
	if cap(a.body) > keepBytes {
		a.body = nil
	}
	if cap(a.head) > keepBytes {
		a.head = nil
	}
	return err
}

// makeHead makes the head of the answer.
func (a *answer) makeHead() {
	h := append(a.head[:0], "HTTP/1.1 "...)
	h = strconv.AppendInt(h, int64(a.status), 10)
	h = append(h, ' ')
	h = append(h, http.StatusText(a.status)...)
	h = append(h, "\r\n"...)
	if s := a.now.Unix(); s != a.second || a.date == nil {
		a.second = s
		a.date = append(a.now.UTC().AppendFormat(append(a.date[:0], "Date: "...), http.TimeFormat), "\r\n"...)
	}
	h = append(h, a.date...)
	for name, values := range a.header {
		for _, v := range values {
			h = appendField(h, name, v)
		}
	}
	if hasBody(a.status) && a.header["Content-Length"] == nil {
		h = append(h, "Content-Length: "...)
		h = strconv.AppendInt(h, int64(len(a.body)), 10)
		h = append(h, "\r\n"...)
	}
	if len(a.body) > 0 && a.header["Content-Type"] == nil {
		h = appendField(h, "Content-Type", http.DetectContentType(a.body))
	}
	a.head = append(h, "\r\n"...)
}

// appendField appends a header field. A line end in the value would begin another field: it becomes a
// space, as in net/http.
func appendField(h []byte, name, value string) []byte {
	h = append(append(h, name...), ": "...)
	start := len(h)
	h = append(h, value...)
	for i := start; i < len(h); i++ {
		if h[i] == '\r' || h[i] == '\n' {
			h[i] = ' '
		}
	}
	return append(h, "\r\n"...)
}
