package gtp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"vitrine/internal/truth"
	"vitrine/wire/gtpc"
)

// A Request is a request from a peer.
type Request struct {
	gtpc.Message
	From netip.AddrPort
	// Origin is set if this endpoint has forwarded a command to the peer and the command
	// triggered this request. It is the sequence number of the original command; see
	// Command. Otherwise it is 0.
	Origin uint32

	endpoint *Endpoint
	event    truth.Event
	key      exchangeKey
	buffer   []byte // the message's octets; reused
}

// A Peer is the other end of a session: its F-TEID, and the address to send requests to.
type Peer struct {
	gtpc.Endpoint
	At netip.AddrPort
}

// Peer returns the peer that owns an F-TEID in the request. An endpoint that advertises a
// director's address sends its requests to the director that the request came through,
// because only that director knows the peer's TEID and the sequence numbers of its
// commands.
func (r *Request) Peer(f gtpc.Endpoint) Peer {
	at := r.endpoint.Reach(f)
	if c := &r.endpoint.config; c.Address.Unmap() != c.Listen.Addr().Unmap() {
		at = netip.AddrPortFrom(r.From.Addr(), Port)
	}
	return Peer{Endpoint: f, At: at}
}

// Answer sends the answer, and repeats it for each retransmission of the request.
func (r *Request) Answer(teid uint32, m Message) { r.endpoint.reply(r.key, r.event, teid, m) }

// reply sends an answer to a request and stores it for retransmissions.
func (e *Endpoint) reply(key exchangeKey, of truth.Event, teid uint32, m Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry := e.answers.find(key, time.Now())
	if entry == nil { // later requests have displaced the entry
		e.write(m.Append(nil, teid, key.sequence), key.peer, of)
		return
	}
	entry.octets = m.Append(entry.octets[:0], teid, key.sequence)
	e.write(entry.octets, key.peer, of)
}

// receive receives datagrams until the socket is closed.
func (e *Endpoint) receive(ctx context.Context) error {
	buffer := make([]byte, maxDatagram)
	for {
		n, from, err := e.socket.ReadFromUDPAddrPort(buffer)
		switch {
		case err == nil:
			e.datagram(ctx, buffer[:n], netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
		case errors.Is(err, net.ErrClosed):
			return nil
		default: // an ICMP error for a datagram that was sent
			e.counts.dropped.WithLabelValues(dropSocket).Inc()
		}
	}
}

// maxDatagram is the maximum length of a UDP datagram, in octets.
const maxDatagram = 1<<16 - 1

// datagram handles the messages of a datagram. A piggybacked message follows the first one
// (clause 5.5.1).
func (e *Endpoint) datagram(ctx context.Context, data []byte, from netip.AddrPort) {
	for len(data) > 0 {
		var m gtpc.Message
		n, err := m.Parse(data)
		if err != nil {
			e.malformed(data, from, err)
			return
		}
		e.counts.received[m.Type].Inc()
		e.message(ctx, &m, from)
		if !m.Piggyback {
			return
		}
		data = data[n:]
	}
}

// malformed answers a malformed message (clauses 7.7.2 and 7.7.3), or drops it.
func (e *Endpoint) malformed(data []byte, from netip.AddrPort, err error) {
	var version gtpc.VersionError
	switch {
	case errors.As(err, &version) && !version.Prime():
		if gtpc.Type(data[1]) != gtpc.VersionNotSupported { // two nodes would answer each other without end
			sequence, _ := gtpc.ForeignSequence(data)
			e.write(gtpc.AppendVersionNotSupported(nil, sequence), from, 0)
		}
		e.counts.dropped.WithLabelValues(dropVersion).Inc()
		return
	case errors.Is(err, gtpc.ErrLength):
		if kind, sequence, ok := gtpc.PeekHeader(data); ok {
			if _, ok := kind.Response(); ok {
				e.write(gtpc.Refuse(kind, gtpc.Result{Cause: gtpc.InvalidLength}).Append(nil, 0, sequence), from, 0)
			}
		}
	}
	e.counts.dropped.WithLabelValues(dropMalformed).Inc()
}

// message handles one message.
func (e *Endpoint) message(ctx context.Context, m *gtpc.Message, from netip.AddrPort) {
	if v, ok := m.Find(gtpc.Recovery, 0); ok && len(v) > 0 && e.peers.restarted(from.Addr(), v[0]) {
		e.counts.restarts.Inc()
		if e.config.Restarted != nil {
			e.config.Restarted(ctx, from.Addr())
		}
	}
	switch {
	case m.Type == gtpc.EchoRequest:
		of := e.config.Messages.Begin()
		e.logReceived(m, from, of)
		e.write(gtpc.AppendEchoResponse(nil, m.Sequence, e.config.Restart), from, of)
	case m.Type.IsTriggered():
		e.answered(m, from)
	default:
		e.request(ctx, m, from)
	}
}

// request passes a new request to the handler, and repeats the answer to a retransmitted
// one.
func (e *Endpoint) request(ctx context.Context, m *gtpc.Message, from netip.AddrPort) {
	key := exchangeKey{peer: from, sequence: m.Sequence}
	e.mu.Lock()
	entry := e.answers.find(key, time.Now())
	if entry != nil {
		e.counts.duplicates.Inc()
		e.logReceived(m, from, 0)  // no event: a retransmission has the octets of the first request
		if len(entry.octets) > 0 { // otherwise the request is in progress
			e.write(entry.octets, from, 0)
		}
		e.mu.Unlock()
		return
	}
	select {
	case e.room <- struct{}{}:
		e.answers.add(key, time.Now())
	default:
		e.mu.Unlock()
		e.refuse(m, from)
		return
	}
	origin, done := e.follow(m, from)
	e.mu.Unlock()
	if done != nil {
		done(m, nil)
	}
	r := e.retired.Get().(*Request)
	r.buffer = append(r.buffer[:0], m.Octets...)
	r.From, r.endpoint, r.key, r.Origin, r.event = from, e, key, origin, e.config.Messages.Begin()
	e.logReceived(m, from, r.event)
	if _, err := r.Parse(r.buffer); err != nil {
		panic(err) // never happens: the same octets were parsed before
	}
	e.tasks.Add(1)
	go func() {
		defer e.tasks.Done()
		e.config.Handle(truth.With(ctx, r.event), r)
		e.retired.Put(r)
		<-e.room
	}()
}

// refuse refuses a request because too many are in progress.
func (e *Endpoint) refuse(m *gtpc.Message, from netip.AddrPort) {
	e.counts.dropped.WithLabelValues(dropRoom).Inc()
	of := e.config.Messages.Begin()
	e.logReceived(m, from, of)
	if _, ok := m.Type.Response(); ok {
		e.write(gtpc.Refuse(m.Type, gtpc.Result{Cause: gtpc.EntityCongestion}).Append(nil, 0, m.Sequence), from, of)
	}
}
