// Package pcrf is the PCRF of the reference EPC. Over Gx (TS 29.212) it sets the
// default QoS of sessions, and rules for the dedicated bearers that UEs or
// applications request.
package pcrf

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
)

// Run runs a PCRF until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("pcrf", "The PCRF of the reference EPC: Gx, Diameter over TCP.", stdout, stderr)
	var listen, applications netip.AddrPort
	c.Addr(&listen, "listen", true, "address for P-GWs, Diameter over TCP: IP:3868")
	c.Addr(&applications, "rules", false, "address for PUT and DELETE /rules/IMSI/NAME, which stand for an application's request for a dedicated bearer, HTTP: IP:PORT; none if empty")
	r := newRules()
	c.Uint8Var(&r.qos.QCI, "qci", 9, "QoS class of default bearers; the APN ims always has 5")
	c.Uint8Var(&r.qos.Priority, "priority", 8, "priority of default bearers, 1 to 15; the APN ims always has 1")
	c.IntVar(&r.limit, "sessions", 1<<20, "largest number of sessions")
	name := c.String("diameter-host", "pcrf.epc.test", "Diameter identity, in the realm after the first dot")
	c.Positive("qci", "priority", "sessions")
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	if r.qos.Priority > 15 {
		return c.Bad(fmt.Sprintf("--priority %d", r.qos.Priority), "want 1 to 15")
	}
	listener, err := ims.Listen(ctx, "listen", listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	ims.Gauges(c.Registry, "pcrf")("sessions", "Gx sessions.", r.count)
	server := diameter.NewPCRF(*name, r, c.Registry)
	server.Messages = c.Messages
	changes, err := ims.Listen(ctx, "rules", applications)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if changes != nil {
		group.Go(func() error { return rest.Serve(ctx, changes, r.handler(server.Change), c.Log) })
	}
	group.Go(func() error { return server.Serve(ctx, listener) })
	return rest.Wait(ctx, group, c, listener.Addr())
}
