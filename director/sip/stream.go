package sip

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/datagram"
	"vitrine/wire/sip"
)

const (
	// largest bounds a message on a stream, in bytes: what a datagram can carry.
	largest = datagram.Largest
	// waiting is how many messages may wait for one connection; more are dropped,
	// for a worker waits for nobody.
	waiting = 256
	// dialTime bounds the making of a connection.
	dialTime = 5 * time.Second
	// writeTime is how long a peer may take nothing before it is given up.
	writeTime = 10 * time.Second
	// lastTime is how long it may take over all that was queued when its stream
	// ends: the next process waits for this one.
	lastTime = time.Second
)

// StreamCounts are of the TCP connections.
type StreamCounts struct {
	Open     int    // connections now
	Accepted uint64 // connections, since the start
	Dialed   uint64
	Refused  uint64 // connections that there was no room for
	Broken   uint64 // connections that ended otherwise than by their end or idle time
	Sent     uint64 // messages
	Unsent   uint64 // messages that could not be sent
}

// streams are the TCP listeners and connections.
type streams struct {
	server     *Server
	log        *slog.Logger
	now        func() time.Duration
	idle       time.Duration
	patience   time.Duration // with a peer that takes nothing
	most       int
	listeners  []*net.TCPListener
	indexes    []int // of the listeners
	buffers    sync.Pool
	goroutines sync.WaitGroup

	handling sync.Mutex // over what follows
	proxy    *Proxy
	sender   *datagram.Sender
	out      Outgoing

	mu     sync.Mutex // over what follows
	conns  map[netip.AddrPort]*stream
	ctx    context.Context // of run; nil: not running
	closed bool

	accepted, dialed, refused, broken, sent, unsent atomic.Uint64
}

// A stream is a connection, or one in the making.
type stream struct {
	peer     netip.AddrPort
	listener int // that it belongs to
	queue    chan *[]byte
	done     chan struct{} // closed: it has ended

	mu   sync.Mutex   // over the end, and the time to write until then
	conn *net.TCPConn // nil until it is dialed
}

// listenStreams opens the TCP listeners. Where there is none, connections can
// still be made when a UDP listener's messages ask for it; there is no place to
// name in Via then, so that none are.
func (s *Server) listenStreams(c *Config) error {
	st := &streams{
		server: s, log: c.Log, now: c.Now, idle: c.Idle, patience: writeTime, most: c.Connections, conns: map[netip.AddrPort]*stream{},
		buffers: sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }},
	}
	if st.idle <= 0 {
		st.idle = 10 * time.Minute
	}
	if st.most <= 0 {
		st.most = 10_000
	}
	for i, l := range c.Listeners {
		if !l.Stream {
			continue
		}
		s.streams = st
		listener, err := listenTCP(l.Address, c.Inherited)
		if err != nil {
			return err
		}
		st.listeners = append(st.listeners, listener)
		st.indexes = append(st.indexes, i)
		if s.core.places[i], err = newPlace(l, listener.Addr().(*net.TCPAddr).AddrPort()); err != nil {
			return err
		}
	}
	if s.streams == nil {
		return nil
	}
	st.proxy = s.newProxy(c)
	if s.group != nil {
		st.sender = s.group.NewSender()
	}
	return nil
}

// listenTCP takes the inherited listener of an address over, or opens one.
func listenTCP(address netip.AddrPort, inherited []*os.File) (*net.TCPListener, error) {
	for _, file := range inherited {
		l, err := net.FileListener(file) // duplicates; fails for what is no listener
		if err != nil {
			continue
		}
		if tcp, ok := l.(*net.TCPListener); ok && tcp.Addr().(*net.TCPAddr).AddrPort() == address {
			return tcp, nil
		}
		if err := l.Close(); err != nil {
			return nil, fmt.Errorf("close inherited listener %v: %w", l.Addr(), err)
		}
	}
	network := "tcp6"
	if address.Addr().Is4() {
		network = "tcp4"
	}
	l, err := net.ListenTCP(network, net.TCPAddrFromAddrPort(address))
	if err != nil {
		return nil, fmt.Errorf("listen for SIP over TCP: %w", err)
	}
	return l, nil
}

func (st *streams) files() (files []*os.File, err error) {
	for _, l := range st.listeners {
		f, err := l.File()
		if err != nil {
			return files, fmt.Errorf("duplicate the listener of %v: %w", l.Addr(), err)
		}
		files = append(files, f)
	}
	return files, nil
}

// begin lets connections be made, until ctx is done.
func (st *streams) begin(ctx context.Context) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ctx = ctx
}

