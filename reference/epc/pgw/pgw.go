// Package pgw is the P-GW of the reference EPC: PDN connections over S5 (TS
// 29.274), IPv4 addresses from a pool, and policy over Gx (TS 29.212) if there is
// a PCRF. It has no user plane: its F-TEIDs for GTP-U name tunnels where nobody
// listens.
package pgw

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
)

// A server is a P-GW.
type server struct {
	endpoint   *gtp.Endpoint
	pcef       *diameter.PCEF // nil without a PCRF
	apns       []string       // names that are served
	procedures *gtp.Procedures
	gxFailed   prometheus.Counter
	lost       prometheus.Counter
	tasks      *errgroup.Group // Gx requests about sessions that are gone

	mu       sync.Mutex
	sessions *gtp.Table[*session]
	keys     map[sessionKey]*session
	pool     *pool
	charging uint32 // the last charging identity
}

// Run runs a P-GW until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("pgw", "The P-GW of the reference EPC: S5 and Gx, without a user plane.", stdout, stderr)
	var node gtp.Node
	node.Flags(c)
	var pcrf netip.AddrPort
	c.Addr(&pcrf, "pcrf", false, "PCRF, Diameter over TCP: IP:PORT; none if empty")
	apns := c.String("apn", "internet,ims", "access point names served, comma-separated")
	prefix := c.String("pool", "10.45.0.0/16", "addresses for UEs: an IPv4 prefix of 8 to 30 bits")
	name := c.String("diameter-host", "pgw.epc.test", "Diameter identity, in the realm after the first dot")
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	network, err := netip.ParsePrefix(*prefix)
	if err != nil {
		return c.Bad(fmt.Sprintf("--pool %q", *prefix), "want a prefix, such as 10.45.0.0/16")
	}
	addresses, err := newPool(network)
	if err != nil {
		return c.Bad(fmt.Sprintf("--pool %q", *prefix), "want an IPv4 prefix of 8 to 30 bits")
	}
	s := &server{
		apns: strings.Split(*apns, ","), procedures: gtp.NewProcedures(c.Registry, "pgw"),
		gxFailed: prometheus.NewCounter(prometheus.CounterOpts{Name: "pgw_gx_unterminated_total", Help: "Gx sessions whose end did not reach the PCRF."}),
		lost:     prometheus.NewCounter(prometheus.CounterOpts{Name: "pgw_sessions_lost_total", Help: "PDN connections removed because their S-GW restarted."}),
		sessions: gtp.NewTable[*session](node.Sessions, node.Prefix), keys: map[sessionKey]*session{}, pool: addresses,
	}
	c.Registry.MustRegister(s.gxFailed, s.lost, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pgw_sessions", Help: "PDN connections."}, s.count))
	if s.endpoint, err = node.Listen(ctx, c, s.handle, s.peerRestarted); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	s.tasks = group
	if pcrf.IsValid() {
		s.pcef = diameter.NewPCEF(diameter.ClientConfig{Peer: pcrf, Host: *name, Log: c.Log, Registry: c.Registry})
		c.Connected = s.pcef.Connected
		group.Go(func() error { return s.pcef.Run(ctx) })
	}
	group.Go(func() error { return s.endpoint.Serve(ctx) })
	return rest.Wait(ctx, group, c, s.endpoint.Addr())
}

// count returns the number of sessions.
func (s *server) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.sessions.Len())
}
