package s1ap

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"vitrine/internal/fifo"
	"vitrine/internal/sctp"
	"vitrine/internal/tcpfd"
	"vitrine/internal/thread"
	"vitrine/load"
	"vitrine/reference/epc/enb"
	"vitrine/reference/epc/s1"
	"vitrine/reference/epc/ue"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

const (
	// burst is the number of calls that begin before the engine reads answers again.
	burst = 256
	// nap limits a wait, because the Go runtime needs time for its own work.
	nap = 20 * time.Millisecond
	// batch is the largest number of events that one epoll call returns.
	batch = 128
	// maxOctets is how many octets one turn of run reads. Beyond that, each event gets one read. So an MME that
	// sends without end does not hold up calls and timeouts.
	maxOctets = 4 << 20
)

// An engine runs one trial. Only one goroutine uses it, except for stopped.
type engine struct {
	params  Params
	agenda  *load.Agenda
	record  *load.Recorder
	random  *rand.Rand
	first   time.Time // start of the window
	now     time.Duration
	clock   func() time.Duration
	stopped atomic.Bool

	poll         int // epoll instance
	associations []*association
	targets      int
	events       [batch]unix.EpollEvent
	octets       int    // left to read in this turn
	unread       bool   // read has left octets of an association for the next turn
	refused      string // why the trial cannot be played

	users    []user
	detached fifo.Queue[uint32] // UEs without a call that are not attached, or connected
	attached fifo.Queue[uint32] // UEs without a call that are attached and idle
	timeouts fifo.Queue[alarm]
	staying  fifo.Queue[alarm] // UEs that stay connected for a while
	open     int               // calls that have begun and not ended
	window   int               // open calls that were due in the window

	in  enb.Message
	out []byte
	pdu []byte

	items []s1ap.Connection // of a Reset

	causes, esmCauses load.Codes
	counts            [procedures]struct{ begun, succeeded, failed int64 }

	stray, malformed, lost, postponed, retried, resets int64
}

// An alarm goes off for a user's call, unless the call has ended.
type alarm struct {
	user   uint32
	serial uint32
	at     time.Duration
}

func newEngine(t load.Trial, p Params) (_ *engine, err error) {
	if p.Transport == s1.SCTP {
		if err := sctp.Possible(); err != nil {
			return nil, err
		}
	}
	pool, err := p.pool(t)
	if err != nil {
		return nil, err
	}
	const stream = 0x73316170 // "s1ap"
	e := &engine{
		params: p, record: load.NewRecorder(t.Duration), random: rand.New(rand.NewPCG(t.Seed, stream)),
		causes: load.Codes{Prefix: "emm-"}, esmCauses: load.Codes{Prefix: "esm-"},
	}
	e.agenda = load.NewAgenda(t.Schedule(p.Arrivals), e.record)
	e.users = make([]user, pool)
	e.detached.Grow(pool)
	for i := range e.users {
		e.users[i].UE, e.users[i].index = ue.New(p.imsi(i), p.network), uint32(i)
		e.detached.Push(uint32(i))
	}
	e.timeouts.Grow(int(min(t.Rate*p.limit().Seconds(), 1<<24)) + burst)
	var targets []netip.AddrPort
	for _, name := range t.Targets {
		target, err := tcpfd.Resolve(name)
		if err != nil {
			return nil, bad("target "+name, err.Error())
		}
		targets = append(targets, target)
	}
	e.targets = len(targets)
	for i := range p.ENodeBs {
		for n, target := range targets {
			e.associations = append(e.associations, &association{
				index: len(e.associations), cell: p.cell(i), target: target, number: n,
			})
		}
	}
	if e.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make an epoll instance: %w", err)
	}
	return e, nil
}

// cell returns an eNodeB. Its S1-U address is in the range for benchmarks (RFC 2544
// appendix C), because the generator has no user plane.
func (p *Params) cell(n int) enb.Cell {
	id := uint32(p.FirstENodeB + n)
	return enb.Cell{
		ID: s1ap.ENB{PLMN: p.network, ID: id}, Name: "vitrine-" + strconv.Itoa(int(id)),
		TAI:     identity.TAI{PLMN: p.network, TAC: uint16(p.TAC)},
		Address: netip.AddrFrom4([4]byte{198, 18, byte(id >> 8), byte(id)}),
	}
}

// run plays the trial until each call of the window has ended or stopped is set.
func (e *engine) run(start time.Time) {
	e.first = start
	before := e.now // by the clock of prepare
	e.clock = func() time.Duration { return time.Since(e.first) }
	e.now = e.clock()
	for _, a := range e.associations {
		a.again = e.now + max(retry, a.again-before)
	}
	for !e.stopped.Load() && e.refused == "" {
		e.now = e.clock()
		e.begin()
		e.alarms()
		e.leave()
		e.reconnect()
		for _, a := range e.associations {
			e.flush(a)
		}
		if _, more := e.agenda.Next(); !more && e.window == 0 {
			return
		}
		thread.Sleep(e.idleTime())
		e.handleReady()
	}
}

