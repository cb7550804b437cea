package sip

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"vitrine/internal/fifo"
	"vitrine/internal/mmsg"
	"vitrine/internal/thread"
	"vitrine/internal/truth"
	"vitrine/load"
	"vitrine/wire/sip"
)

const (
	// burst is the number of calls that begin before the engine reads answers again.
	burst = 4 * batch
	// maxBatches is how many batches one turn of run receives from a socket: about as many datagrams as fill
	// its buffer. So a function that sends without end does not hold up calls and timeouts.
	maxBatches = 256
	// nap limits a wait, because the Go runtime needs time for its own work.
	nap = 20 * time.Millisecond
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

	targets []*socket // one connected socket for each target
	back    *socket   // socket for requests from the function; nil if the scenario has none

	calls  []*call
	idle   []*call
	users  fifo.Queue[int32] // free subscribers, or pairs of subscribers
	inCall []*call           // the call of each subscriber
	pairs  int
	window int // live calls that were due in the window

	timeouts        fifo.Queue[alarm]
	holds           fifo.Queue[alarm]
	retransmissions [6]fifo.Queue[alarm] // by interval: T1, 2 T1, 4 T1 ... 32 T1

	token       []byte // of the Call-IDs of this process
	generation  uint32
	format      numbered
	registrar   []byte   // sip:domain
	registerHA2 sip.Hash // HA2 of a REGISTER to the registrar
	scratch     []byte
	user        []byte
	message     sip.Message
	sentFunc    func(owner, error)
	causes      load.Codes
	messages    *truth.Log // nil: nothing is logged

	stray, malformed, unsent int64
}

// An alarm goes off for a call, unless the call has ended or has sent another request since.
type alarm struct {
	call        *call
	at          time.Duration
	generation  uint32
	transaction uint8
	interval    uint8         // index into engine.retransmissions
	ofAnswer    bool          // retransmit the callee's 200
	first       time.Duration // time of the first transmission
}

func (a *alarm) active() bool {
	return a.call.alive && a.call.generation == a.generation && a.call.transaction == a.transaction
}

func newEngine(t load.Trial, p Params) (_ *engine, err error) {
	pool, err := p.Pool(t.Rate)
	if err != nil {
		return nil, err
	}
	e := &engine{
		params: p, record: load.NewRecorder(t.Duration), registrar: []byte("sip:" + p.Domain),
		scratch: make([]byte, 0, 1024), user: make([]byte, 0, 128),
	}
	e.sentFunc = e.sent
	e.clock = func() time.Duration { return time.Since(e.start) }
	e.agenda = load.NewAgenda(t.Schedule(p.Arrivals), e.record)
	if e.format, err = parseNumbered(p.UserFormat); err != nil {
		return nil, err
	}
	e.registerHA2 = sip.HA2(e.scratch, "REGISTER", e.registrar)
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	e.token = []byte(hex.EncodeToString(random[:4]))
	e.generation = binary.NativeEndian.Uint32(random[4:])

	e.pairs = pool / p.Parties()
	e.inCall = make([]*call, e.pairs*p.Parties())
	e.users.Grow(e.pairs)
	for i := range e.pairs {
		e.users.Push(int32(i))
	}
	e.timeouts.Grow(int(min(t.Rate*time.Duration(p.Timeout).Seconds()*float64(p.transactions()+1), 1<<24)) + batch)
	if e.messages, err = truth.Open(p.Messages, "generator"); err != nil {
		return nil, err
	}
	if err := e.open(t.Targets); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// open opens the sockets.
func (e *engine) open(targets []string) error {
	var local netip.Addr
	if e.params.Local != "" {
		local = netip.MustParseAddr(e.params.Local) // Decode has checked it
	}
	for _, target := range targets {
		resolved, err := net.ResolveUDPAddr("udp", target)
		if err != nil {
			return bad("target "+target, err.Error())
		}
		peer := resolved.AddrPort()
		peer = netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port())
		var from netip.AddrPort
		if local.IsValid() {
			from = netip.AddrPortFrom(local, 0)
		}
		s, err := newSocket(from, peer)
		if err != nil {
			return fmt.Errorf("target %s: %w", target, err)
		}
		e.targets = append(e.targets, s)
		s.announce(s.local.Addr())
	}
	if e.params.Scenario == RegDereg {
		return nil
	}
	first := e.targets[0].local.Addr()
	bind := local
	if !bind.IsValid() {
		bind = unspecified(first)
	}
	back, err := newSocket(netip.AddrPortFrom(bind, uint16(e.params.Port)), netip.AddrPort{})
	if err != nil {
		return fmt.Errorf("open the port for requests from the function (parameter port): %w", err)
	}
	e.back = back
	back.announce(first)
	return nil
}

