// Package bono is the edge proxy of the reference IMS, the P-CSCF. It exchanges
// SIP over UDP with clients and, through a pool of connections, with all Sprouts.
// Instances do not know each other.
package bono

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"net/netip"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/ims"
	"vitrine/reference/ims/overload"
	"vitrine/reference/ims/rest"
	"vitrine/reference/ims/sipudp"
)

// Run runs a Bono until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("bono", "Bono is the SIP edge proxy of the reference IMS.", stdout, stderr)
	var listen netip.AddrPort
	var sprouts, directors []netip.AddrPort
	c.Own(&listen, "listen", "address for clients and for requests from Sprout, UDP: IP:PORT")
	c.Addrs(&sprouts, "sprout", true, "all Sprouts: IP:PORT,IP:PORT,...")
	c.Addrs(&directors, "director", false, "directors in front, which phones know instead: IP:PORT,IP:PORT,...; Bono adds no Path, because it may be gone when a call comes; Sprout needs the same")
	connections := c.Int("connections", 50, "connections to Sprouts, shared among all of them")
	refresh := c.Duration("refresh", time.Minute, "mean life of a connection; replaced at random (Poisson)")
	asideAfter := c.Int("aside-after", 50, "set a Sprout aside when its timeouts (in clearwater also its 503s) exceed its other answers by this number")
	asideFor := c.Duration("aside-for", 2*time.Second, "how long a Sprout is set aside")
	timeout := c.Duration("timeout", 5*time.Second, "answer 408 after this time without an answer from Sprout or a client")
	var mode string
	c.OneOf(&mode, "overload", overload.Modes(), "load control")
	delay := c.Duration("target-delay", 200*time.Millisecond, "graceful: refuse new calls when every answer takes longer than this")
	target := c.Duration("target-latency", 100*time.Millisecond, "clearwater: shed load when messages wait longer than this in the receive queue")
	rate := c.Float64("initial-rate", 5000, "clearwater: requests/s admitted at the start")
	c.Positive("connections", "refresh", "aside-after", "aside-for", "timeout", "target-delay", "target-latency", "initial-rate")
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}

	socket, err := sipudp.Listen(listen)
	if err != nil {
		return ims.ListenError("listen", listen, err)
	}
	socket.Messages = c.Messages
	p := newProxy(socket, c.Log, c.Registry)
	p.directors = directors
	switch mode {
	case overload.Graceful:
		p.admit(overload.NewWindow(*delay, time.Now()), c.Registry)
	case overload.Clearwater:
		p.load = overload.New(overload.Config{Target: *target, Initial: *rate}, time.Now())
	}
	p.transactions = sipudp.NewTransactions(*timeout, p.timedOut)
	p.transactions.Messages = c.Messages
	p.receiver = &sipudp.Receiver{
		Transactions: p.transactions, Upstream: socket, Parser: sip.NewParser(), Garbage: p.counts.garbage, Log: c.Log,
		Begun: p.begun, Ack: p.forwardAck, Response: p.response,
	}
	p.pool, err = newPool(poolConfig{
		local: listen.Addr(), sentBy: p.sentBy(), sprouts: sprouts, connections: *connections, refresh: *refresh,
		asideAfter: *asideAfter, asideFor: *asideFor, busyIsFailure: mode == overload.Clearwater, messages: c.Messages,
	}, p.receiver.Receive, p.transactions.InUse, c.Log, p.counts.asides)
	if err != nil {
		socket.Close()
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { p.pool.run(ctx); return nil })
	group.Go(func() error { p.transactions.Run(ctx); return nil })
	group.Go(func() error { return socket.Serve(p.arrive, nil) })
	group.Go(func() error { <-ctx.Done(); return socket.Close() })
	return rest.Wait(ctx, group, c, socket.Local())
}

// newProxy returns a proxy without its pool, transactions, receiver and load control.
func newProxy(socket *sipudp.Socket, log *slog.Logger, registry *prometheus.Registry) *proxy {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // never fails (crypto/rand)
	p := &proxy{
		socket: socket, flows: flows{secret}, log: log,
		counts: newCounts(registry),
	}
	ims.Gauges(registry, "bono")("transactions", "Transactions held.", func() float64 {
		return float64(p.transactions.Held())
	})
	return p
}

type counts struct {
	requests, forwarded, refused, shed, broken, timeouts, garbage, asides prometheus.Counter
}

func newCounts(registry *prometheus.Registry) counts {
	counter := ims.Counters(registry, "bono")
	return counts{
		requests:  counter("requests", "Requests received, without retransmissions."),
		forwarded: counter("forwarded", "Requests forwarded to Sprouts or clients."),
		refused:   counter("sprout_503", "Answers 503 from Sprouts."),
		shed:      counter("rejected", "Requests rejected with 503 by Bono itself."),
		broken:    counter("rejected_admitted", "Rejected requests of calls that were admitted before; 0 in clearwater, which does not tell calls apart."),
		timeouts:  counter("timeouts", "Requests that nobody answered in time."),
		garbage:   counter("garbage", "Datagrams that were no usable SIP message."),
		asides:    counter("set_aside", "Times that a Sprout was set aside."),
	}
}
