package http

import (
	"golang.org/x/sys/unix"

	"vitrine/internal/tcpfd"
)

// A state is the state of a connection.
type state uint8

const (
	free       state = iota // closed
	connecting              // until the first byte of its first request is sent
	busy                    // with a call
	idle                    // open, without a call
)

// A conn is a connection, or the slot of a closed one.
type conn struct {
	index      int32 // in engine.conns
	generation int32 // counts the connections of the slot
	fd         int
	target     *target
	state      state
	used       bool   // it has answered a call
	serial     uint64 // counts the calls of the slot
	call       call
	sent       int // bytes of the request sent so far
	response   response
}

// connect starts a connection. The caller must assign a call to it at once. The result is nil if
// the attempt failed. own reports whether it failed because this host lacks a resource.
func (e *engine) connect(t *target) (c *conn, own bool) {
	fd, own, err := tcpfd.Connect(t.addr)
	if err != nil {
		return nil, own
	}
	if len(e.closed) == 0 {
		c = &conn{index: int32(len(e.conns))}
		e.conns = append(e.conns, c)
	} else {
		c = e.closed[len(e.closed)-1]
		e.closed = e.closed[:len(e.closed)-1]
	}
	c.fd, c.target, c.state, c.used = fd, t, connecting, false
	t.open++
	event := c.interest()
	if err := unix.EpollCtl(e.poll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		e.drop(c)
		return nil, true
	}
	return c, false
}

// interest returns the connection's registration with epoll. The registration is edge-triggered, so one
// lasts until the connection closes.
func (c *conn) interest() unix.EpollEvent {
	return unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: c.index, Pad: c.generation}
}

// drop closes the connection.
func (e *engine) drop(c *conn) {
	if c.state == idle {
		for i, other := range c.target.idle {
			if other == c {
				c.target.idle = append(c.target.idle[:i], c.target.idle[i+1:]...)
				break
			}
		}
	}
	_ = tcpfd.Abort(c.fd) // closes the descriptor even when it fails
	c.generation++
	c.serial++
	c.state = free
	c.target.open--
	e.closed = append(e.closed, c)
}

// assign gives the connection a call.
func (e *engine) assign(c *conn, of call) {
	c.serial++
	c.call, c.sent = of, 0
	c.response.reset()
	if c.state == idle {
		c.state = busy
	}
	c.target.timeouts.Push(alarm{conn: c, at: of.deadline, serial: c.serial})
	e.write(c)
}

// write sends the rest of the request, or as much of it as the socket buffer
// takes.
func (e *engine) write(c *conn) {
	request := c.target.request
	for c.sent < len(request) {
		n, errno := tcpfd.Send(c.fd, request[c.sent:])
		switch errno {
		case 0:
			c.sent += n
			c.state = busy
		case unix.EAGAIN:
			return
		case unix.EINTR:
		default:
			e.broken(c)
			return
		}
	}
}

// handleEvents handles the epoll events of a connection.
func (e *engine) handleEvents(c *conn, events uint32) {
	if (c.state == connecting || c.state == busy) && c.sent < len(c.target.request) {
		generation := c.generation
		if e.write(c); c.generation != generation {
			return
		}
	}
	if events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 && c.state != connecting {
		e.read(c, events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0)
	}
}

// read reads all received bytes, as far as the turn has reads left. ending reports that the peer sends
// no more.
func (e *engine) read(c *conn, ending bool) {
	for generation := c.generation; c.generation == generation; {
		n, errno := tcpfd.Receive(c.fd, e.buffer)
		switch {
		case errno == unix.EAGAIN:
			return
		case errno == unix.EINTR:
			continue
		case errno != 0 || n == 0:
			e.ended(c, errno == 0)
			return
		case c.state != busy: // a response without a request
			e.drop(c)
			e.serve(c.target)
			return
		}
		e.feed(c, e.buffer[:n])
		switch {
		case n == len(e.buffer):
			if e.reads--; e.reads <= 0 && c.generation == generation {
				e.readLater(c)
				return
			}
		case !ending:
			return // the receive buffer is empty
		}
	}
}

// readLater registers the connection again, so that epoll reports the bytes that are still unread.
func (e *engine) readLater(c *conn) {
	event := c.interest()
	_ = unix.EpollCtl(e.poll, unix.EPOLL_CTL_MOD, c.fd, &event) // if it fails, the call times out
}

// feed reads a part of a response.
func (e *engine) feed(c *conn, data []byte) {
	n, done, err := c.response.feed(data)
	switch {
	case err != nil:
		e.giveUp(c, "malformed")
	case done:
		e.answered(c, c.response.close || n < len(data))
	}
}

// ended handles the end of the connection. orderly reports whether it ended without
// an error.
func (e *engine) ended(c *conn, orderly bool) {
	switch {
	case c.state != busy:
		e.drop(c)
		e.serve(c.target)
	case orderly && c.response.ended():
		e.answered(c, true)
	default:
		e.broken(c)
	}
}

// answered ends the call of a connection whose response is complete. last is true if the
// connection cannot carry another call.
func (e *engine) answered(c *conn, last bool) {
	of, status, t := c.call, c.response.status, c.target
	switch {
	case e.now > of.deadline:
		e.fail(of, "timeout")
	case status >= 200 && status <= 299:
		e.succeed(of)
	default:
		e.fail(of, e.causes.Text(status))
	}
	if last {
		e.drop(c)
		e.serve(t)
		return
	}
	c.used = true
	c.serial++
	if t.waiting.Len() > 0 {
		e.assign(c, t.waiting.Pop())
		return
	}
	c.state = idle
	t.idle = append(t.idle, c)
}

// broken handles a connection that ended before the response did.
func (e *engine) broken(c *conn) {
	cause := "reset"
	if c.state == connecting {
		cause = "connect"
	}
	if !c.used || c.response.begun() || c.call.resent {
		e.giveUp(c, cause)
		return
	}
	of, t := c.call, c.target
	e.drop(c)
	e.resent++
	of.resent = true
	fresh, _ := e.connect(t)
	if fresh == nil {
		e.fail(of, "connect")
		e.serve(t)
		return
	}
	e.assign(fresh, of)
}

// giveUp fails the connection's call and closes the connection.
func (e *engine) giveUp(c *conn, cause string) {
	of, t := c.call, c.target
	e.drop(c)
	e.fail(of, cause)
	e.serve(t)
}
