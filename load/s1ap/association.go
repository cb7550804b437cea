package s1ap

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/sctp"
	"vitrine/internal/tcpfd"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/s1"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// A state is the state of an association.
type state uint8

const (
	down       state = iota
	connecting       // the connection is being made
	settingUp        // S1 Setup Request is sent
	ready
)

const (
	// retry is how long an eNodeB without an association waits before its next attempt.
	retry = time.Second
	// maxQueued is the largest number of octets that may wait for an MME that does not read. If
	// there are more, the association ends.
	maxQueued = 4 << 20
)

// An association is the S1 association of an eNodeB with an MME.
type association struct {
	index  int
	cell   enb.Cell
	target netip.AddrPort
	number int // of the target

	fd     int
	sctp   *sctp.Records // nil: frames over TCP
	state  state
	again  time.Duration // time of the next attempt, if down
	reader s1.Reader
	unread bool   // read has left octets for the next turn; epoll may not report them
	out    []byte // frames to send
	sent   int    // octets of out sent so far
}

// connect starts the association.
func (e *engine) connect(a *association) {
	fd, err := a.open(e.params.Transport)
	if err != nil {
		a.again = e.now + retry
		return
	}
	a.fd, a.state, a.out, a.sent, a.reader = fd, connecting, a.out[:0], 0, s1.Reader{}
	// Edge-triggered: one registration lasts until the connection closes.
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(a.index)}
	if err := unix.EpollCtl(e.poll, unix.EPOLL_CTL_ADD, fd, &event); err != nil {
		e.drop(a)
	}
}

// drop ends an association and the calls of its UEs.
func (e *engine) drop(a *association) {
	if a.state == down {
		return
	}
	_ = tcpfd.Abort(a.fd) // closes the descriptor even when it fails
	was := a.state
	a.state, a.again = down, e.now+retry
	if was != ready {
		return
	}
	e.lost++
	for i := range e.users {
		if u := &e.users[i]; u.at == a || u.next != nil && u.next == a {
			u.at, u.next = nil, nil
			if u.alive {
				e.retry(u, a)
			}
		}
	}
}

// handleEvents handles the epoll events of an association.
func (e *engine) handleEvents(a *association, events uint32) {
	if a.state == connecting && events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		if !connected(a.fd) {
			e.drop(a)
			return
		}
		a.state = settingUp
		e.out = a.cell.AppendSetup(e.out[:0])
		a.out = frame.Append(a.out, frame.Common, e.out)
	}
	e.flush(a)
	if a.state >= settingUp && events&(unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
		e.read(a)
	}
}

// read handles all received messages, as far as the turn has octets left and out has room for the answers.
func (e *engine) read(a *association) {
	for {
		n, errno := a.receive(a.reader.Room())
		switch {
		case errno == unix.EAGAIN:
			return
		case errno == unix.EINTR:
			continue
		case errno != 0 || n == 0:
			e.drop(a)
			return
		}
		a.reader.Received(n)
		for {
			message, err := a.reader.Next()
			if err != nil {
				e.drop(a)
				return
			}
			if message == nil {
				break
			}
			e.message(a, message)
			if a.state == down {
				return
			}
		}
		if e.octets -= n; e.octets <= 0 || len(a.out)-a.sent > maxQueued {
			a.unread, e.unread = true, true
			return
		}
	}
}

// readRest reads the octets that read has left in the last turn.
func (e *engine) readRest() {
	e.now, e.unread = e.clock(), false
	for _, a := range e.associations {
		if a.unread {
			a.unread = false
			e.handleEvents(a, unix.EPOLLIN) // its flush makes room for answers
		}
	}
}

// queue queues a message for flush.
func (e *engine) queue(a *association, message []byte) {
	a.out = frame.Append(a.out, frame.UE, message)
}

// flush sends the queued frames, as far as the socket's buffer takes them.
func (e *engine) flush(a *association) {
	if a.state != settingUp && a.state != ready {
		return
	}
	for a.sent < len(a.out) {
		n, errno := a.send(a.out[a.sent:])
		switch errno {
		case 0:
			a.sent += n
		case unix.EAGAIN:
			if len(a.out)-a.sent > maxQueued {
				e.drop(a)
				return
			}
			a.out, a.sent = a.out[:copy(a.out, a.out[a.sent:])], 0
			return
		case unix.EINTR:
		default:
			e.drop(a)
			return
		}
	}
	a.out, a.sent = a.out[:0], 0
}

// setUp handles the answer to an S1 Setup Request. After a failure with Time To Wait, the eNodeB tries again
// (TS 36.413 clause 8.7.3.3).
func (e *engine) setUp(a *association, m *enb.Message) {
	switch {
	case m.Kind == s1ap.Successful:
		a.state = ready
		return
	case m.Wait > 0:
		e.postponed++
		e.drop(a)
		a.again = e.now + m.Wait
		return
	}
	e.refused = a.target.String() + " refuses the eNodeBs: check the parameters network and tac"
	e.drop(a)
}

// prepare sets up the associations, and waits for them no longer than the timeout.
func (e *engine) prepare() {
	begun := time.Now()
	e.clock = func() time.Duration { return time.Since(begun) }
	for _, a := range e.associations {
		e.connect(a)
	}
	for !e.stopped.Load() && e.refused == "" && e.now < time.Duration(e.params.Timeout) {
		e.handleReady()
		settled := true
		for _, a := range e.associations {
			settled = settled && (a.state == ready || a.state == down)
		}
		if settled {
			break
		}
		time.Sleep(time.Duration(e.params.Tick))
	}
}

// reconnect starts again all associations that are down.
func (e *engine) reconnect() {
	for _, a := range e.associations {
		if a.state == down && a.again <= e.now {
			e.connect(a)
		}
	}
}

// closing is how long the MMEs have at the end to read all queued messages.
const closing = 2 * time.Second

// close shuts down the associations in order, unless the trial was stopped.
func (e *engine) close() error {
	for _, a := range e.associations {
		if a.state == ready {
			e.flush(a)
		}
		if a.state == ready {
			shutdown(a.fd)
		}
	}
	for begun := time.Now(); !e.stopped.Load() && time.Since(begun) < closing; time.Sleep(time.Millisecond) {
		e.handleReady()
		open := 0
		for _, a := range e.associations {
			if a.state == ready {
				open++
			}
		}
		if open == 0 {
			break
		}
	}
	for _, a := range e.associations {
		if a.state != down {
			_ = tcpfd.Abort(a.fd) // closes the descriptor even when it fails
		}
	}
	return unix.Close(e.poll)
}
