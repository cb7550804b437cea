package quick

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

func newRequest() *request {
	r := &request{}
	r.init(context.Background(), "192.0.2.1:1")
	return r
}

const plainPut = "PUT /kv/a?ttl=1h HTTP/1.1\r\nHost: store:8070\r\nContent-Length: 3\r\nContent-Type: text/plain\r\nIf-Match: \"7\"\r\n\r\nabc"

// TestPlain checks which requests are plain. All others go to net/http.
func TestPlain(t *testing.T) {
	head := func(line string, fields ...string) string {
		return line + "\r\n" + strings.Join(append(fields, "Host: a", "\r\n"), "\r\n")
	}
	for text, want := range map[string]bool{
		plainPut:                                                                   true,
		head("GET /kv/a HTTP/1.1"):                                                 true,
		head("DELETE /kv/a/b HTTP/1.1"):                                            true,
		plainPut + "GET":                                                           true,
		plainPut[:len(plainPut)-1]:                                                 false,
		head("GET /kv/a HTTP/1.0"):                                                 false,
		head("HEAD /kv/a HTTP/1.1"):                                                false,
		head("GET /kv/%61 HTTP/1.1"):                                               false,
		head("GET //kv/a HTTP/1.1"):                                                false,
		head("GET http://a/kv HTTP/1.1"):                                           false,
		head("GET /kv/a?x#y HTTP/1.1"):                                             false,
		head("GET /kv/\u00fc HTTP/1.1"):                                            false,
		"GET /kv/a HTTP/1.1\r\n\r\n":                                               false,
		"GET /kv/a HTTP/1.1\r\nHost:\r\n\r\n":                                      false,
		head("GET /kv/a HTTP/1.1", "Host: b"):                                      false,
		head("GET /kv/a HTTP/1.1", "Expect: 100-continue"):                         false,
		head("GET /kv/a HTTP/1.1", "Connection: close"):                            false,
		head("GET /kv/a HTTP/1.1", "Upgrade: h2c"):                                 false,
		head("PUT /kv/a HTTP/1.1", "Transfer-Encoding: chunked") + "0\r\n\r\n":     false,
		head("PUT /kv/a HTTP/1.1", "Content-Length: 1, 1") + "a":                   false,
		head("PUT /kv/a HTTP/1.1", "Content-Length: 1", "Content-Length: 1") + "a": false,
		head("GET /kv/a HTTP/1.1", "If-Match: \"1\"", "If-Match: \"2\""):           false,
		head("GET /kv/a HTTP/1.1", "If-Match: \"1\",\r\n \"2\""):                   false,
		"GET /kv/a HTTP/1.1\r\nHost: a\r\n \r\n\r\n":                               false,
		"GET /kv/a HTTP/1.1\r\nHost: a\r\n\t\r\n\r\n":                              false,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                         false,
		"":                                                                         false,
	} {
		if _, plain := newRequest().parse([]byte(text)); plain != want {
			t.Errorf("parse returned plain %t for %q", plain, text)
		}
	}
}

// TestParseKeepsNothing checks that a parsed request has no parts of the request before it.
func TestParseKeepsNothing(t *testing.T) {
	r := newRequest()
	if _, plain := r.parse([]byte(plainPut)); !plain {
		t.Fatal("the PUT request was not parsed as plain")
	}
	if _, plain := r.parse([]byte("GET /kv/b HTTP/1.1\r\nHost: b\r\n\r\n")); !plain {
		t.Fatal("the GET request was not parsed as plain")
	}
	if len(r.http.Header) > 0 || r.http.ContentLength != 0 || r.http.Body != http.NoBody || r.http.URL.RawQuery != "" || r.http.Host != "b" {
		t.Errorf("%+v", r.http)
	}
}

// FuzzParse checks that parse and net/http find the same request of the same length.
func FuzzParse(f *testing.F) {
	f.Add([]byte(plainPut))
	f.Add([]byte("\r\nGET /kv/a HTTP/1.1\nhost: [::1]\r\nauthorization:  Bearer x \r\naccept: */*\r\n\r\nGET"))
	f.Add([]byte("DELETE /kv/a+b;c?d=%zz&? HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\nContent-Length: 000\r\n\r\n"))
	f.Add([]byte("PUT /kv/a HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2\r\nUser-Agent: a\r\n b\r\n\r\nab"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newRequest()
		n, plain := r.parse(data)
		if !plain {
			return
		}
		rest := bytes.NewReader(data)
		from := bufio.NewReader(rest)
		skipEmptyLines(from)
		want, err := http.ReadRequest(from)
		if err != nil {
			t.Fatalf("net/http refused the request: %v", err)
		}
		wanted, err := io.ReadAll(want.Body)
		if err != nil {
			t.Fatalf("net/http refused the body: %v", err)
		}
		got, err := io.ReadAll(r.http.Body)
		if err != nil || !bytes.Equal(got, wanted) {
			t.Errorf("body %q, want %q: %v", got, wanted, err)
		}
		if read := len(data) - rest.Len() - from.Buffered(); n != read {
			t.Errorf("parsed %d octets, net/http %d", n, read)
		}
		want.Header.Del("Content-Length")
		g := r.http
		if g.Method != want.Method || !reflect.DeepEqual(g.URL, want.URL) || g.RequestURI != want.RequestURI || g.Host != want.Host ||
			g.ContentLength != want.ContentLength || !reflect.DeepEqual(g.Header, want.Header) {
			t.Errorf("got %+v, want %+v", g, want)
		}
	})
}

// skipEmptyLines skips the empty lines that a server must ignore before a request line (RFC 9112
// section 2.2). http.ReadRequest does not skip them.
func skipEmptyLines(r *bufio.Reader) {
	for {
		next, _ := r.Peek(2)
		switch {
		case len(next) > 0 && next[0] == '\n':
			_, _ = r.Discard(1)
		case string(next) == "\r\n":
			_, _ = r.Discard(2)
		default:
			return
		}
	}
}
