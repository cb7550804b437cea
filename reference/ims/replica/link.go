package replica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// errDown is the error for a peer that is not connected.
var errDown = errors.New("peer is down")

const (
	heartbeat  = time.Second
	deadAfter  = 3 * time.Second // time without an answer to a heartbeat
	dialAfter  = 200 * time.Millisecond
	dialAtMost = 2 * time.Second
)

// A link is this instance's connection to one peer. Many goroutines share it.
// Each frame is written with one system call.
type link struct {
	self, peer netip.AddrPort
	ask        time.Duration // how long an answer may take
	// resync sends the peer the records of the keys that it may have missed; nil: all records.
	resync func(ctx context.Context, l *link, missed map[string]struct{})

	up atomic.Bool

	mu      sync.Mutex
	conn    net.Conn
	last    uint32
	pending map[uint32]chan answer
	missed  map[string]struct{} // keys whose records the peer may have missed; nil: all keys
	buf     []byte
}

type answer struct {
	op   byte
	body []byte
	err  error
}

// A call waits for the answer to one request.
type call struct {
	link *link
	id   uint32
	got  chan answer
}

// start sends a request. write appends its body.
func (l *link) start(op byte, write func([]byte) []byte) (call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return call{}, errDown
	}
	l.last++
	c := call{link: l, id: l.last, got: make(chan answer, 1)}
	l.buf = write(beginFrame(l.buf))
	if len(l.buf)-4 > maxFrame {
		return call{}, fmt.Errorf("%w: request of %d bytes", errWire, len(l.buf))
	}
	l.pending[c.id] = c.got
	_ = l.conn.SetWriteDeadline(time.Now().Add(l.ask))
	if _, err := l.conn.Write(endFrame(l.buf, op, c.id)); err != nil {
		delete(l.pending, c.id)
		l.conn.Close() // part of the frame may have been sent, so the peer could not read the next one
		return call{}, fmt.Errorf("write to peer %s: %w", l.peer, err)
	}
	return c, nil
}

// wait returns the answer. A late answer fails only this read or write; the
// heartbeat decides whether the link is down.
func (c call) wait(ctx context.Context) (byte, []byte, error) {
	timer := time.NewTimer(c.link.ask)
	defer timer.Stop()
	select {
	case a := <-c.got:
		return a.op, a.body, a.err
	case <-ctx.Done():
		c.forget()
		return 0, nil, ctx.Err()
	case <-timer.C:
		c.forget()
		return 0, nil, fmt.Errorf("peer %s: no answer within %s", c.link.peer, c.link.ask)
	}
}

func (c call) forget() {
	c.link.mu.Lock()
	delete(c.link.pending, c.id)
	c.link.mu.Unlock()
}

func (l *link) roundTrip(ctx context.Context, op byte, write func([]byte) []byte) (byte, []byte, error) {
	c, err := l.start(op, write)
	if err != nil {
		return 0, nil, err
	}
	return c.wait(ctx)
}

// miss notes keys whose records the peer may have missed.
func (l *link) miss(keys ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed == nil {
		return
	}
	for _, key := range keys {
		l.missed[key] = struct{}{}
	}
}

// takeMissed returns the keys whose records the peer may have missed, and forgets them.
// nil stands for all keys.
func (l *link) takeMissed() map[string]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed := l.missed
	if l.conn != nil { // otherwise the next connection begins with all keys
		l.missed = map[string]struct{}{}
	}
	return missed
}

// run keeps the link connected until ctx is done.
func (l *link) run(ctx context.Context) {
	pause := dialAfter
	for ctx.Err() == nil {
		dialer := net.Dialer{Timeout: deadAfter, LocalAddr: &net.TCPAddr{IP: l.self.Addr().AsSlice()}}
		conn, err := dialer.DialContext(ctx, "tcp", l.peer.String())
		if err == nil {
			pause = dialAfter
			l.useConnection(ctx, conn)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, dialAtMost)
	}
}

// useConnection uses a connection until it fails or ctx is done.
func (l *link) useConnection(ctx context.Context, conn net.Conn) {
	l.mu.Lock()
	l.conn, l.pending = conn, map[uint32]chan answer{}
	l.mu.Unlock()

	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { l.sendHeartbeats(ctx, conn) })
	wg.Go(func() { <-ctx.Done(); conn.Close() })

	r := bufio.NewReaderSize(conn, 16<<10)
	for {
		f, _, err := readFrame(r, nil) // no shared buffer, because the body goes to the caller
		if err != nil {
			break
		}
		l.mu.Lock()
		got := l.pending[f.id]
		delete(l.pending, f.id)
		l.mu.Unlock()
		if got != nil {
			got <- answer{op: f.op, body: f.body}
		}
	}
	cancel()
	l.up.Store(false)
	l.mu.Lock()
	for _, got := range l.pending {
		got <- answer{err: errDown}
	}
	l.conn, l.pending, l.missed = nil, nil, nil
	l.mu.Unlock()
	wg.Wait()
	l.up.Store(false) // sendHeartbeats may have set it after the connection ended
}

// sendHeartbeats sends the hello, resyncs the peer, and then sends a ping every
// heartbeat. After each answer it resyncs the peer.
func (l *link) sendHeartbeats(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	op, _, err := l.roundTrip(ctx, opHello, func(b []byte) []byte { return append(append(b, magic...), l.self.String()...) })
	if err != nil || op != opOK {
		return
	}
	l.up.Store(true)
	l.resync(ctx, l, l.takeMissed())
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	heard := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		op, _, err := l.roundTrip(ctx, opPing, func(b []byte) []byte { return b })
		switch {
		case err == nil && op == opOK:
			l.resync(ctx, l, l.takeMissed())
			heard = time.Now() // a resync may take longer than deadAfter
		case time.Since(heard) > deadAfter:
			return
		}
	}
}
