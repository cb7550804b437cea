// Package homestead is the subscriber database of the reference IMS. It gives
// authentication vectors and profiles to Sprout, and stores the state of
// registrations, replicated among its instances.
package homestead

import (
	"context"
	"io"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/ims"
	"vitrine/reference/ims/replica"
	"vitrine/reference/ims/rest"
)

// Run runs a Homestead until ctx is done. The error is a *vitrine.BadInput for
// wrong arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("homestead", "Homestead is the subscriber database of the reference IMS.", stdout, stderr)
	var listen netip.AddrPort
	c.Addr(&listen, "listen", true, "address for Sprout, HTTP: IP:PORT")
	var cluster ims.Cluster
	c.Cluster(&cluster, "Homesteads")
	subscribers := c.Int("subscribers", 1<<28, "subscribers: sub000000@ims.test and up, password pw-sub000000 and up")
	copies := c.Int("copies", 3, "copies of each row; a read asks a majority of them")
	ask := c.Duration("peer-timeout", 500*time.Millisecond, "how long another Homestead's answer may take")
	c.Positive("subscribers", "copies", "peer-timeout")
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	listener, err := ims.Listen(ctx, "listen", listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	peers, err := ims.Listen(ctx, "self", cluster.Self)
	if err != nil {
		return err
	}
	rows := replica.New(replica.Config{
		Self: cluster.Self, Peers: cluster.Peers, Copies: *copies, Read: replica.Quorum, Ask: *ask,
		Derive: provision(*subscribers), Log: c.Log, Metrics: c.Registry,
	})
	s := &server{
		rows: rows, log: c.Log,
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "homestead_requests_total", Help: "Requests answered, by kind."}, []string{"kind"}),
	}
	c.Registry.MustRegister(s.requests)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.rows.Run(ctx, peers) })
	group.Go(func() error { return rest.Serve(ctx, listener, c.Messages.Server(s.handler()), c.Log) })
	return rest.Wait(ctx, group, c, listener.Addr())
}
