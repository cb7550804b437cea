// Package sprout is the registrar and router of the reference IMS, the S-CSCF.
// Its instances share registrations, challenges and expiry timers.
package sprout

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
	"vitrine/reference/ims/overload"
	"vitrine/reference/ims/rest"
	"vitrine/reference/ims/sipudp"
	"vitrine/reference/keep"
)

// homesteadConnections is the number of connections kept to each Homestead, and to Homer.
const homesteadConnections = 50

// A config holds the values of Sprout's command line.
type config struct {
	listen                 netip.AddrPort
	homestead, homer, ralf []netip.AddrPort
	directors              []netip.AddrPort
	cluster                ims.Cluster
	store                  keep.Config
	publish                string // what the keeper gets
	homesteadTimeout       time.Duration
	copies                 int
	peerTimeout            time.Duration
	workers, queue         int
	overload               string // mode of load control
	target                 time.Duration
	initialRate            float64
	maxExpires, timeout    time.Duration
}

// flags declares the command line.
func (k *config) flags(c *ims.Command) {
	c.Own(&k.listen, "listen", "address for Bono, SIP over UDP: IP:PORT")
	c.Addrs(&k.homestead, "homestead", true, "all Homesteads: IP:PORT,IP:PORT,...")
	c.Addrs(&k.homer, "homer", false, "Homer: IP:PORT; empty: every user has the default telephony settings")
	c.Addrs(&k.ralf, "ralf", false, "Ralf: IP:PORT; empty: nothing is charged")
	c.Addrs(&k.directors, "director", false, "directors in front of the Bonos, which need the same: IP:PORT,IP:PORT,...; requests to phones leave through a Bono, because directors know no Sprouts")
	c.Cluster(&k.cluster, "Sprouts")
	k.store.Flags(c, "registrations, challenges and timers, in place of --peers,", "sprout")
	c.OneOf(&k.publish, "publish", []string{publishPersistent, publishAll}, "what is kept for the other Sprouts; all: also the messages of each transaction")
	c.IntVar(&k.copies, "copies", 2, "copies of each registration, challenge and timer")
	c.DurationVar(&k.peerTimeout, "peer-timeout", 500*time.Millisecond, "how long another Sprout's answer may take")
	c.DurationVar(&k.homesteadTimeout, "homestead-timeout", 2500*time.Millisecond, "answer 408 when Homestead takes longer than this")
	c.IntVar(&k.workers, "workers", 50, "requests handled at the same time")
	c.IntVar(&k.queue, "queue", 1000, "requests that may wait for a worker; more are rejected with 503")
	c.OneOf(&k.overload, "overload", overload.Modes(), "load control; only clearwater sheds load before the queue is full")
	c.DurationVar(&k.target, "target-latency", 100*time.Millisecond, "clearwater: shed load when requests take longer than this, from the kernel's queue to the answer")
	c.Float64Var(&k.initialRate, "initial-rate", 1000, "clearwater: requests/s admitted at the start")
	c.DurationVar(&k.maxExpires, "max-expires", 10*time.Minute, "longest registration or subscription granted")
	c.DurationVar(&k.timeout, "timeout", 5*time.Second, "answer 408 after this time without an answer from a client")
	c.Positive("copies", "peer-timeout", "homestead-timeout", "workers", "queue", "target-latency", "initial-rate", "max-expires", "timeout")
}

// Run runs a Sprout until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("sprout", "Sprout is the registrar and router of the reference IMS.", stdout, stderr)
	var k config
	k.flags(c)
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	if err := k.store.Check(c); err != nil {
		return err
	}
	if k.store.Given() && len(k.cluster.Peers) > 0 {
		return c.Bad("--store and --peers", "give one of them: with a store, Sprouts do not know each other")
	}
	peers, err := ims.Listen(ctx, "self", k.cluster.Self)
	if err != nil {
		return err
	}
	if peers != nil {
		defer peers.Close()
	}
	socket, err := sipudp.Listen(k.listen)
	if err != nil {
		return ims.ListenError("listen", k.listen, err)
	}
	records, err := k.keeper(peers, c)
	if err != nil {
		socket.Close()
		return err
	}
	s := newServer(k, socket, records, c.Log, c.Registry)
	s.logMessages(c.Messages)
	return s.run(ctx, k, c)
}

