// Package gtp is the GTPv2-C endpoint of the reference EPC (TS 29.274 clause 7.6). It
// retransmits requests, repeats its answer to a retransmitted request, answers Echo, and
// tracks the restart counters of peers. It uses one UDP socket, or a queue if its peers are
// in this process. It has no user plane.
package gtp

import (
	"cmp"
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

// A Message is a message of package wire/gtpc to send.
type Message interface {
	Append(b []byte, teid, sequence uint32) []byte
}

// An Answer is a response of package wire/gtpc to receive.
type Answer interface {
	Parse(*gtpc.Message) error
}

// A Config configures an endpoint. Zero values mean the defaults.
type Config struct {
	Listen   netip.AddrPort
	Address  netip.Addr    // in F-TEIDs; default: the address of Listen
	Restart  uint8         // this node's restart counter
	T3       time.Duration // T3-RESPONSE, the time until a request is retransmitted; 3 s
	N3       int           // N3-REQUESTS, how many times a request is sent in total; 3
	Pending  int           // most requests that have no answer yet; 16,384
	Handling int           // most requests from peers in progress; 16,384
	Remember int           // most answers kept for retransmitted requests, each for T3 times N3; 65,536

	// Handle handles a request from a peer, in its own goroutine. It gets no Echo Requests.
	// The request is valid until Handle returns, so Handle must send the answer before. If
	// messages are logged, the context has the request's event.
	Handle func(context.Context, *Request)
	// Restarted is called when a peer's restart counter has changed, before the endpoint
	// handles the message with the new counter. It must not block. It may be nil.
	Restarted func(ctx context.Context, peer netip.Addr)

	Registry prometheus.Registerer
	Queues   *Queues    // carries messages within this process, instead of UDP; may be nil
	Messages *truth.Log // nil: messages are not logged
}

// An Endpoint sends and receives GTPv2-C messages. Listen opens one, and Serve runs it.
type Endpoint struct {
	config  Config
	socket  conn
	counts  *counts
	peers   peers
	room    chan struct{} // a token for each request in progress
	tasks   sync.WaitGroup
	retired sync.Pool // of *Request

	mu      sync.Mutex
	closed  bool
	next    uint32
	pending map[exchangeKey]*exchange
	due     fifo.Queue[deadline] // sorted, because all deadlines are T3 ahead
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
		// Random, because a peer may remember the sequence numbers of an earlier process at
		// this address, and would then repeat its old answers.
		next:    rand.Uint32N(gtpc.CommandSequence),
		answers: memory{limit: c.Remember, life: c.T3 * time.Duration(c.N3), index: map[exchangeKey]int{}},
	}, nil
}

// open opens the queue or the socket, and sets Listen to its address.
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
	c.T3 = cmp.Or(c.T3, t3)
	c.N3 = cmp.Or(c.N3, n3)
	c.Pending = cmp.Or(c.Pending, 1<<14)
	c.Handling = cmp.Or(c.Handling, 1<<14)
	c.Remember = cmp.Or(c.Remember, 1<<16)
}

// Addr returns the address that the endpoint listens on.
func (e *Endpoint) Addr() netip.AddrPort { return e.config.Listen }

// Own returns an F-TEID of this endpoint.
func (e *Endpoint) Own(i gtpc.Interface, teid uint32) gtpc.Endpoint {
	return endpointAt(e.config.Address, i, teid)
}

// Direct returns an F-TEID with this endpoint's own address, for a peer that it sends
// requests to directly, not through the director that it advertises. A request that a
// command triggers then comes from the address that the command was sent to.
func (e *Endpoint) Direct(i gtpc.Interface, teid uint32) gtpc.Endpoint {
	return endpointAt(e.config.Listen.Addr(), i, teid)
}

// Reach returns the address for requests to the owner of an F-TEID. If the F-TEID has both
// addresses, it is the one of this endpoint's family.
func (e *Endpoint) Reach(f gtpc.Endpoint) netip.AddrPort {
	if f.V6.IsValid() && e.config.Listen.Addr().Unmap().Is6() {
		return netip.AddrPortFrom(f.V6, Port)
	}
	return netip.AddrPortFrom(f.Addr(), Port)
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

// Restart returns this node's restart counter as the Recovery of a message.
func (e *Endpoint) Restart() gtpc.Restart {
	return gtpc.Restart{Given: true, Counter: e.config.Restart}
}

// Serve receives and retransmits until ctx is done. Then it closes the socket, ends pending
// requests with ErrClosed, and waits for the handlers.
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

// Do sends a request, waits for its answer and parses it. If the answer is malformed, the
// error is a gtpc.Result. A cause that refuses the request is not an error.
func (e *Endpoint) Do(ctx context.Context, to netip.AddrPort, teid uint32, request Message, answer Answer) error {
	return e.DoTriggered(ctx, to, teid, 0, request, answer)
}