// run accepts connections until ctx is done, and ends them all then. What waits
// in the listeners stays there for who inherits them.
func (st *streams) run(ctx context.Context) error {
	var accepting sync.WaitGroup
	for i, l := range st.listeners {
		accepting.Go(func() { st.accept(ctx, l, st.indexes[i]) })
	}
	<-ctx.Done()
	for _, l := range st.listeners {
		if err := l.SetDeadline(time.Unix(1, 0)); err != nil {
			st.log.Warn("SIP over TCP: stop to accept", "error", err)
		}
	}
	accepting.Wait() // so that who connects again comes to who inherits them
	st.mu.Lock()
	st.closed = true
	for _, c := range st.conns {
		c.end()
	}
	st.mu.Unlock()
	st.goroutines.Wait()
	return context.Cause(ctx)
}

func (st *streams) close() error {
	var err error
	for _, l := range st.listeners {
		err = errors.Join(err, l.Close())
	}
	if err != nil {
		return fmt.Errorf("close SIP listeners: %w", err)
	}
	return nil
}

// accept takes connections.
func (st *streams) accept(ctx context.Context, l *net.TCPListener, listener int) {
	for ctx.Err() == nil {
		conn, err := l.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			st.log.Warn("SIP over TCP: accept", "listener", l.Addr(), "error", err)
			select { // out of descriptors, most likely: wait for some to be closed
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
		if _, fresh := st.enter(peer, listener, conn); !fresh {
			st.refused.Add(1)
			_ = conn.Close()
			continue
		}
		st.accepted.Add(1)
	}
}

// enter makes the stream of a peer, which is dialed when there is no connection
// yet, or gives the one there is; nil: there may be no more of them.
func (st *streams) enter(peer netip.AddrPort, listener int, conn *net.TCPConn) (c *stream, fresh bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.enterLocked(peer, listener, conn)
}

func (st *streams) enterLocked(peer netip.AddrPort, listener int, conn *net.TCPConn) (c *stream, fresh bool) {
	if c := st.conns[peer]; c != nil {
		return c, false
	}
	if st.closed || st.ctx == nil || len(st.conns) >= st.most {
		return nil, false
	}
	c = &stream{peer: peer, listener: listener, conn: conn, queue: make(chan *[]byte, waiting), done: make(chan struct{})}
	st.conns[peer] = c
	if conn == nil {
		st.goroutines.Go(func() { st.dial(c) })
	} else {
		st.goroutines.Go(func() { st.serve(c) })
	}
	return c, true
}

// leave takes a stream out and counts what it leaves unsent.
func (st *streams) leave(c *stream) {
	c.end()
	st.mu.Lock()
	if st.conns[c.peer] == c {
		delete(st.conns, c.peer)
	}
	st.mu.Unlock()
	for {
		select {
		case b := <-c.queue:
			st.unsent.Add(1)
			st.buffers.Put(b)
		default:
			return
		}
	}
}

// end makes both goroutines of a stream stop, the writing one within lastTime.
func (c *stream) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended() {
		return
	}
	close(c.done)
	if c.conn != nil {
		_ = c.conn.SetWriteDeadline(time.Now().Add(lastTime)) // fails if it is closed
	}
}

// ended says whether it has; c.mu is held.
func (c *stream) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// connect gives a stream its connection; false: it has ended.
func (c *stream) connect(conn *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return !c.ended()
}

// allow gives the next write its time; after the end there is only what end gave.
func (c *stream) allow(patience time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended() {
		return nil
	}
	return c.conn.SetWriteDeadline(time.Now().Add(patience))
}

// send copies a message to its connection's queue: that of its flow while there
// is one, else that of its address, which is dialed when there is none. It does
// not wait.
func (st *streams) send(out *Outgoing) {
	b := st.buffers.Get().(*[]byte)
	*b = (*b)[:0]
	for _, part := range out.Parts {
		*b = append(*b, part...)
	}
	if !st.push(out, b) {
		st.unsent.Add(1)
		st.buffers.Put(b)
	}
}

// push queues a message; false: there is no room for it, or for its connection.
// A stream that has been taken out gets nothing more, so that leave counts all.
func (st *streams) push(out *Outgoing, b *[]byte) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	c := st.conns[out.Flow]
	if c == nil {
		if c, _ = st.enterLocked(out.To, out.Listener, nil); c == nil {
			return false
		}
	}
	select {
	case c.queue <- b:
		return true
	default:
		return false
	}
}

// dial makes the connection of a stream and serves it.
func (st *streams) dial(c *stream) {
	ctx, cancel := context.WithTimeout(st.ctx, dialTime)
	defer cancel()
	dialer := net.Dialer{LocalAddr: localOf(st.server.core.places[c.listener].Address)}
	conn, err := dialer.DialContext(ctx, "tcp", c.peer.String())
	if err != nil {
		st.log.Debug("SIP over TCP: connect", "peer", c.peer, "error", err)
		st.broken.Add(1)
		st.leave(c)
		return
	}
	st.dialed.Add(1)
	if !c.connect(conn.(*net.TCPConn)) {
		_ = conn.Close() // nothing was sent on it
		st.leave(c)
		return
	}
	st.serve(c)
}