// keeper returns the keeper that the flags choose.
func (k *config) keeper(peers net.Listener, c *ims.Command) (keeper, error) {
	if !k.store.Given() {
		return newReplicas(*k, peers, c.Log, c.Registry), nil
	}
	k.store.Messages = c.Messages
	store, err := keep.New(k.store, "sprout", c.Log, c.Registry)
	if err != nil {
		return nil, err
	}
	c.Connected = store.Connected
	return store, nil
}

func newServer(k config, socket *sipudp.Socket, records keeper, log *slog.Logger, registry *prometheus.Registry) *server {
	local := k.listen.Addr()
	s := &server{
		socket: socket, ours: map[netip.AddrPort]bool{socket.Local(): true}, directors: k.directors,
		queue: make(chan *sipudp.Transaction, k.queue), charges: make(chan chargeable, 1000), unwatched: make(chan watcher, 1000),
		home:    rest.NewClient("homestead", k.homestead, homesteadConnections, k.homesteadTimeout, local, registry),
		records: records, maxExpires: k.maxExpires, log: log, counts: newCounts(registry),
	}
	if len(k.homer) > 0 {
		s.homer = rest.NewClient("homer", k.homer, homesteadConnections, k.homesteadTimeout, local, registry)
	}
	if len(k.ralf) > 0 {
		s.ralf = rest.NewClient("ralf", k.ralf, 4, k.homesteadTimeout, local, registry)
	}
	s.transactions = sipudp.NewTransactions(k.timeout, s.timedOut)
	if k.publish == publishAll {
		s.answered = make(chan *sipudp.Transaction, k.queue)
	}
	if k.overload == overload.Clearwater {
		s.load = overload.New(overload.Config{Target: k.target, Initial: k.initialRate}, time.Now())
		gauge := ims.Gauges(registry, "sprout")
		gauge("token_rate", "Requests/s admitted at present.", s.load.Rate)
		gauge("latency_seconds", "Moving average of the latency of requests.", func() float64 { return s.load.Latency().Seconds() })
	}
	return s
}

// logMessages makes the server log its messages.
func (s *server) logMessages(log *truth.Log) {
	s.socket.Messages, s.transactions.Messages, s.home.Messages = log, log, log
	for _, c := range []*rest.Client{s.homer, s.ralf} {
		if c != nil {
			c.Messages = log
		}
	}
}

func (s *server) run(ctx context.Context, k config, c *ims.Command) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.records.Run(ctx, s.expire) })
	group.Go(func() error { s.transactions.Run(ctx); return nil })
	var working sync.WaitGroup // the goroutines that call charge
	for range k.workers {
		working.Go(func() { s.work(ctx) })
	}
	group.Go(func() error { s.endSubscriptions(ctx); return nil })
	if s.ralf != nil {
		for range 4 {
			group.Go(func() error { s.sendCharges(ctx); return nil })
		}
	}
	receiver := &sipudp.Receiver{
		Transactions: s.transactions, Upstream: s.socket, Parser: sip.NewParser(), Garbage: s.counts.garbage, Log: s.log,
		Begun: s.begun, Ack: s.ack, Response: s.response,
	}
	working.Add(1)
	group.Go(func() error {
		defer working.Done()
		return s.socket.Serve(receiver.Receive, nil)
	})
	group.Go(func() error { working.Wait(); close(s.charges); return nil })
	group.Go(func() error { <-ctx.Done(); return s.socket.Close() })
	err := rest.Wait(ctx, group, c, s.socket.Local())
	s.home.Close()
	for _, c := range []*rest.Client{s.homer, s.ralf} {
		if c != nil {
			c.Close()
		}
	}
	return err
}
