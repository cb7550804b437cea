package service

import (
	"net"
	"sync"
)

// limited accepts a connection only while there is a slot: others wait in the
// kernel's queue, which refuses beyond its length.
type limited struct {
	net.Listener
	slots chan struct{}
	once  sync.Once
	done  chan struct{}
	mu    sync.Mutex
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
	return &counted{Conn: c, slots: l.slots}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.ended()) })
	return l.Listener.Close()
}

// counted gives its slot back once.
type counted struct {
	net.Conn
	slots chan struct{}
	once  sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() { <-c.slots })
	return c.Conn.Close()
}