// begin starts the calls that are due, as long as UEs are free, up to a burst.
func (e *engine) begin() {
	if e.agenda.Expire(e.now) {
		return
	}
	for range burst {
		if e.detached.Len() == 0 && e.attached.Len() == 0 {
			return
		}
		n := e.agenda.Begun()
		due, ok := e.agenda.Begin(e.now)
		if !ok {
			return
		}
		u, kind := e.choose(due < 0)
		if u == nil {
			return
		}
		a := e.associations[n%len(e.associations)]
		if kind > attachIdle && a.number != u.target { // the association of the same eNodeB with the UE's MME
			a = e.associations[a.index-a.number+u.target]
		}
		e.call(u, kind, a, due)
	}
}

// choose takes a free UE and chooses the procedure of its call. If a mix without detach draws an attach
// when no UE is left to attach, choose refuses the trial and returns nil. Another procedure would be
// another load.
func (e *engine) choose(warm bool) (*user, procedure) {
	switch {
	case e.params.Scenario == Attach:
		return e.take(&e.detached), attach
	case e.params.Scenario == AttachDetach:
		return e.take(&e.detached), attachDetach
	case warm && e.detached.Len() > 0, e.attached.Len() == 0:
		return e.take(&e.detached), attachIdle
	case e.params.Scenario == ServiceRequest:
		return e.take(&e.attached), service
	}
	w := &e.params.weights
	kind := w.draw(e.random.IntN(w.total()))
	switch {
	case kind != attachIdle:
		return e.take(&e.attached), kind
	case e.detached.Len() > 0:
		return e.take(&e.detached), attachIdle
	case w[detach] > 0:
		return e.take(&e.attached), detach
	}
	e.refused = "no UE is left to attach: give the mix a weight for detach, or raise the parameter users"
	return nil, attachIdle
}

func (e *engine) take(from *fifo.Queue[uint32]) *user { return &e.users[from.Pop()] }

// call begins a call.
func (e *engine) call(u *user, kind procedure, a *association, due time.Duration) {
	u.alive, u.due, u.kind, u.stayed = true, due, kind, 0
	e.counts[kind].begun++
	e.open++
	if due >= 0 {
		e.window++
	}
	e.record.Offered(due, e.now)
	u.retries = e.params.Retries
	if a.state != ready && u.retries > 0 {
		a = e.elsewhere(a)
	}
	if a.state != ready {
		e.fail(u, "connect")
		return
	}
	e.start(u, a)
	e.arm(u)
}

// arm sets the alarm of a call, and voids its earlier alarms.
func (e *engine) arm(u *user) {
	u.serial++
	e.timeouts.Push(alarm{user: u.index, serial: u.serial, at: e.now + e.params.limit()})
}

// retry continues a call after its association ended. Without retries, or without
// another MME, the call fails.
func (e *engine) retry(u *user, a *association) {
	if e.params.Retries > 0 && e.finish(u) {
		return
	}
	if other := e.elsewhere(a); u.retries > 0 && other.state == ready {
		e.again(u, other)
		return
	}
	e.fail(u, "reset")
}

// again begins a call again on a new connection. The time that its UE has stayed
// connected counts for neither latency nor timeout.
func (e *engine) again(u *user, a *association) {
	u.retries--
	e.retried++
	if u.step == toLeave {
		u.stayed += e.now - u.since
	}
	if u.stayed > 0 { // the first alarm leaves time for one stay
		e.arm(u)
	}
	e.start(u, a)
}

// elsewhere returns a ready association of the same eNodeB with another MME, or
// else a.
func (e *engine) elsewhere(a *association) *association {
	first := a.index - a.number
	for n := 1; n < e.targets; n++ {
		if other := e.associations[first+(a.number+n)%e.targets]; other.state == ready {
			return other
		}
	}
	return a
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
	for e.timeouts.Len() > 0 && e.timeouts.Front().at <= e.now {
		a := e.timeouts.Pop()
		if u := &e.users[a.user]; u.alive && u.serial == a.serial {
			e.fail(u, "timeout")
		}
	}
}

// handleReady reads what the last turn has left, and handles pending epoll events: enough rounds for one
// event of each association. The kernel keeps the rest for the next turn.
func (e *engine) handleReady() {
	e.octets = maxOctets
	if e.unread {
		e.readRest()
	}
	for range len(e.associations)/batch + 1 {
		n := tcpfd.Events(e.poll, e.events[:])
		e.now = e.clock()
		for i := range n {
			event := &e.events[i]
			if a := e.associations[event.Fd]; a.state != down {
				e.handleEvents(a, event.Events)
			}
		}
		if n < len(e.events) {
			return
		}
	}
}

func (e *engine) succeed(u *user) {
	e.record.SucceededAt(u.due, e.now, e.now-u.due-u.stayed)
	e.counts[u.kind].succeeded++
	e.end(u)
}

// fail ends a call. The MME's state of the UE is then uncertain, so the UE's next
// call attaches by IMSI.
func (e *engine) fail(u *user, cause string) { e.failAs(u, cause, false) }

// failAs fails a call. attached is true if the UE is idle and attached after the call.
func (e *engine) failAs(u *user, cause string, attached bool) {
	e.record.Failed(u.due, e.now, cause)
	e.counts[u.kind].failed++
	u.attached = attached
	e.end(u)
}

// end frees the UE of a call.
func (e *engine) end(u *user) {
	u.alive = false
	e.open--
	if u.due >= 0 {
		e.window--
	}
	if u.attached {
		e.attached.Push(u.index)
	} else {
		e.detached.Push(u.index)
	}
}
