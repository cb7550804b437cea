// Package gtp is the GTPv2-C endpoint of the reference EPC (TS 29.274 clause 7.6):
// requests with retransmission, answers that are sent again for a retransmitted
// request, Echo, and the restart counters of peers. It uses one UDP socket, or a queue
// if its peers are in this process. It has no user plane.
package gtp

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/internal/fifo"
	"vitrine/internal/truth"
	"vitrine/wire/gtpc"
)

// Port is the UDP port of GTP-C (clause 4.2.1).
const Port = 2123

// The errors of requests.
var (
	ErrTimeout = errors.New("gtp: the peer does not answer")
	ErrBusy    = errors.New("gtp: too many requests wait for answers")
	ErrClosed  = errors.New("gtp: the endpoint is closed")
)

// A Message is a message of package wire/gtpc that can be sent.
type Message interface {
	Append(b []byte, teid, sequence uint32) []byte
}

// An Answer is a response of package wire/gtpc that can be received.
type Answer interface {
	Parse(*gtpc.Message) error
}

// A Config sets an endpoint. Zero values mean the defaults.
type Config struct {
	Listen   netip.AddrPort
	Address  netip.Addr    // in F-TEIDs; the address of Listen
	Restart  uint8         // this node's restart counter
	T3       time.Duration // T3-RESPONSE, after which a request is sent again; 3 s
	N3       int           // N3-REQUESTS, how often a request is sent in all; 3
	Pending  int           // most requests that wait for answers; 16,384
	Handling int           // most requests of peers that are being handled; 16,384
	Remember int           // answers kept for retransmitted requests, at most T3 times N3 long; 65,536

	// Handle handles a request of a peer, in a goroutine of its own. It never
	// sees Echo. The request lives until Handle returns; an answer must be sent
	// before. The context has the request's event, if messages are logged.
	Handle func(context.Context, *Request)
	// Restarted is called when a peer's restart counter changed, before the
	// message that shows it is handled. It must not block. May be nil.
	Restarted func(ctx context.Context, peer netip.Addr)

	Registry prometheus.Registerer
	Queues   *Queues    // carries messages within this process, in place of UDP; may be nil
	Messages *truth.Log // nil: messages are not logged
}

// An Endpoint sends and receives GTPv2-C messages. Listen makes one, Serve runs
// it.
type Endpoint struct {
	config  Config
	socket  conn
	counts  *counts
	peers   peers
	room    chan struct{} // a token for each request that is handled
	tasks   sync.WaitGroup
	retired sync.Pool // of *Request

	mu      sync.Mutex
	closed  bool
	next    uint32
	pending map[exchangeKey]*exchange
	due     fifo.Queue[deadline] // all wait for T3, so that they are in order
	free    []*exchange
	answers memory
}

// Listen opens the endpoint's socket. The caller runs Serve, which closes it.
func Listen(ctx context.Context, c Config) (*Endpoint, error) {
	c.setDefaults()
	socket, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	if !c.Address.IsValid() {
		c.Address = c.Listen.Addr()
	}
	return &Endpoint{
		config: c, socket: socket, counts: newCounts(c.Registry),
		room:    make(chan struct{}, c.Handling),
		retired: sync.Pool{New: func() any { return new(Request) }},
		pending: map[exchangeKey]*exchange{},
		// At random: a peer may remember the sequence numbers of an earlier process at
		// this address, and would send the old answers again.
		next:    rand.Uint32N(gtpc.CommandSequence),
		answers: memory{limit: c.Remember, life: c.T3 * time.Duration(c.N3), index: map[exchangeKey]int{}},
	}, nil
}

// open opens the queue or the socket. It sets Listen to the address.
func (c *Config) open(ctx context.Context) (conn, error) {
	if c.Queues != nil {
		return c.Queues.listen(c.Listen)
	}
	packets, err := new(net.ListenConfig).ListenPacket(ctx, "udp", c.Listen.String())
	if err != nil {
		return nil, err
	}
	socket := packets.(*net.UDPConn)
	_ = socket.SetReadBuffer(socketBuffer) // the kernel may allow less
	_ = socket.SetWriteBuffer(socketBuffer)
	c.Listen = socket.LocalAddr().(*net.UDPAddr).AddrPort()
	return socket, nil
}

// socketBuffer holds bursts of requests, in bytes.
const socketBuffer = 4 << 20

func (c *Config) setDefaults() {
	if c.T3 == 0 {
		c.T3 = 3 * time.Second
	}
	if c.N3 == 0 {
		c.N3 = 3
	}
	if c.Pending == 0 {
		c.Pending = 1 << 14
	}
	if c.Handling == 0 {
		c.Handling = 1 << 14
	}
	if c.Remember == 0 {
		c.Remember = 1 << 16
	}
}

// Addr returns the address that the endpoint listens on.
func (e *Endpoint) Addr() netip.AddrPort { return e.config.Listen }

// Own returns an F-TEID of this endpoint.
func (e *Endpoint) Own(i gtpc.Interface, teid uint32) gtpc.Endpoint {
	return endpointAt(e.config.Address, i, teid)
}

// Direct returns an F-TEID of this endpoint for a peer that it sends requests to itself, not
// through the director whose address it advertises. A request that a command triggers then
// comes from the address that the command went to.
func (e *Endpoint) Direct(i gtpc.Interface, teid uint32) gtpc.Endpoint {
	return endpointAt(e.config.Listen.Addr(), i, teid)
}

func endpointAt(a netip.Addr, i gtpc.Interface, teid uint32) gtpc.Endpoint {
	f := gtpc.Endpoint{Interface: i, TEID: teid}
	if a = a.Unmap(); a.Is4() {
		f.V4 = a
	} else {
		f.V6 = a
	}
	return f
}

// Restart returns this node's restart counter, for the Recovery of a message.
func (e *Endpoint) Restart() gtpc.Restart {
	return gtpc.Restart{Given: true, Counter: e.config.Restart}
}

// Serve receives and retransmits until ctx is done. Then it closes the socket,
// ends requests that wait with ErrClosed, and waits for the handlers.
func (e *Endpoint) Serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	stop := context.AfterFunc(ctx, func() { e.socket.Close() })
	defer stop()
	group.Go(func() error { return e.receive(ctx) })
	group.Go(func() error { e.retransmit(ctx); return nil })
	err := group.Wait()
	e.shut()
	e.tasks.Wait()
	return err
}

// Do sends a request and waits for its answer, which it parses. If the answer is
// malformed, the error is a gtpc.Result. A cause that refuses the request is no
// error.
func (e *Endpoint) Do(ctx context.Context, to netip.AddrPort, teid uint32, request Message, answer Answer) error {
	return e.wait(ctx, answer, func(done func(*gtpc.Message, error)) { e.Send(ctx, to, teid, request, done) })
}

// wait waits for the answer of what send sends.
func (e *Endpoint) wait(ctx context.Context, answer Answer, send func(done func(*gtpc.Message, error))) error {
	type outcome struct {
		octets []byte
		err    error
	}
	done := make(chan outcome, 1)
	send(func(m *gtpc.Message, err error) {
		if err != nil {
			done <- outcome{err: err}
			return
		}
		done <- outcome{octets: bytes.Clone(m.Octets)} // the answer's slices outlive the receive buffer
	})
	select {
	case o := <-done:
		if o.err != nil {
			return o.err
		}
		var m gtpc.Message
		if _, err := m.Parse(o.octets); err != nil {
			return err
		}
		return answer.Parse(&m)
	case <-ctx.Done():
		return ctx.Err()
	}
}
