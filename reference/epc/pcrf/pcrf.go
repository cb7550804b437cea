// Package pcrf is the PCRF of the reference EPC: the default QoS of sessions over
// Gx (TS 29.212). It starts no change of its own: there is no Re-Auth-Request.
package pcrf

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/diameter"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
)

// Run runs a PCRF until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("pcrf", "The PCRF of the reference EPC: Gx, Diameter over TCP.", stdout, stderr)
	var listen netip.AddrPort
	c.Addr(&listen, "listen", true, "address for P-GWs, Diameter over TCP: IP:3868")
	r := &rules{sessions: map[string]string{}}
	c.Uint8Var(&r.qos.QCI, "qci", 9, "QoS class of default bearers, but for the APN ims, which has 5")
	c.Uint8Var(&r.qos.Priority, "priority", 8, "priority of default bearers, 1 to 15, but for the APN ims, which has 1")
	c.IntVar(&r.limit, "sessions", 1_000_000, "sessions at most")
	name := c.String("diameter-host", "pcrf.epc.test", "Diameter identity, in the realm after the first dot")
	c.Positive("qci", "priority", "sessions")
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
	c.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pcrf_sessions", Help: "Gx sessions."}, r.count))
	server := diameter.NewPCRF(*name, r, c.Registry)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(ctx, listener) })
	return rest.Wait(ctx, group, c, listener.Addr())
}

// rules decide by the access point name.
type rules struct {
	qos   diameter.QoS
	limit int

	mu       sync.Mutex
	sessions map[string]string // IMSIs by Gx session
}

// Begin allows a session: with the QoS of its APN, the rates that the P-GW asks
// for, and one predefined rule.
func (r *rules) Begin(session string, request diameter.GxRequest) (diameter.Policy, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.sessions[session]; !known && len(r.sessions) >= r.limit {
		return diameter.Policy{}, diameter.TooBusy
	}
	r.sessions[session] = request.IMSI
	policy := diameter.Policy{QoS: r.qos, AMBR: request.AMBR, Rules: []string{"default"}}
	if request.APN == "ims" { // signalling (TS 23.203 table 6.1.7)
		policy.QoS.QCI, policy.QoS.Priority = 5, 1
	}
	return policy, nil
}

// End ends a session.
func (r *rules) End(session string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.sessions[session]; !known {
		return diameter.UnknownSession
	}
	delete(r.sessions, session)
	return nil
}

// count returns the number of sessions.
func (r *rules) count() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(len(r.sessions))
}
