package http

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vitrine"
	"vitrine/internal/fifo"
	"vitrine/internal/tcpfd"
	"vitrine/internal/thread"
	"vitrine/load"
)

const (
	// burst is the number of calls that begin before the engine reads answers again.
	burst = 256
	// nap limits a wait, because the Go runtime needs time for its own work.
	nap = 20 * time.Millisecond
	// room is the size of the read buffer, in bytes.
	room = 64 << 10
	// maxReads is how many full buffers one turn of run reads. Beyond that, each event gets one read. So a
	// server that sends without end does not hold up calls and timeouts.
	maxReads = 1024
	// batch is the largest number of events that one epoll call returns.
	batch = 128
)

// An engine runs one trial. Only one goroutine uses it, except for stopped.
type engine struct {
	params  Params
	agenda  *load.Agenda
	record  *load.Recorder
	start   time.Time // start of the window
	now     time.Duration
	clock   func() time.Duration // time since the start of the window
	stopped atomic.Bool

	poll    int // epoll instance
	targets []*target
	conns   []*conn // all slots; those of closed connections are reused
	closed  []*conn
	limit   int // maximum connections of one target
	events  [batch]unix.EpollEvent
	buffer  []byte
	reads   int // full reads left in this turn
	serving bool
	open    int // calls that have begun and not ended
	window  int // open calls that were due in the window
	causes  load.Codes

	waited, resent, unsent int64
}

// A target is one address that calls go to.
type target struct {
	addr    netip.AddrPort
	request []byte
	idle    []*conn // the connection that became free last is at the end
	open    int     // open connections
	waiting fifo.Queue[call]
	// timeouts has the calls in the order in which they got their connections. That is also the
	// order of their deadlines, except for calls that were sent again.
	timeouts fifo.Queue[alarm]
}

// A call is one GET.
type call struct {
	due      time.Duration // relative to the start of the window
	deadline time.Duration
	resent   bool // sent again on a new connection, because the first one ended
}

// An alarm goes off for the call of a connection, unless the call has ended.
type alarm struct {
	conn   *conn
	at     time.Duration
	serial uint64
}

func newEngine(t load.Trial, p Params) (_ *engine, err error) {
	e := &engine{params: p, record: load.NewRecorder(t.Duration), buffer: make([]byte, room), poll: -1}
	e.agenda = load.NewAgenda(t.Schedule(p.Arrivals), e.record)
	e.clock = func() time.Duration { return time.Since(e.start) }
	if e.limit, err = p.limit(t); err != nil {
		return nil, err
	}
	for _, name := range t.Targets {
		addr, err := tcpfd.Resolve(name)
		if err != nil {
			return nil, &vitrine.BadInput{File: "generator http", Found: "target " + name, Want: err.Error()}
		}
		host := name
		if p.Host != "" {
			host = p.Host
		}
		e.targets = append(e.targets, &target{
			addr:    addr,
			request: []byte("GET " + p.Path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: vitrine\r\nAccept: */*\r\n\r\n"),
		})
	}
	if e.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	return e, nil
}

func (e *engine) close() error {
	var err error
	for _, c := range e.conns {
		if c.state != free {
			err = errors.Join(err, tcpfd.Abort(c.fd))
		}
	}
	return errors.Join(err, unix.Close(e.poll))
}

// run plays the trial until each call of the window has ended or stopped is set.
func (e *engine) run(start time.Time) {
	e.start = start
	for !e.stopped.Load() {
		e.now = e.clock()
		e.begin()
		e.alarms()
		if _, more := e.agenda.Next(); !more && e.window == 0 {
			return
		}
		thread.Sleep(e.idleTime())
		e.handleReady()
	}
}

// begin starts the calls that are due, up to a burst.
func (e *engine) begin() {
	if e.agenda.Expire(e.now) {
		return
	}
	for range burst {
		t := e.targets[e.agenda.Begun()%len(e.targets)]
		due, ok := e.agenda.Begin(e.now)
		if !ok {
			return
		}
		e.open++
		if due >= 0 {
			e.window++
		}
		e.place(t, call{due: due, deadline: e.now + time.Duration(e.params.Timeout)})
	}
}

// place assigns a connection to a new call, or queues the call until one is free.
func (e *engine) place(t *target, of call) {
	switch last := len(t.idle) - 1; {
	case last >= 0:
		c := t.idle[last]
		t.idle = t.idle[:last]
		e.record.Offered(of.due, e.now)
		e.assign(c, of)
	case t.open < e.limit:
		c, own := e.connect(t)
		if own {
			e.unsent++ // never offered, so the call neither succeeds nor fails
			e.end(of)
			return
		}
		e.record.Offered(of.due, e.now)
		if c == nil {
			e.fail(of, "connect")
			return
		}
		e.assign(c, of)
	default:
		e.waited++
		e.record.Offered(of.due, e.now)
		t.waiting.Push(of)
	}
}

// serve opens connections for waiting calls, up to the limit.
func (e *engine) serve(t *target) {
	if e.serving { // called from the loop below, because a new connection failed at once
		return
	}
	e.serving = true
	defer func() { e.serving = false }()
	for t.waiting.Len() > 0 && t.open < e.limit {
		c, _ := e.connect(t)
		of := t.waiting.Pop()
		if c == nil {
			e.fail(of, "connect")
			continue
		}
		e.assign(c, of)
	}
}

// idleTime returns how long to sleep. While answers are expected, it is a tick, because answers
// are cheaper in batches. Otherwise it is the time until the next call.
func (e *engine) idleTime() time.Duration {
	if e.open > 0 {
		return time.Duration(e.params.Tick)
	}
	at := e.now + nap
	if due, more := e.agenda.Next(); more {
		at = min(at, due)
	}
	return at - e.clock()
}

// alarms ends the calls that have timed out.
func (e *engine) alarms() {
	for _, t := range e.targets {
		for t.timeouts.Len() > 0 && t.timeouts.Front().at <= e.now {
			if a := t.timeouts.Pop(); a.conn.serial == a.serial {
				e.giveUp(a.conn, "timeout")
			}
		}
		for t.waiting.Len() > 0 && t.waiting.Front().deadline <= e.now {
			e.fail(t.waiting.Pop(), "timeout")
		}
	}
}

// handleReady handles pending epoll events: enough rounds for one event of each connection. The kernel
// keeps the rest for the next turn.
func (e *engine) handleReady() {
	e.reads = maxReads
	for range len(e.conns)/batch + 1 {
		n := tcpfd.Events(e.poll, e.events[:])
		e.now = e.clock()
		for i := range n {
			event := &e.events[i]
			// Ignore an event of a connection that an earlier event of this loop closed.
			if c := e.conns[event.Fd]; c.generation == event.Pad {
				e.handleEvents(c, event.Events)
			}
		}
		if n < len(e.events) {
			return
		}
	}
}

func (e *engine) succeed(of call) {
	e.record.Succeeded(of.due, e.now-of.due)
	e.end(of)
}

func (e *engine) fail(of call, cause string) {
	e.record.Failed(of.due, e.now, cause)
	e.end(of)
}

func (e *engine) end(of call) {
	e.open--
	if of.due >= 0 {
		e.window--
	}
}
