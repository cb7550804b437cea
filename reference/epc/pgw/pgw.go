// Package pgw is the P-GW of the reference EPC. It has PDN connections over S5 (TS
// 29.274), IPv4 addresses from a pool, and policies over Gx (TS 29.212) if there is a
// PCRF. It has no user plane: nobody listens at the tunnels that its GTP-U F-TEIDs
// name.
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
	pcef       *diameter.PCEF // nil: no PCRF
	apns       []string       // access point names served, in lower case
	procedures *gtp.Procedures
	gxFailed   prometheus.Counter
	lost       prometheus.Counter
	tasks      *errgroup.Group // Gx requests for removed sessions

	mu       sync.Mutex
	sessions *gtp.Table[*session]
	keys     map[sessionKey]*session
	byGx     map[string]*session // by Gx session
	pool     *pool
	charging uint32 // last charging identity
}

// A Config configures a P-GW.
type Config struct {
	Node gtp.Node
	PCRF netip.AddrPort // zero: none
	Host string         // Diameter identity
	apns string
	pool string
}

// host is the default Diameter identity.
const host = "pgw.epc.test"

// Flags declares the flags, except those of the node and the Diameter identity.
func (k *Config) Flags(c *ims.Command) {
	k.Host = host
	c.Addr(&k.PCRF, "pcrf", false, "PCRF, Diameter over TCP: IP:PORT; none if empty")
	c.StringVar(&k.apns, "apn", "internet,ims", "access point names served, comma-separated")
	c.StringVar(&k.pool, "pool", "10.0.0.0/8", "addresses for UEs: an IPv4 prefix of 8 to 30 bits")
}

// Run runs a P-GW until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("pgw", "The P-GW of the reference EPC: S5 and Gx, without a user plane.", stdout, stderr)
	var k Config
	k.Node.Flags(c)
	k.Flags(c)
	c.StringVar(&k.Host, "diameter-host", host, "Diameter identity, in the realm after the first dot")
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

// Start runs a P-GW in a group until ctx is done. It sets c.Connected. The error is a
// *vitrine.BadInput for wrong flags.
func (k *Config) Start(ctx context.Context, group *errgroup.Group, c *ims.Command) (*gtp.Endpoint, error) {
	network, err := netip.ParsePrefix(k.pool)
	if err != nil {
		return nil, c.Bad(fmt.Sprintf("--pool %q", k.pool), "want a prefix, such as 10.45.0.0/16")
	}
	addresses, ok := newPool(network)
	if !ok {
		return nil, c.Bad(fmt.Sprintf("--pool %q", k.pool), "want an IPv4 prefix of 8 to 30 bits")
	}
	counter := ims.Counters(c.Registry, "pgw")
	s := &server{
		apns: strings.Split(strings.ToLower(k.apns), ","), procedures: gtp.NewProcedures(c.Registry, "pgw"),
		gxFailed: counter("gx_unterminated", "Gx sessions whose end did not reach the PCRF."),
		lost:     counter("sessions_lost", "PDN connections removed because their S-GW restarted."),
		sessions: gtp.NewTable[*session](k.Node.Sessions, k.Node.Prefix), keys: map[sessionKey]*session{}, byGx: map[string]*session{}, pool: addresses,
		tasks: group,
	}
	ims.Gauges(c.Registry, "pgw")("sessions", "PDN connections.", s.count)
	if s.endpoint, err = k.Node.Listen(ctx, c, s.handle, s.peerRestarted); err != nil {
		return nil, err
	}
	if k.PCRF.IsValid() {
		s.pcef = diameter.NewPCEF(diameter.ClientConfig{Peer: k.PCRF, Host: k.Host, Log: c.Log, Registry: c.Registry, Messages: c.Messages}, s.changed)
		c.Connected = s.pcef.Connected
		group.Go(func() error { return s.pcef.Run(ctx) })
	}
	group.Go(func() error { return s.endpoint.Serve(ctx) })
	return s.endpoint, nil
}

// count returns the number of sessions.
func (s *server) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.sessions.Len())
}
