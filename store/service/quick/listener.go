// Package quick answers small HTTP/1.1 requests without net/http, which costs more than all
// other work on a small request. A Listener reads the requests of a connection. It answers
// a request itself if the request is plain, arrives whole in one read, and is quick by the
// Config. At the first other request it passes the connection, with the octets of that
// request, to the caller of Accept, usually an http.Server. So net/http handles all unusual
// requests: HTTP/2, large or slow bodies, rare header fields and malformed requests.
package quick

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// Config of a Listener.
type Config struct {
	// Handler answers quick requests. It must not keep a request or its parts, besides strings.
	Handler http.Handler
	// Quick reports whether a request has a short answer soon. The request's context does not end when
	// the client leaves, and there is no http.Flusher.
	Quick func(*http.Request) bool
	// Context is as http.Server.ConnContext; nil: nothing is added.
	Context func(context.Context, net.Conn) context.Context
	Logger  *slog.Logger

	First time.Duration // how long a new connection may send nothing
	Idle  time.Duration // how long a connection may send nothing after a request
	Write time.Duration // how long a client may read nothing of its answer
}

// A Listener is a net.Listener that answers quick requests itself.
type Listener struct {
	net.Listener
	config Config
	others chan other
	closed chan struct{}
	once   sync.Once
	served sync.WaitGroup

	mu      sync.Mutex
	closing bool
	conns   map[*conn]struct{} // connections that were not passed on
}

// other is a connection for Accept, or an error of the listener.
type other struct {
	conn net.Conn
	err  error
}

// Listen accepts from l until it is closed.
func Listen(l net.Listener, c Config) *Listener {
	q := &Listener{Listener: l, config: c, others: make(chan other), closed: make(chan struct{}), conns: map[*conn]struct{}{}}
	q.served.Go(q.run)
	return q
}

func (l *Listener) run() {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			if !l.pass(other{err: err}) {
				return
			}
			continue
		}
		s := newConn(l, c)
		if !l.add(s) {
			_ = c.Close() // nothing was read or written
			continue
		}
		l.served.Go(s.serve)
	}
}

// pass gives a connection to Accept. It reports whether the listener was still open.
func (l *Listener) pass(o other) bool {
	select {
	case l.others <- o:
		return true
	case <-l.closed:
		return false
	}
}

// Accept implements net.Listener: it returns a connection that has a request that is not quick. Its
// type is *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case o := <-l.others:
		return o.conn, o.err
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// Close implements net.Listener. It closes idle connections; running requests are answered.
func (l *Listener) Close() (err error) {
	l.once.Do(func() {
		close(l.closed)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closing = true
		for c := range l.conns {
			_ = c.SetReadDeadline(past) // fails only on a closed connection
		}
		err = l.Listener.Close()
	})
	return err
}

// Shutdown closes the listener, waits until the running requests are answered or ctx ends, and
// closes the connections.
func (l *Listener) Shutdown(ctx context.Context) error {
	err := l.Close()
	done := make(chan struct{})
	go func() { l.served.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close() // the client does not read
	}
	return errors.Join(err, ctx.Err())
}

func (l *Listener) add(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

// remove forgets a connection. It reports whether the listener is open.
func (l *Listener) remove(c *conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	return !l.closing
}

// bufferBytes bounds a quick request, with its head.
const bufferBytes = 4 << 10

// rearm is the maximum age of deadlines when a request comes. To set them for each request
// would cost more.
const rearm = time.Second

// conn is a connection whose requests have been quick so far.
type conn struct {
	net.Conn
	of     *Listener
	buffer []byte
	armed  time.Time // when the deadlines were set
	in     request
	out    answer
}

func newConn(l *Listener, c net.Conn) *conn {
	ctx := context.Background()
	if l.config.Context != nil {
		ctx = l.config.Context(ctx, c)
	}
	s := &conn{Conn: c, of: l, buffer: make([]byte, bufferBytes)}
	s.in.init(ctx, c.RemoteAddr().String())
	s.out.init(c)
	return s
}

// serve answers requests until the connection ends or is passed on.
func (c *conn) serve() {
	defer func() {
		if p := recover(); p != nil {
			c.of.config.Logger.Error("a request's handler panicked", "panic", p, "stack", string(debug.Stack()))
			c.end()
		}
	}()
	_ = c.SetReadDeadline(time.Now().Add(c.of.config.First)) // the next read reports a closed connection
	for !c.of.isClosing() {
		n, err := c.Read(c.buffer)
		if n > 0 {
			now := time.Now()
			c.arm(now)
			rest, answered := c.answerAll(c.buffer[:n], now)
			if answered && len(rest) > 0 {
				c.passOn(rest)
				return
			}
			if !answered {
				break
			}
		}
		if err != nil {
			break
		}
	}
	c.end()
}

func (l *Listener) isClosing() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

func (c *conn) end() {
	c.of.remove(c)
	_ = c.Close() // all answers were written, or cannot be
}

func (c *conn) arm(now time.Time) {
	if now.Sub(c.armed) < rearm {
		return
	}
	c.armed = now
	_ = c.SetWriteDeadline(now.Add(c.of.config.Write)) // the next write reports a closed connection
	_ = c.SetReadDeadline(now.Add(c.of.config.Idle))
}

// answerAll answers the requests in data. It returns the rest of data from the first
// request that is not quick, and whether all answers were written.
func (c *conn) answerAll(data []byte, now time.Time) (rest []byte, ok bool) {
	for len(data) > 0 {
		n, plain := c.in.parse(data)
		if !plain || !c.of.config.Quick(c.in.http) {
			return data, true
		}
		c.out.begin(now)
		c.of.config.Handler.ServeHTTP(&c.out, c.in.http)
		if c.out.finish() != nil {
			return nil, false
		}
		data = data[n:]
	}
	return nil, true
}

// passOn passes the connection to Accept, with the octets that are not answered.
func (c *conn) passOn(rest []byte) {
	if c.of.remove(c) && c.SetDeadline(time.Time{}) == nil && c.of.pass(other{conn: &Conn{Conn: c.Conn, rest: rest}}) {
		return
	}
	_ = c.Close() // nothing of the request was done
}

// Conn is a connection that was passed on.
type Conn struct {
	net.Conn
	rest []byte // octets that were read but not answered
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.rest = nil // frees the buffer
	}
	return n, nil
}

// NetConn returns the connection that the inner listener accepted.
func (c *Conn) NetConn() net.Conn { return c.Conn }
