// Package epc is the MME, the S-GW and the P-GW of the reference EPC in one process, as
// in the EPC of Sheoran et al. (An Empirical Case for Container-driven Fine-grained VNF
// Resource Flexing, section III). They exchange GTPv2-C messages through queues in the
// process.
package epc

import (
	"context"
	"io"
	"net/netip"

	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/gtp"
	"vitrine/reference/epc/mme"
	"vitrine/reference/epc/pgw"
	"vitrine/reference/epc/sgw"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
)

// Run runs an EPC until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("epc", "MME, S-GW and P-GW of the reference EPC in one process, with queues between them.", stdout, stderr)
	// The nodes' addresses appear only in F-TEIDs, and nothing outside the process sees
	// them.
	var queues gtp.Queues
	node := func(name string, host byte) gtp.Node {
		return gtp.InProcess(&queues, name, netip.AddrFrom4([4]byte{127, 0, 0, host}))
	}
	m, s, p := mme.Options{Node: node("mme", 1)}, sgw.Config{Node: node("sgw", 2)}, pgw.Config{Node: node("pgw", 3)}
	m.SGW, m.PGW = s.Node.Addr(), p.Node.Addr()
	m.Flags(c)
	c.Uint8Var(&m.Node.Prefix.Instance, "instance", 0, "number of this MME among those of the group, 0 to 127; the MME code of its GUTIs")
	s.Flags(c)
	p.Flags(c)
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	p.Host = "pgw-" + m.Host // all EPCs at a PCRF need different identities
	group, ctx := errgroup.WithContext(ctx)
	var connected []func() bool
	at, err := m.Start(ctx, group, c)
	if err != nil {
		return err
	}
	connected = append(connected, c.Connected)
	if _, err := s.Start(ctx, group, c); err != nil {
		return err
	}
	if _, err := p.Start(ctx, group, c); err != nil {
		return err
	}
	connected = append(connected, c.Connected)
	c.Connected = func() bool { return connected[0]() && connected[1]() }
	return rest.Wait(ctx, group, c, at)
}
