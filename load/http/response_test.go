package http

import (
	"bufio"
	"bytes"
	"io"
	nethttp "net/http"
	"strings"
	"testing"
)

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n"

// TestResponse checks where a response ends, and whether the connection stays
// open.
func TestResponse(t *testing.T) {
	const next = "HTTP/1.1 500 "
	for _, c := range []struct {
		name, head, body string // bytes after the body belong to the next response
		status           int
		close            bool
	}{
		{"a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "hello", 200, false},
		{"no reason", "HTTP/1.1 404\r\nContent-Length:0 \r\n\r\n", "", 404, false},
		{"lone line feeds", "HTTP/1.1 200 OK\ncontent-length: 2\n\n", "ab", 200, false},
		{"close", "HTTP/1.1 200 OK\r\nConnection: foo , Close\r\nContent-Length: 1\r\n\r\n", "x", 200, true},
		{"HTTP/1.0", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", "x", 200, true},
		{"HTTP/1.0 kept alive", "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n", "x", 200, false},
		{"no content", "HTTP/1.1 204 No Content\r\nX: y\r\n\r\n", "", 204, false},
		{"not modified, of a length", "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", "", 304, false},
		{"interim responses", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n", "x", 200, false},
		{"chunks", chunkedHead, "5\r\nhello\r\nA;ext=1\r\n0123456789\r\n0\r\n\r\n", 200, false},
		{"chunks and a trailer", chunkedHead, "1 \r\nx\r\n000\r\nExpires: never\r\n\r\n", 200, false},
		{"chunks and a length", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n0\r\n\r\n", 200, true},
		{"the same length twice", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", "x", 200, false},
	} {
		whole := c.head + c.body
		var r response
		n, done, err := r.feed([]byte(whole + next))
		if n != len(whole) || !done || err != nil || r.status != c.status || r.close != c.close {
			t.Errorf("%s: %d of %d bytes, done %v, %v; status %d, close %v", c.name, n, len(whole), done, err, r.status, r.close)
		}
		r.reset()
		for i := range len(whole) {
			if _, done, err := r.feed([]byte(whole[i : i+1])); err != nil || done != (i == len(whole)-1) {
				t.Fatalf("%s: byte by byte: done %v at byte %d of %d, %v", c.name, done, i+1, len(whole), err)
			}
		}
		if r.ended() {
			t.Errorf("%s: the end of the connection would end the response", c.name)
		}
	}
}

// TestResponseToTheEnd checks that a response without a length ends with the
// connection.
func TestResponseToTheEnd(t *testing.T) {
	for _, head := range []string{"HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\nContent-Length: 1\r\n\r\n"} {
		var r response
		text := head + "anything\r\n\r\n"
		if n, done, err := r.feed([]byte(text)); n != len(text) || done || err != nil || !r.ended() || !r.close {
			t.Errorf("%q: %d bytes, done %v, %v, ended %v", head, n, done, err, r.ended())
		}
	}
}

func TestResponseRefuses(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for _, text := range []string{
		"\r\n", "HTTP/2 200 OK\r\n", "HTTP/1.1 20 OK\r\n", "HTTP/1.1 2000 OK\r\n", "HTTP/1.1  200 OK\r\n", "HTTP/1.2 200 OK\r\n",
		"HTTP/1.1 600 X\r\n", "HTTP/1.1 099 X\r\n", "HTTP/1.1 101 Switching\r\n", "ICY 200 OK\r\n", "HTTP/1.1 -20 OK\r\n",
		ok + "no colon\r\n", ok + ": empty\r\n", ok + "Name : x\r\n", ok + "A: b\r\n folded\r\n",
		ok + "Content-Length: \r\n", ok + "Content-Length: -1\r\n", ok + "Content-Length: 1, 1\r\n", ok + "Content-Length: 1\r\nContent-Length: 2\r\n",
		ok + "Content-Length: 9999999999999999999\r\n",
		chunkedHead + "\r\n", chunkedHead + "x\r\n", chunkedHead + "-1\r\n", chunkedHead + "1\r\nxy\r\n", chunkedHead + "fffffffffffffffff\r\n",
		"HTTP/1.1 200 " + strings.Repeat("x", maxLine) + "\r\n", strings.Repeat("x", maxLine+1),
		ok + strings.Repeat("Name: "+strings.Repeat("x", 1000)+"\r\n", 70),
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 3000),
		chunkedHead + "0\r\n" + strings.Repeat("Name: "+strings.Repeat("x", 1000)+"\r\n", 70),
	} {
		var r response
		if _, _, err := r.feed([]byte(text)); err == nil {
			t.Errorf("%.60q was accepted", text)
		}
	}
}

func TestResponsesDoNotAllocate(t *testing.T) {
	var r response
	one := []byte("HTTP/1.1 200 OK\r\nServer: nginx\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello")
	play := func() {
		r.reset()
		_, _, _ = r.feed(one[:30]) // in the middle of a line
		if _, done, err := r.feed(one[30:]); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	play()
	if allocs := testing.AllocsPerRun(100, play); allocs != 0 {
		t.Errorf("%v allocations a response", allocs)
	}
}

// FuzzResponse checks that the result does not depend on how the bytes are split, and that the
// limits hold. If net/http also reads a complete response, both must agree.
func FuzzResponse(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP"), uint8(3))
	f.Add([]byte(chunkedHead+"5\r\nhello\r\n0\r\nA: b\r\n\r\n"), uint8(7))
	f.Add([]byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.0 204 x\r\n\r\n"), uint8(1))
	f.Add([]byte("HTTP/1.1 200 OK\r\n\r\nbody"), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, piece uint8) {
		var whole, parts response
		n, done, err := whole.feed(data)
		if n > len(data) || done && err != nil || !done && err == nil && n != len(data) {
			t.Fatalf("%d of %d bytes, done %v, %v", n, len(data), done, err)
		}
		if cap(whole.line) > 2*maxLine {
			t.Fatalf("the line buffer keeps %d bytes", cap(whole.line))
		}
		var read int
		var done2 bool
		var err2 error
		for read < len(data) && !done2 && err2 == nil {
			var took int
			took, done2, err2 = parts.feed(data[read:min(len(data), read+1+int(piece))])
			read += took
		}
		if done != done2 || (err == nil) != (err2 == nil) || err == nil && (n != read || whole.status != parts.status || whole.close != parts.close) {
			t.Fatalf("in one part: %d bytes, done %v, %v; in several parts: %d, %v, %v", n, done, err, read, done2, err2)
		}
		if !done || whole.status < 200 {
			return
		}
		if status, length, ok := readStandard(data); ok && (status != whole.status || length != n) {
			t.Fatalf("status %d in %d bytes; net/http reads %d in %d", whole.status, n, status, length)
		}
	})
}

// readStandard reads the first final response with net/http.
func readStandard(data []byte) (status, length int, ok bool) {
	all := bytes.NewReader(data)
	r := bufio.NewReader(all)
	for {
		got, err := nethttp.ReadResponse(r, nil)
		if err != nil {
			return 0, 0, false
		}
		if got.StatusCode < 200 {
			continue
		}
		if _, err := io.Copy(io.Discard, got.Body); err != nil {
			return 0, 0, false
		}
		return got.StatusCode, len(data) - all.Len() - r.Buffered(), true
	}
}
