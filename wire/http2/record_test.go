package http2_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vitrine/wire/wiretest"
)

// A recording has the octets of a connection in the order in which its client
// wrote and read them.
type recording struct {
	mu     sync.Mutex
	pieces []wiretest.Segment
}

func (r *recording) add(fromServer bool, octets []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces = append(r.pieces, wiretest.Segment{FromServer: fromServer, Octets: bytes.Clone(octets)})
}

// direction returns all octets of one direction.
func (r *recording) direction(fromServer bool) (octets []byte) {
	r.mu.Lock() // the client may still read the server's farewell
	defer r.mu.Unlock()
	for _, p := range r.pieces {
		if p.FromServer == fromServer {
			octets = append(octets, p.Octets...)
		}
	}
	return octets
}

// frames returns the frames of the recording, each at the place of its last octet.
// The preface of the client precedes its first one.
func (r *recording) frames() (all []wiretest.Segment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rest := map[bool][]byte{}
	isFirst := true
	for _, p := range r.pieces {
		rest[p.FromServer] = append(rest[p.FromServer], p.Octets...)
		for {
			b, start := rest[p.FromServer], 0
			if !p.FromServer && isFirst {
				start = len(preface)
			}
			if len(b) < start+9 {
				break
			}
			n := start + 9 + int(b[start])<<16 + int(b[start+1])<<8 + int(b[start+2])
			if len(b) < n {
				break
			}
			isFirst = isFirst && p.FromServer
			all = append(all, wiretest.Segment{FromServer: p.FromServer, Octets: b[:n:n]})
			rest[p.FromServer] = b[n:]
		}
	}
	return all
}

// A recorder is a connection that is recorded.
type recorder struct {
	net.Conn
	to       *recording
	isServer bool
}

func (c *recorder) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.to.add(!c.isServer, b[:n])
	return n, err
}

func (c *recorder) Write(b []byte) (int, error) {
	c.to.add(c.isServer, b)
	return c.Conn.Write(b)
}

// An exchange is a request and its response, as client and server know them.
type exchange struct {
	method, path, authority string
	sent, received          int // octets of the bodies
	status                  int
	interim, trailers       bool
}

func exchanges() (all []exchange) {
	for i := range 120 {
		x := exchange{method: []string{"GET", "POST", "PUT", "HEAD", "DELETE"}[i%5], path: fmt.Sprintf("/items/%d?of=%d", i%40, i), status: []int{200, 404, 201, 503, 302}[i*7%5]}
		x.authority = fmt.Sprintf("host-%d", i%3)
		if i%5 == 1 || i%5 == 2 {
			x.sent = i * i * 5
		}
		if i%5 != 3 {
			x.received = i * 300
		}
		x.interim, x.trailers = i%6 == 0, i%4 == 0 && i%5 != 3
		all = append(all, x)
	}
	return all
}

// serve answers as the path of the exchange says, with a field of many values.
func serve(all []exchange) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i int
		if _, err := fmt.Sscanf(r.URL.Query().Get("of"), "%d", &i); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		x := all[i]
		if n, err := io.Copy(io.Discard, r.Body); err != nil || int(n) != x.sent {
			http.Error(w, fmt.Sprint(n, err), http.StatusBadRequest)
			return
		}
		if x.interim {
			w.Header().Set("Link", "</style.css>")
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Set("X-Item", strings.Repeat(fmt.Sprint(i%7), 20))
		w.Header().Set("X-Long", strings.Repeat("v", i*(i%3)))
		if x.trailers {
			w.Header().Set("Trailer", "Sum")
		}
		w.WriteHeader(x.status)
		_, _ = w.Write(bytes.Repeat([]byte{'r'}, x.received))
		if x.trailers {
			w.Header().Set("Sum", fmt.Sprint(i))
		}
	})
}

func plain() *http.Protocols {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &p
}

// record makes the exchanges on one connection of net/http, eight at once.
func record(t testing.TB, all []exchange) *recording {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: serve(all), Protocols: plain()}
	served := make(chan error)
	go func() { served <- server.Serve(l) }()
	r := &recording{}
	var dials atomic.Int32
	transport := &http.Transport{Protocols: plain(), MaxConnsPerHost: 1, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if n := dials.Add(1); n > 1 {
			return nil, fmt.Errorf("%d connections", n)
		}
		c, err := (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
		return &recorder{Conn: c, to: r}, err
	}}
	var clients sync.WaitGroup
	next := make(chan exchange)
	for range 8 {
		clients.Go(func() {
			for x := range next {
				exchangeOne(t, transport, x)
			}
		})
	}
	for _, x := range all {
		next <- x
	}
	close(next)
	clients.Wait()
	transport.CloseIdleConnections()
	if err := server.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-served
	return r
}

func exchangeOne(t testing.TB, transport *http.Transport, x exchange) {
	request, err := http.NewRequestWithContext(t.Context(), x.method, "http://server"+x.path, bytes.NewReader(bytes.Repeat([]byte{'s'}, x.sent)))
	if err != nil {
		t.Error(err)
		return
	}
	request.Host = x.authority
	request.Header.Set("Cookie", "session="+strings.Repeat(x.authority, 5))
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Error(err)
		return
	}
	defer response.Body.Close()
	if n, err := io.Copy(io.Discard, response.Body); err != nil || int(n) != x.received || response.StatusCode != x.status {
		t.Errorf("%+v: %d octets, %s, %v", x, n, response.Status, err)
	}
}
