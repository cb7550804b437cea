package sip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"vitrine/director/datagram"
	"vitrine/director/inherit"
	"vitrine/director/meter"
)

// queueLength is how many messages may wait for one connection. Further messages are dropped,
// because a worker never waits.
const queueLength = 256

// redialRate is the maximum number of connections made for responses per second, and the
// burst.
const redialRate = 100

// StreamCounters count TCP connections and the messages on them.
type StreamCounters struct {
	Open     int    // connections now
	Accepted uint64 // connections, since the start
	Dialed   uint64
	Refused  uint64 // connections that a limit refused
	Crowded  uint64 // of those, the ones that the limit of their source refused
	Repeated uint64 // connections refused because the last one from their address and port had not ended
	Broken   uint64 // connections that failed: neither closed by the peer nor idle
	Sent     uint64 // messages
	Unsent   uint64 // messages that could not be sent
}

// streams are the TCP listeners and connections.
type streams struct {
	server         *Server
	log            *slog.Logger
	now            func() time.Duration
	idle           time.Duration
	writeTimeout   time.Duration
	first          time.Duration // how long a client may take for its first message, and to complete any later one
	maxConnections int
	maxOthers      int   // connections that are not an instance's
	maxPerSource   int   // connections from one source that is not an instance
	room           int64 // bytes in all queues
	listeners      []*net.TCPListener
	indexes        []int // of the listeners
	buffers        sync.Pool
	goroutines     sync.WaitGroup

	workers []*streamWorker

	mu     sync.Mutex // guards the fields down to redials
	opened uint64     // connections, since the start
	conns  map[streamKey]*stream
	others map[netip.Addr]int // connections that are not an instance's, by source
	count  int                // sum of others
	ctx    context.Context    // of run; nil: not running
	closed bool
	// redials limits the connections that are made for responses whose own connection is
	// closed.
	redials *rate.Limiter

	queued atomic.Int64 // bytes

	accepted, dialed, full, crowded, repeated, broken, sent, unsent atomic.Uint64
}

// A streamWorker handles the messages of some connections, one at a time.
type streamWorker struct {
	mu     sync.Mutex // guards the fields below
	proxy  *Proxy
	sender *datagram.Sender // nil: no UDP listener
	in     datagram.Datagram
	room   []byte
	out    Outgoing
}

// A streamKey identifies a stream. A peer may connect to several listeners from one port.
type streamKey struct {
	peer     netip.AddrPort
	listener int
}

