package quick

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"

	"vitrine/wire/http1"
)

// request parses requests into one http.Request, which it reuses.
type request struct {
	http   *http.Request
	base   *http.Request // the initial state of http for each request
	url    url.URL
	host   string
	header http.Header
	values [len(names)][]string // by name: the last value, because the next request often has the same
	body   body
}

// names are the header fields of plain requests. None of them changes how a connection
// works. Requests with other fields go to net/http.
var names = [...]string{
	"Host", "Content-Length", "Content-Type", "User-Agent", "Accept", "Accept-Encoding",
	"Authorization", "If-Match", "If-None-Match",
}

const (
	hostName = iota // index in names
	lengthName
)

// body is the body of a request.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

func (r *request) init(ctx context.Context, remote string) {
	r.header = http.Header{}
	r.base = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: remote}).WithContext(ctx)
	r.http = new(http.Request)
}

// parse parses the request at the start of data, and returns its length. plain reports
// whether the request is plain and complete. Then net/http would parse the same request.
func (r *request) parse(data []byte) (n int, plain bool) {
	var d http1.Decoder
	head, event, err := d.Next(data)
	m := &d.Message
	if err != nil || event != http1.Head || !m.Request || m.Minor != 1 || m.HasTransfer || int64(len(data)-head) < m.Length {
		return 0, false
	}
	if hasFolded(data[:head]) {
		return 0, false
	}
	*r.http = *r.base
	switch string(m.Method) {
	case http.MethodGet:
		r.http.Method = http.MethodGet
	case http.MethodPut:
		r.http.Method = http.MethodPut
	case http.MethodDelete:
		r.http.Method = http.MethodDelete
	default:
		return 0, false
	}
	if !r.target(m.Target) || !r.fields(m) {
		return 0, false
	}
	r.http.Header, r.http.Host, r.http.ContentLength = r.header, r.host, m.Length
	n = head + int(m.Length)
	r.http.Body = http.NoBody
	if m.Length > 0 {
		r.body.Reset(data[head:n])
		r.http.Body = &r.body
	}
	return n, true
}

// target parses a path and an optional query. It rejects characters that need escapes.
func (r *request) target(t []byte) bool {
	if t[0] != '/' || len(t) > 1 && t[1] == '/' {
		return false
	}
	uri := string(t)
	path, query, has := strings.Cut(uri, "?")
	if has && query == "" || strings.ContainsRune(query, '#') {
		return false
	}
	for i := range len(path) {
		if !inPath[path[i]] {
			return false
		}
	}
	r.url = url.URL{Path: path, RawQuery: query}
	r.http.URL, r.http.RequestURI = &r.url, uri
	return true
}

// fields parses the header fields. It rejects a repeated field.
func (r *request) fields(m *http1.Message) bool {
	clear(r.header)
	var seen [len(names)]bool
	for f := m.Fields(); f.Next(); {
		i := nameOf(f.Name)
		if i < 0 || seen[i] || !isText(f.Value) {
			return false
		}
		seen[i] = true
		switch i {
		case hostName:
			if !r.setHost(f.Value) {
				return false
			}
			continue
		case lengthName:
			if bytes.IndexByte(f.Value, ',') >= 0 {
				return false
			}
			continue // it is in Request.ContentLength
		}
		if v := r.values[i]; v == nil || v[0] != string(f.Value) {
			r.values[i] = []string{string(f.Value)}
		}
		r.header[names[i]] = r.values[i]
	}
	return seen[hostName]
}

func (r *request) setHost(h []byte) bool {
	if string(h) == r.host {
		return len(h) > 0
	}
	for _, c := range h {
		if !inHost[c] {
			return false
		}
	}
	r.host = string(h)
	return len(h) > 0
}

// nameOf returns the index of a name in names, or -1.
func nameOf(name []byte) int {
	for i, known := range names {
		if len(name) == len(known) && strings.EqualFold(string(name), known) {
			return i
		}
	}
	return -1
}

// hasFolded reports whether a header field continues on another line (RFC 9112 section 5.2).
// net/http keeps white space at such a line end that http1 trims.
func hasFolded(head []byte) bool {
	return bytes.Contains(head, []byte("\n ")) || bytes.Contains(head, []byte("\n\t"))
}

// isText reports whether a field's value is visible ASCII, with spaces.
func isText(v []byte) bool {
	for _, c := range v {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// inPath are the octets of a path that package url neither escapes nor unescapes.
var inPath, inHost = set("-_.~/$&+,:;=@"), set("-._:[]")

// set returns the letters, the digits, and others.
func set(others string) (in [256]bool) {
	for c := range in {
		in[c] = c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte(others, byte(c)) >= 0
	}
	return in
}
