// Package sgw is the S-GW of the reference EPC: it stands between MMEs on S11 and
// P-GWs on S5 (TS 29.274) and keeps the bearers of UEs. It has no user plane: its
// F-TEIDs for GTP-U name tunnels where nobody listens. A request over HTTP stands
// for a downlink packet.
package sgw

import (
	"context"
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

	mu    sync.Mutex
	teids *gtp.Table[entry]
	ues   map[identity.Digits]*ue // by IMSI
}

// Run runs an S-GW until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("sgw", "The S-GW of the reference EPC: S11 and S5, without a user plane.", stdout, stderr)
	var node gtp.Node
	node.Flags(c)
	var downlink netip.AddrPort
	c.Addr(&downlink, "downlink", false, "address for POST /downlink/IMSI, which stands for a downlink packet, HTTP: IP:PORT; none if empty")
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	packets, err := ims.Listen(ctx, "downlink", downlink)
	if err != nil {
		return err
	}
	if packets != nil {
		defer packets.Close()
	}
	s := &server{
		procedures: gtp.NewProcedures(c.Registry, "sgw"),
		lost:       prometheus.NewCounter(prometheus.CounterOpts{Name: "sgw_sessions_lost_total", Help: "PDN connections removed because their MME or P-GW restarted."}),
		teids:      gtp.NewTable[entry](2*node.Sessions, node.Prefix), // a UE and its connection have one each
		ues:        map[identity.Digits]*ue{},
	}
	c.Registry.MustRegister(s.lost, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sgw_ues", Help: "UEs with a PDN connection."}, s.count))
	if s.endpoint, err = node.Listen(ctx, c, s.handle, s.restarted); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.endpoint.Serve(ctx) })
	if packets != nil {
		group.Go(func() error { return rest.Serve(ctx, packets, s.downlinks(), c.Log) })
	}
	return rest.Wait(ctx, group, c, s.endpoint.Addr())
}

// count returns the number of UEs.
func (s *server) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.ues))
}
