package service

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/source"
)

// limited accepts a connection only while there is a free slot. Other connections wait in
// the kernel's backlog, which is bounded. limited closes a connection whose source has
// reached its limit.
type limited struct {
	net.Listener
	slots   chan struct{}
	sources *sources
	once    sync.Once
	done    chan struct{} // closed by Close
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		if !l.takeSlot() {
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		from := sourceOf(c.RemoteAddr())
		if l.sources.take(from) {
			return &counted{Conn: c, from: from, free: func(used bool) { l.sources.free(from, used); <-l.slots }}, nil
		}
		_ = c.Close() // nothing was read or written
		<-l.slots
	}
}

// takeSlot waits for a free slot, and logs that it has to wait. It returns false if the listener is closed
// meanwhile.
func (l *limited) takeSlot() bool {
	select {
	case l.slots <- struct{}{}:
		return true
	default:
	}
	l.sources.log.Warn("as many connections are open as --max-connections allows: further ones wait", "connections", cap(l.slots))
	select {
	case l.slots <- struct{}{}:
		return true
	case <-l.done:
		return false
	}
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

// counted releases its slot once, when it is closed.
type counted struct {
	net.Conn
	from netip.Addr
	used atomic.Bool // had a complete request
	free func(used bool)
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { c.free(c.used.Load()) })
	return c.Conn.Close()
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// withConnection is for http.Server.ConnContext.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if outer, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn, *quick.Conn
		c = outer.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// connectionOf returns the connection of a request; nil if it did not come through a listener.
func connectionOf(r *http.Request) *counted {
	c, _ := r.Context().Value(connectionKey{}).(*counted)
	return c
}

// noteRequest records that the connection has had a complete request.
func noteRequest(r *http.Request) {
	if c := connectionOf(r); c != nil && !c.used.Load() {
		c.used.Store(true)
	}
}

// clientOf returns the source of a request.
func clientOf(r *http.Request) netip.Addr {
	if c := connectionOf(r); c != nil {
		return c.from
	}
	return netip.Addr{}
}

// sources counts the connections from each source.
type sources struct {
	most    int
	refused prometheus.Counter
	unused  prometheus.Counter // connections that ended without a request
	log     *slog.Logger

	mu    sync.Mutex
	count map[netip.Addr]int
}

// sourceOf returns the source of a connection.
func sourceOf(a net.Addr) netip.Addr {
	at, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return source.Of(at.AddrPort().Addr())
}

func (s *sources) take(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[from] >= s.most {
		s.refused.Inc()
		s.log.Warn("connection refused: its source has as many as --max-connections-per-source allows", "from", from, "connections", s.most)
		return false
	}
	s.count[from]++
	return true
}

// total returns the number of connections from all sources.
func (s *sources) total() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.count {
		n += of
	}
	return n
}

func (s *sources) free(from netip.Addr, used bool) {
	if !used {
		s.unused.Inc()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[from]--; s.count[from] == 0 {
		delete(s.count, from)
	}
}
