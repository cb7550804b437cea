package gtp

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

// A conn carries datagrams: it is a UDP socket, or a queue in this process.
type conn interface {
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	Close() error
}

// Queues carry messages between the endpoints of one process, instead of sockets.
// Messages are encoded as on the wire. The zero value is ready to use.
type Queues struct {
	mu   sync.Mutex
	ends map[netip.AddrPort]*queue
	free sync.Pool // of *letter
}

// queueLength is the most messages that wait for an endpoint. Further messages are
// lost, as with UDP.
const queueLength = 1 << 12

// A letter is a message in a queue.
type letter struct {
	from   netip.AddrPort
	octets []byte
}

// A queue is the conn of one endpoint.
type queue struct {
	of      *Queues
	own     netip.AddrPort
	letters chan *letter
	closed  chan struct{}
	once    sync.Once
}

var errQueue = errors.New("gtp: the peer's queue is full or does not exist")

// listen returns a new queue for an address.
func (q *Queues) listen(own netip.AddrPort) (*queue, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ends == nil {
		q.ends = map[netip.AddrPort]*queue{}
		q.free.New = func() any { return new(letter) }
	}
	if q.ends[own] != nil {
		return nil, errors.New("gtp: two endpoints of one process have the address " + own.String())
	}
	end := &queue{of: q, own: own, letters: make(chan *letter, queueLength), closed: make(chan struct{})}
	q.ends[own] = end
	return end, nil
}

// WriteToUDPAddrPort copies a message into another endpoint's queue.
func (q *queue) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	q.of.mu.Lock()
	end := q.of.ends[to]
	q.of.mu.Unlock()
	if end == nil {
		return 0, errQueue
	}
	l := q.of.free.Get().(*letter)
	l.from, l.octets = q.own, append(l.octets[:0], b...)
	select {
	case end.letters <- l:
		return len(b), nil
	default:
		q.of.free.Put(l)
		return 0, errQueue
	}
}

// ReadFromUDPAddrPort waits for a message.
func (q *queue) ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error) {
	select {
	case l := <-q.letters:
		n, from = copy(b, l.octets), l.from
		q.of.free.Put(l)
		return n, from, nil
	case <-q.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

// Close closes the queue.
func (q *queue) Close() error {
	q.once.Do(func() {
		q.of.mu.Lock()
		delete(q.of.ends, q.own)
		q.of.mu.Unlock()
		close(q.closed)
	})
	return nil
}
