package service

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/internal/source"
)

// limited accepts a connection only while there is a slot. Others wait in the kernel's queue, which
// is bounded. limited closes a connection whose source has reached its limit.
type limited struct {
	net.Listener
	slots   chan struct{}
	sources *sources
	once    sync.Once
	done    chan struct{}
	mu      sync.Mutex
}

func (l *limited) ended() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
	}
	return l.done
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.ended():
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		from := sourceOf(c.RemoteAddr())
		if l.sources.take(from) {
			return &counted{Conn: c, free: func() { l.sources.free(from); <-l.slots }}, nil
		}
		_ = c.Close() // nothing was read or written
		<-l.slots
	}
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.ended()) })
	return l.Listener.Close()
}

// counted releases its slot once, when it is closed.
type counted struct {
	net.Conn
	free func()
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(c.free)
	return c.Conn.Close()
}

// sources counts the connections from each source.
type sources struct {
	most    int
	refused prometheus.Counter
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

func (s *sources) free(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count[from]--; s.count[from] == 0 {
		delete(s.count, from)
	}
}
