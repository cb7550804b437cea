// Package sgw is the S-GW of the reference EPC. It connects MMEs on S11 with
// P-GWs on S5 (TS 29.274) and keeps the bearers of UEs. It has no user plane:
// nobody listens at the tunnels that its GTP-U F-TEIDs name. An HTTP request
// stands for a downlink packet.
package sgw

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/gtp"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
	"vitrine/wire/identity"
)

// A server is an S-GW.
type server struct {
	endpoint   *gtp.Endpoint
	procedures *gtp.Procedures
	lost       prometheus.Counter
	tasks      *errgroup.Group // requests for removed connections

	mu    sync.Mutex
	teids *gtp.Table[entry]
	ues   map[identity.Digits]*ue // by IMSI
}

// A Config configures an S-GW.
type Config struct {
	Node     gtp.Node
	Downlink netip.AddrPort // for POST /downlink/IMSI; zero: none
}

// Flags declares the flags, except those of the node.
func (k *Config) Flags(c *ims.Command) {
	c.Addr(&k.Downlink, "downlink", false, "address for POST /downlink/IMSI, which stands for a downlink packet, HTTP: IP:PORT; none if empty")
}

// Run runs an S-GW until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("sgw", "The S-GW of the reference EPC: S11 and S5, without a user plane.", stdout, stderr)
	var k Config
	k.Node.Flags(c)
	k.Flags(c)
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	endpoint, err := k.Start(ctx, group, c)
	if err != nil {
		return err
	}
	return rest.Wait(ctx, group, c, endpoint.Addr())
}

// Start runs an S-GW in a group until ctx is done.
func (k *Config) Start(ctx context.Context, group *errgroup.Group, c *ims.Command) (*gtp.Endpoint, error) {
	packets, err := ims.Listen(ctx, "downlink", k.Downlink)
	if err != nil {
		return nil, err
	}
	s := &server{
		procedures: gtp.NewProcedures(c.Registry, "sgw"),
		lost:       ims.Counters(c.Registry, "sgw")("sessions_lost", "PDN connections removed because their MME or P-GW restarted."),
		teids:      gtp.NewTable[entry](2*k.Node.Sessions, k.Node.Prefix), // a UE and its connection need one TEID each
		ues:        map[identity.Digits]*ue{},
		tasks:      group,
	}
	ims.Gauges(c.Registry, "sgw")("ues", "UEs with a PDN connection.", s.count)
	if s.endpoint, err = k.Node.Listen(ctx, c, s.handle, s.restarted); err != nil {
		if packets != nil {
			err = errors.Join(err, packets.Close())
		}
		return nil, err
	}
	group.Go(func() error { return s.endpoint.Serve(ctx) })
	if packets != nil {
		group.Go(func() error { return rest.Serve(ctx, packets, s.downlinks(), c.Log) })
	}
	return s.endpoint, nil
}

// count returns the number of UEs.
func (s *server) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.ues))
}
