package sip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/wire/sip"
)

const (
	// maxMessage is the maximum size of a message on a stream, in bytes: as in a datagram.
	maxMessage = datagram.Largest
	// dialTime is the time limit for making a connection.
	dialTime = 5 * time.Second
	// writeTime is how long a write may wait for the peer before the stream ends.
	writeTime = 10 * time.Second
	// lastTime is how long a stream may take to send its queue when it ends. It is short
	// because the next process waits for this one.
	lastTime = time.Second
)

// A stream is a TCP connection, open or being dialed.
type stream struct {
	peer     netip.AddrPort
	known    bool // the peer is an instance
	accepted bool // the peer opened it
	listener int  // that the stream belongs to
	worker   *streamWorker
	queue    chan *[]byte
	done     chan struct{} // closed when the stream has ended
	queued   atomic.Int64  // bytes

	handled uint64 // received messages; only the reading goroutine uses it
	need    int    // length of the message whose body is incomplete; 0: not known; as handled

	mu   sync.Mutex   // guards conn, done's closing and the write deadline
	conn *net.TCPConn // nil until it is dialed
}

// end stops both goroutines of a stream; the writing one takes at most lastTime.
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

func (c *stream) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// connect sets the connection of a stream. It returns false if the stream has ended.
func (c *stream) connect(conn *net.TCPConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return !c.ended()
}

// setWriteDeadline sets the deadline of the next write. After end, the deadline of end stays.
func (c *stream) setWriteDeadline(timeout time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended() {
		return nil
	}
	return c.conn.SetWriteDeadline(time.Now().Add(timeout))
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
		st.remove(c)
		return
	}
	st.dialed.Add(1)
	if !c.connect(conn.(*net.TCPConn)) {
		_ = conn.Close() // nothing was sent on it
		st.remove(c)
		return
	}
	st.serve(c)
}

// localOf returns the address to connect from: the listener's, so that the peer sees the
// host that Via names.
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
	_ = c.conn.Close() // the stream has ended, so an error does not matter
	st.remove(c)
}

// write sends the queue until the stream ends, and then ends the reading.
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
		for { // send what was queued before the end
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
	defer st.release(c, b)
	err := c.setWriteDeadline(st.writeTimeout)
	if err == nil {
		_, err = c.conn.Write(*b)
	}
	if err != nil {
		st.drop(meter.Unsent, c.peer)
		return false
	}
	st.sent.Add(1)
	return true
}

// read reads messages from a connection (RFC 3261 section 18.3) until it ends, is silent
// for too long, or sends something that is not SIP.
func (st *streams) read(c *stream) error {
	buffer := make([]byte, 0, maxBuffer)
	deadline := time.Now().Add(st.idle)
	if c.accepted && !c.known {
		deadline = time.Now().Add(st.first)
	}
	for {
		if err := c.conn.SetReadDeadline(deadline); err != nil {
			return err
		}
		if c.ended() {
			return nil
		}
		if len(buffer) == cap(buffer) {
			buffer = append(make([]byte, 0, 2*cap(buffer)), buffer...)
		}
		begun := hasBegun(buffer)
		n, err := c.conn.Read(buffer[len(buffer):cap(buffer)])
		if err != nil {
			return err
		}
		was := c.handled
		if buffer, err = st.take(c, buffer[:len(buffer)+n]); err != nil {
			return err
		}
		deadline = st.extend(c, deadline, !begun || c.handled > was, buffer)
	}
}

// extend returns the next read deadline of a stream. rest holds the bytes that were read
// but not handled. next tells whether rest begins another message than before.
func (st *streams) extend(c *stream, deadline time.Time, next bool, rest []byte) time.Time {
	switch {
	case c.handled == 0 && c.accepted && !c.known: // its first message is still to come
		return deadline
	case !hasBegun(rest):
		return time.Now().Add(st.idle)
	case next:
		return time.Now().Add(st.first)
	}
	return deadline
}

// hasBegun reports whether rest begins a message. Line ends before a message do not (RFC
// 3261 section 7.5); some clients send them as keep-alives. Other line ends, such as LF alone, do
// begin one, because sip.Length does not skip them.
func hasBegun(rest []byte) bool { return !bytes.HasPrefix([]byte("\r\n\r\n"), rest) }

// take handles the complete messages in the buffer and returns the rest.
func (st *streams) take(c *stream, buffer []byte) ([]byte, error) {
	rest := buffer
	for len(rest) > 0 {
		if len(rest) >= 4 && string(rest[:4]) == "\r\n\r\n" { // a ping (RFC 5626 section 3.5.1)
			rest = rest[4:]
			st.send(&Outgoing{To: c.peer, Flow: c.peer, Listener: c.listener, Parts: [][]byte{pong}})
			continue
		}
		if len(rest) < c.need {
			break
		}
		n, err := sip.Length(rest, maxMessage)
		if err != nil {
			// Framing is lost: answer this message, and end the stream.
			st.handle(c, rest[:len(rest):len(rest)])
			return nil, fmt.Errorf("%w; the connection ends", err)
		}
		if c.need = n; n == 0 || n > len(rest) {
			break
		}
		c.need = 0
		st.handle(c, rest[:n:n])
		rest = rest[n:]
	}
	return trim(buffer[:copy(buffer, rest)]), nil
}

// trim returns the buffer's content in a small buffer once a large message has been
// handled, because a connection may stay open for long.
func trim(buffer []byte) []byte {
	if cap(buffer) <= maxBuffer || len(buffer) > maxBuffer/2 {
		return buffer
	}
	return append(make([]byte, 0, maxBuffer), buffer...)
}

var pong = []byte("\r\n")

// handle processes one message.
func (st *streams) handle(c *stream, data []byte) {
	c.handled++
	w := c.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in = datagram.Datagram{Data: data, From: c.peer, Listener: c.listener, At: st.now()}
	if !w.proxy.Handle(&w.in, w.room, &w.out) {
		return
	}
	if st.server.core.places[w.out.Listener].Stream {
		st.send(&w.out)
		return
	}
	w.sender.Send(st.server.handlers[0].group[w.out.Listener], w.out.To, w.out.Parts...)
	w.sender.Flush()
}