// localOf is the address to connect from: the listener's, so that the peer sees
// the host that Via names.
func localOf(a netip.AddrPort) net.Addr {
	if a.Addr().IsUnspecified() {
		return nil
	}
	return &net.TCPAddr{IP: a.Addr().AsSlice()}
}

// serve reads and writes a connection to its end.
func (st *streams) serve(c *stream) {
	writing := make(chan struct{})
	go func() {
		defer close(writing)
		st.write(c)
	}()
	err := st.read(c)
	c.end()
	<-writing
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, net.ErrClosed) {
		st.broken.Add(1)
		st.log.Debug("SIP over TCP: connection ended", "peer", c.peer, "error", err)
	}
	_ = c.conn.Close() // it has ended either way
	st.leave(c)
}

// write sends what is queued until the stream ends, and ends the reading then.
func (st *streams) write(c *stream) {
	defer func() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) }()
	defer c.end()
	for {
		select {
		case b := <-c.queue:
			if !st.writeOne(c, b) {
				return
			}
			continue
		case <-c.done:
		}
		for { // what was queued before the end still goes out
			select {
			case b := <-c.queue:
				if !st.writeOne(c, b) {
					return
				}
			default:
				return
			}
		}
	}
}

func (st *streams) writeOne(c *stream, b *[]byte) bool {
	defer st.buffers.Put(b)
	err := c.allow(st.patience)
	if err == nil {
		_, err = c.conn.Write(*b)
	}
	if err != nil {
		st.unsent.Add(1)
		return false
	}
	st.sent.Add(1)
	return true
}

// read takes messages off a connection (RFC 3261 section 18.3) until it ends,
// is silent for too long, or sends what is no SIP.
func (st *streams) read(c *stream) error {
	buffer := make([]byte, 0, 8192)
	for {
		if err := c.conn.SetReadDeadline(time.Now().Add(st.idle)); err != nil {
			return err
		}
		select {
		case <-c.done:
			return nil
		default:
		}
		if len(buffer) == cap(buffer) {
			buffer = append(make([]byte, 0, 2*cap(buffer)), buffer...)
		}
		n, err := c.conn.Read(buffer[len(buffer):cap(buffer)])
		if err != nil {
			return err
		}
		if buffer, err = st.take(c, buffer[:len(buffer)+n]); err != nil {
			return err
		}
	}
}

// take handles the whole messages in the buffer and gives what is left.
func (st *streams) take(c *stream, buffer []byte) ([]byte, error) {
	rest := buffer
	for len(rest) > 0 {
		if len(rest) >= 4 && string(rest[:4]) == "\r\n\r\n" { // a ping (RFC 5626 section 3.5.1)
			rest = rest[4:]
			st.send(&Outgoing{To: c.peer, Flow: c.peer, Listener: c.listener, Parts: [][]byte{pong}})
			continue
		}
		n, err := sip.Frame(rest, largest)
		if err != nil {
			// The stream has lost its step: answer this one, and end.
			st.handle(c, rest[:len(rest):len(rest)])
			return nil, fmt.Errorf("%w; it ends", err)
		}
		if n == 0 {
			break
		}
		st.handle(c, rest[:n:n])
		rest = rest[n:]
	}
	return buffer[:copy(buffer, rest)], nil
}

var pong = []byte("\r\n")

// handle does one message.
func (st *streams) handle(c *stream, data []byte) {
	st.handling.Lock()
	defer st.handling.Unlock()
	in := &datagram.Datagram{Data: data, From: c.peer, Listener: c.listener, At: st.now()}
	room := st.buffers.Get().(*[]byte)
	defer st.buffers.Put(room)
	if !st.proxy.Handle(in, (*room)[:0], &st.out) {
		return
	}
	if st.server.core.places[st.out.Listener].Stream {
		st.send(&st.out)
		return
	}
	st.sender.Send(st.server.handlers[0].group[st.out.Listener], st.out.To, st.out.Parts...)
	st.sender.Flush()
}

func (st *streams) counts() StreamCounts {
	st.mu.Lock()
	open := len(st.conns)
	st.mu.Unlock()
	return StreamCounts{
		Open: open, Accepted: st.accepted.Load(), Dialed: st.dialed.Load(), Refused: st.refused.Load(),
		Broken: st.broken.Load(), Sent: st.sent.Load(), Unsent: st.unsent.Load(),
	}
}
