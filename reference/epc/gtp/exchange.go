package gtp

import (
	"context"
	"net/netip"
	"time"

	"vitrine/internal/truth"
	"vitrine/wire/gtpc"
)

// An exchange is a request of this endpoint without an answer yet.
type exchange struct {
	octets   []byte // the request; the slice is reused
	to       netip.AddrPort
	sequence uint32
	origin   uint32 // see order
	answer   gtpc.Type
	sent     int // number of transmissions
	event    truth.Event
	serial   uint64
	done     func(*gtpc.Message, error)
}

// A deadline is the time of an exchange's next retransmission. If the exchange's serial
// differs, the exchange has ended and the deadline is void.
type deadline struct {
	x      *exchange
	serial uint64
	at     time.Time
}

// Send sends a request. done is called once, with the answer or an error (ErrTimeout,
// ErrBusy, ErrClosed), perhaps before Send returns. done must not block, and the answer is
// valid until done returns. Send uses only the event of ctx.
func (e *Endpoint) Send(ctx context.Context, to netip.AddrPort, teid uint32, request Message, done func(answer *gtpc.Message, err error)) {
	e.start(ctx, to, teid, order{}, request, done)
}

// start begins an exchange of the context's event. It passes an error to done.
func (e *Endpoint) start(ctx context.Context, to netip.AddrPort, teid uint32, o order, request Message, done func(*gtpc.Message, error)) {
	if err := e.begin(truth.From(ctx), to, teid, o, request, done); err != nil {
		done(nil, err)
	}
}

func (e *Endpoint) begin(of truth.Event, to netip.AddrPort, teid uint32, o order, request Message, done func(*gtpc.Message, error)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return ErrClosed
	case len(e.pending) >= e.config.Pending:
		e.counts.busy.Inc()
		return ErrBusy
	}
	if o.sequence != 0 && e.pending[pendingKey(to.Addr(), o.sequence)] != nil {
		return ErrBusy // the peer has reused the sequence number too early
	}
	x := e.take()
	if of == 0 {
		of = e.config.Messages.Begin()
	}
	x.to, x.done, x.sent, x.origin, x.event = to, done, 0, o.origin, of
	x.sequence = o.sequence
	if x.sequence == 0 {
		x.sequence = e.sequence(to.Addr(), o.command)
	}
	x.octets = request.Append(x.octets[:0], teid, x.sequence)
	kind := gtpc.Type(x.octets[1])
	if x.answer, _ = kind.Response(); kind.IsCommand() {
		x.answer = failureOf(kind)
	}
	e.pending[pendingKey(to.Addr(), x.sequence)] = x
	e.transmit(x, time.Now())
	return nil
}

// take returns an unused exchange. The caller holds mu.
func (e *Endpoint) take() *exchange {
	if n := len(e.free); n > 0 {
		x := e.free[n-1]
		e.free = e.free[:n-1]
		return x
	}
	return new(exchange)
}

// sequence returns a sequence number that no exchange with the peer has. The highest bit is
// set for commands (clause 7.6). The caller holds mu.
func (e *Endpoint) sequence(to netip.Addr, command bool) uint32 {
	bit := uint32(0)
	if command {
		bit = gtpc.CommandSequence
	}
	for {
		e.next = (e.next + 1) & (gtpc.CommandSequence - 1)
		if _, taken := e.pending[pendingKey(to, e.next|bit)]; !taken {
			return e.next | bit
		}
	}
}

// transmit sends the request of an exchange, and schedules a retransmission after T3. The
// caller holds mu.
func (e *Endpoint) transmit(x *exchange, now time.Time) {
	x.sent++
	e.write(x.octets, x.to, x.event)
	e.due.Push(deadline{x: x, serial: x.serial, at: now.Add(e.config.T3)})
}

// end ends an exchange and returns its callback. The caller holds mu.
func (e *Endpoint) end(x *exchange) func(*gtpc.Message, error) {
	done := x.done
	delete(e.pending, pendingKey(x.to.Addr(), x.sequence))
	x.done = nil
	x.serial++
	e.free = append(e.free, x)
	return done
}

// write sends a message of an event. It only counts errors, because UDP may lose the
// message anyway.
func (e *Endpoint) write(b []byte, to netip.AddrPort, of truth.Event) {
	if _, err := e.socket.WriteToUDPAddrPort(b, to); err != nil {
		e.counts.unsent.Inc()
		return
	}
	e.counts.sent[b[1]].Inc()
	if e.config.Messages != nil {
		e.config.Messages.Write(truth.Line{
			Src: e.config.Listen, Dst: to, Protocol: truth.GTP, Name: gtpc.Type(b[1]).String(), Event: of, Key: truth.Hash(b),
		})
	}
}

// logReceived logs a received message.
func (e *Endpoint) logReceived(m *gtpc.Message, from netip.AddrPort, of truth.Event) {
	if e.config.Messages != nil {
		e.config.Messages.Write(truth.Line{
			Src: from, Dst: e.config.Listen, Received: true, Protocol: truth.GTP, Name: m.Type.String(), Event: of, Key: truth.Hash(m.Octets),
		})
	}
}

// answered ends the exchange that a response belongs to. It ignores the peer's port: clause
// 4.2.2.2 requires answers from the port of the request, but NextEPC uses another port.
func (e *Endpoint) answered(m *gtpc.Message, from netip.AddrPort) {
	e.mu.Lock()
	x, ok := e.pending[pendingKey(from.Addr(), m.Sequence)]
	if !ok || m.Type != x.answer {
		e.mu.Unlock()
		e.counts.dropped.WithLabelValues(dropStray).Inc()
		e.logReceived(m, from, 0)
		return
	}
	of, done := x.event, e.end(x)
	e.mu.Unlock()
	e.logReceived(m, from, of)
	done(m, nil)
}

// retransmit retransmits requests whose answers are late, until ctx is done.
func (e *Endpoint) retransmit(ctx context.Context) {
	timer := time.NewTimer(e.config.T3)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(e.expire(time.Now()))
		}
	}
}

// expire handles the deadlines up to now, and returns the time until the next one.
func (e *Endpoint) expire(now time.Time) time.Duration {
	var late []func(*gtpc.Message, error)
	next := e.config.T3
	e.mu.Lock()
	for e.due.Len() > 0 {
		d := e.due.Front()
		if wait := d.at.Sub(now); wait > 0 {
			next = wait
			break
		}
		x, valid := d.x, d.serial == d.x.serial
		e.due.Pop()
		switch {
		case !valid:
		case x.sent < e.config.N3:
			e.counts.retransmitted.Inc()
			e.transmit(x, now)
		default:
			e.counts.timeouts.Inc()
			late = append(late, e.end(x))
		}
	}
	e.mu.Unlock()
	for _, done := range late {
		done(nil, ErrTimeout)
	}
	return next
}

// shut ends all exchanges, and makes begin refuse new ones.
func (e *Endpoint) shut() {
	e.mu.Lock()
	e.closed = true
	var left []func(*gtpc.Message, error)
	for _, x := range e.pending {
		left = append(left, e.end(x))
	}
	e.mu.Unlock()
	for _, done := range left {
		done(nil, ErrClosed)
	}
}