// listenStreams opens the TCP listeners. Without any, the server makes no TCP connections
// either, because it has no address to name in Via.
func (s *Server) listenStreams(c *Config) error {
	st := &streams{
		server: s, log: c.Log, now: c.Now, idle: c.Idle, writeTimeout: writeTime, maxConnections: c.Connections, conns: map[streamKey]*stream{},
		redials: rate.NewLimiter(redialRate, redialRate),
		buffers: sync.Pool{New: func() any { b := make([]byte, 0, 2048); return &b }},
	}
	for i, l := range c.Listeners {
		if !l.Stream {
			continue
		}
		s.streams = st
		listener, err := inherit.ListenTCP(l.Address, c.Inherited)
		if err != nil {
			return fmt.Errorf("listen for SIP over TCP: %w", err)
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
	st.share(c)
	memory := &sharedSteering{steering: s.newSteering(c)}
	for range max(c.Workers, 1) {
		w := &streamWorker{proxy: s.newProxy(c, memory), room: make([]byte, 0, 2048)}
		if s.group != nil {
			w.sender = s.group.NewSender()
		}
		st.workers = append(st.workers, w)
	}
	return nil
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

// begin allows new connections until ctx is done.
func (st *streams) begin(ctx context.Context) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ctx = ctx
}

// run accepts connections until ctx is done, and then ends all connections. Clients that
// wait in the listeners stay there for the process that inherits the listeners.
func (st *streams) run(ctx context.Context) error {
	var accepting sync.WaitGroup
	for i, l := range st.listeners {
		accepting.Go(func() { st.accept(ctx, l, st.indexes[i]) })
	}
	<-ctx.Done()
	for _, l := range st.listeners {
		if err := l.SetDeadline(time.Unix(1, 0)); err != nil {
			st.log.Warn("SIP over TCP: stop accepting", "error", err)
		}
	}
	accepting.Wait() // so that a client that reconnects reaches the process that inherits the listeners
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

func (st *streams) accept(ctx context.Context, l *net.TCPListener, listener int) {
	for ctx.Err() == nil {
		conn, err := l.AcceptTCP()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			st.log.Warn("SIP over TCP: accept", "listener", l.Addr(), "error", err)
			select { // probably out of descriptors: wait until some are closed
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		peer := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
		peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
		if err := st.admit(peer, listener, conn); err != nil {
			st.refuse(peer, err)
			_ = conn.Close()
			continue
		}
		st.accepted.Add(1)
	}
}

// The reasons why a connection is refused. They are part of a log message.
var (
	errTotal  = errors.New("the limit memory.connections is reached")
	errSource = errors.New("the limit memory.connections_per_source is reached")
	errEnded  = errors.New("the director ends")
	errTwice  = errors.New("the last one of this peer has not ended")
)

// refuse counts and logs a connection that admit refused.
func (st *streams) refuse(peer netip.AddrPort, why error) {
	switch {
	case errors.Is(why, errTotal):
		st.full.Add(1)
	case errors.Is(why, errSource):
		st.crowded.Add(1)
	case errors.Is(why, errTwice):
		st.repeated.Add(1)
	}
	st.log.Warn("SIP over TCP: connection refused: "+why.Error(), "peer", peer)
}

// find returns the stream of a peer: that of the listener if there is one, else that of another.
// The caller holds mu.
func (st *streams) find(peer netip.AddrPort, listener int) *stream {
	if c := st.conns[streamKey{peer, listener}]; c != nil {
		return c
	}
	for _, other := range st.indexes {
		if c := st.conns[streamKey{peer, other}]; c != nil {
			return c
		}
	}
	return nil
}

// admit opens the stream of a new connection at the listener.
func (st *streams) admit(peer netip.AddrPort, listener int, conn *net.TCPConn) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.conns[streamKey{peer, listener}] != nil {
		return errTwice
	}
	_, err := st.open(peer, listener, conn)
	return err
}

// open opens a stream over a connection; nil: open dials one. It fails if no more connections are allowed. The
// caller holds mu.
func (st *streams) open(peer netip.AddrPort, listener int, conn *net.TCPConn) (*stream, error) {
	if st.closed || st.ctx == nil {
		return nil, errEnded
	}
	known := st.isInstance(peer.Addr())
	if err := st.roomFor(peer.Addr(), known); err != nil {
		return nil, err
	}
	c := &stream{peer: peer, known: known, accepted: conn != nil, listener: listener, worker: st.workers[st.opened%uint64(len(st.workers))], conn: conn, queue: make(chan *[]byte, queueLength), done: make(chan struct{})}
	st.opened++
	st.conns[streamKey{peer, listener}] = c
	st.addCount(c)
	if conn == nil {
		st.goroutines.Go(func() { st.dial(c) })
	} else {
		st.goroutines.Go(func() { st.serve(c) })
	}
	return c, nil
}

// remove drops a stream and counts its unsent messages.
func (st *streams) remove(c *stream) {
	c.end()
	st.mu.Lock()
	if key := (streamKey{c.peer, c.listener}); st.conns[key] == c {
		delete(st.conns, key)
		st.dropCount(c)
	}
	st.mu.Unlock()
	for {
		select {
		case b := <-c.queue:
			st.drop(meter.Unsent, c.peer)
			st.release(c, b)
		default:
			return
		}
	}
}

// send copies a message to the queue of a connection: of its flow if that is open, else of
// its address, which send dials if necessary. send does not block.
func (st *streams) send(out *Outgoing) {
	b := st.buffers.Get().(*[]byte)
	for _, part := range out.Parts {
		*b = append(*b, part...)
	}
	if cause, ok := st.push(out, b); !ok {
		st.drop(cause, out.To)
		st.recycle(b)
	}
}

// drop counts a message that cannot be sent.
func (st *streams) drop(cause meter.Cause, to netip.AddrPort) {
	st.unsent.Add(1)
	st.workers[0].proxy.meter.Drop(st.now(), meter.NoType, cause, to)
}

// push queues a message. If there is no room for the message or its connection, push returns
// the cause. A removed stream gets no more messages, so remove counts all of them.
func (st *streams) push(out *Outgoing, b *[]byte) (cause meter.Cause, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	var c *stream
	if out.Flow.IsValid() {
		c = st.find(out.Flow, out.Listener)
	}
	if c == nil {
		c = st.find(out.To, out.Listener)
	}
	if c == nil {
		if out.Back && !st.redials.AllowN(time.Now(), 1) {
			return meter.NoConnection, false
		}
		var err error
		if c, err = st.open(out.To, out.Listener, nil); err != nil {
			return meter.NoConnection, false
		}
	}
	size := cap(*b) // the capacity, because the queue holds the whole buffer
	if !st.mayQueue(c, size) {
		return meter.QueueFull, false
	}
	select {
	case c.queue <- b:
		c.queued.Add(int64(size))
		st.queued.Add(int64(size))
		return 0, true
	default:
		return meter.QueueFull, false
	}
}

func (st *streams) counters() StreamCounters {
	st.mu.Lock()
	open := len(st.conns)
	st.mu.Unlock()
	crowded := st.crowded.Load()
	return StreamCounters{
		Open: open, Accepted: st.accepted.Load(), Dialed: st.dialed.Load(), Refused: st.full.Load() + crowded, Crowded: crowded, Repeated: st.repeated.Load(),
		Broken: st.broken.Load(), Sent: st.sent.Load(), Unsent: st.unsent.Load(),
	}
}
