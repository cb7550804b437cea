// Package homestead is the subscriber database of the reference IMS: it gives
// Sprout authentication vectors and profiles, and remembers the state of
// registrations, replicated among its instances.
package homestead

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/ims"
	"vitrine/reference/ims/replica"
	"vitrine/reference/ims/rest"
)

// Run runs a Homestead until ctx is done. The error is a *vitrine.BadInput
// when the arguments are wrong.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("homestead", "Homestead is the subscriber database of the reference IMS.", stdout)
	c.String("listen", "", "address for Sprout, HTTP: IP:PORT")
	c.String("self", "", "address for the other Homesteads, as in --peers: IP:PORT")
	c.String("peers", "", "all Homesteads, this one included: IP:PORT,IP:PORT,...")
	subscribers := c.Int("subscribers", 200_000, "subscribers: sub000000@ims.test and up, password pw-sub000000 and up")
	copies := c.Int("copies", 3, "copies of each row; reads and writes want a majority of them")
	ask := c.Duration("peer-timeout", 500*time.Millisecond, "how long another Homestead's answer may take")
	charging := c.String("charging-function", "ralf."+ims.Domain, "charging function named in profiles, comma-separated")
	c.String("metrics", "", "serve counters over HTTP at IP:PORT/metrics")
	switch err := c.Parse(args); {
	case errors.Is(err, ims.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	listen, err := c.Addr("listen", true)
	if err != nil {
		return err
	}
	metrics, err := c.Addr("metrics", false)
	if err != nil {
		return err
	}
	if err := c.Positive("subscribers", "copies", "peer-timeout"); err != nil {
		return err
	}
	cluster, err := c.Cluster()
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", listen.String())
	if err != nil {
		return ims.ListenError("listen", listen, err)
	}
	defer listener.Close()
	registry := prometheus.NewRegistry()
	rows := replica.New(replica.Config{
		Self: cluster.Self, Peers: cluster.Peers, Copies: *copies, Read: replica.Quorum, Ask: *ask,
		Derive: provision(*subscribers), Log: log, Metrics: registry,
	})
	s := &server{
		rows: rows, charging: strings.Split(*charging, ","), log: log,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "homestead_requests_total", Help: "Requests answered, by kind."}, []string{"kind"}),
	}
	registry.MustRegister(s.requests)
	return s.run(ctx, listener, cluster.Self, metrics, registry, stdout)
}

func (s *server) run(ctx context.Context, listener net.Listener, self, metrics netip.AddrPort, registry *prometheus.Registry, stdout io.Writer) error {
	peers, err := replica.Listen(ctx, self)
	if err != nil {
		return ims.ListenError("self", self, err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.rows.Run(ctx, peers) })
	group.Go(func() error { return rest.Serve(ctx, listener, s.handler(), s.log) })
	if err := rest.ServeMetrics(ctx, group, metrics, registry, s.log); err != nil {
		group.Go(func() error { return err })
	} else {
		fmt.Fprintf(stdout, "homestead: ready on %s\n", listener.Addr())
	}
	return group.Wait()
}
