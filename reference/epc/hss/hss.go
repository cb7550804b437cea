// Package hss is the HSS of the reference EPC: it provides authentication
// vectors and subscriptions over S6a (TS 29.272). It computes most subscribers
// on request. It stores only sequence numbers and serving MMEs, in memory.
package hss

import (
	"context"
	"io"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/subscriber"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
)

// Run runs an HSS until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("hss", "The HSS of the reference EPC: S6a, Diameter over TCP.", stdout, stderr)
	var listen netip.AddrPort
	c.Addr(&listen, "listen", true, "address for MMEs, Diameter over TCP: IP:3868")
	parsed := subscriber.Flags(c)
	name := c.String("diameter-host", "hss.epc.test", "Diameter identity, in the realm after the first dot")
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	subscribers, err := parsed()
	if err != nil {
		return err
	}
	listener, err := ims.Listen(ctx, "listen", listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	d := &database{subscribers: subscribers, states: map[string]*state{}}
	server := diameter.NewHSS(*name, d, c.Registry)
	server.Messages = c.Messages
	d.cancel = server.Cancel
	ims.Gauges(c.Registry, "hss")("registered", "Subscribers that an MME serves.", d.registered)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(ctx, listener) })
	return rest.Wait(ctx, group, c, listener.Addr())
}

// registered returns the number of subscribers that an MME serves.
func (d *database) registered() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return float64(d.served)
}