func unspecified(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func (e *engine) close() error {
	err := e.messages.Close()
	for _, s := range e.sockets() {
		err = errors.Join(err, s.close())
	}
	return err
}

// sockets returns the sockets of the targets, and then back.
func (e *engine) sockets() []*socket {
	if e.back == nil {
		return e.targets
	}
	return append(e.targets[:len(e.targets):len(e.targets)], e.back)
}

// run plays the trial until each call of the window has ended or stopped is set.
func (e *engine) run(start time.Time) {
	e.start = start
	sockets := e.sockets()
	for !e.stopped.Load() {
		e.now = e.clock()
		e.begin()
		e.alarms()
		for _, s := range sockets {
			s.flush(e.sentFunc)
		}
		if _, more := e.agenda.Next(); !more && e.window == 0 {
			return
		}
		thread.Sleep(e.idleTime())
		for _, s := range sockets {
			e.receive(s)
		}
	}
}

// begin starts the calls that are due, as long as subscribers are free, up to a
// burst.
func (e *engine) begin() {
	if e.agenda.Expire(e.now) {
		return
	}
	for range burst {
		if e.users.Len() == 0 {
			return
		}
		target := e.targets[e.agenda.Begun()%len(e.targets)]
		due, ok := e.agenda.Begin(e.now)
		if !ok {
			return
		}
		c := e.newCall()
		e.generation++
		c.reset(e.generation)
		c.due = due
		c.socket = target
		pair := int(e.users.Pop())
		c.caller.number = e.params.FirstUser + pair
		e.inCall[pair] = c
		if e.params.Parties() == 2 {
			c.callee.number = e.params.FirstUser + e.pairs + pair
			e.inCall[e.pairs+pair] = c
		}
		if due >= 0 {
			e.window++
		}
		e.request(c, true)
	}
}

// idleTime returns how long to sleep. While answers are expected, it is a tick, because answers
// are cheaper in batches. Otherwise it is the time until the next call or alarm.
func (e *engine) idleTime() time.Duration {
	if len(e.idle) < len(e.calls) {
		return time.Duration(e.params.Tick)
	}
	at := e.now + nap
	if due, more := e.agenda.Next(); more && e.users.Len() > 0 {
		at = min(at, due)
	}
	if e.timeouts.Len() > 0 {
		at = min(at, e.timeouts.Front().at)
	}
	if e.holds.Len() > 0 {
		at = min(at, e.holds.Front().at)
	}
	if e.params.Retransmit {
		for i := range e.retransmissions {
			if e.retransmissions[i].Len() > 0 {
				at = min(at, e.retransmissions[i].Front().at)
			}
		}
	}
	return at - e.clock()
}

// alarms handles the alarms that are due.
func (e *engine) alarms() {
	for e.timeouts.Len() > 0 && e.timeouts.Front().at <= e.now {
		if a := e.timeouts.Pop(); a.active() {
			e.fail(a.call, "timeout")
		}
	}
	for e.holds.Len() > 0 && e.holds.Front().at <= e.now {
		if a := e.holds.Pop(); a.active() {
			e.advance(a.call)
		}
	}
	if e.params.Retransmit {
		e.retransmit()
	}
}

// sent is called for each queued message with the result of its send.
func (e *engine) sent(of owner, err error) {
	c := of.call
	if c == nil || !c.alive || c.generation != of.generation {
		return
	}
	switch {
	case err == nil && of.first:
		e.record.Offered(c.due, e.now)
	case err != nil && of.first:
		e.unsent++ // never offered, so the call neither succeeds nor fails
		e.release(c)
	case err != nil:
		e.fail(c, "send")
	}
}

func (e *engine) succeed(c *call) {
	e.record.Succeeded(c.due, e.now-c.due)
	e.release(c)
}

func (e *engine) fail(c *call, cause string) {
	e.record.Failed(c.due, e.now, cause)
	e.release(c)
}

// release ends the call and frees its subscribers.
func (e *engine) release(c *call) {
	c.alive = false
	if c.due >= 0 {
		e.window--
	}
	pair := c.caller.number - e.params.FirstUser
	e.inCall[pair] = nil
	if e.params.Parties() == 2 {
		e.inCall[e.pairs+pair] = nil
	}
	e.users.Push(int32(pair))
	e.idle = append(e.idle, c)
}

// countDrops returns the number of datagrams that were lost in the sockets' receive buffers.
func (e *engine) countDrops() (int64, error) {
	var total int64
	for _, s := range e.sockets() {
		n, err := mmsg.Drops(s.fd)
		if err != nil {
			return 0, err
		}
		total += int64(n)
	}
	return total, nil
}
