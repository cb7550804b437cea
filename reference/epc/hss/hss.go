// Package hss is the HSS of the reference EPC: authentication vectors and
// subscriptions over S6a (TS 29.272). Most of its subscribers are computed on
// request; only sequence numbers and serving MMEs are stored, in memory.
package hss

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/diameter"
	"vitrine/reference/ims"
	"vitrine/reference/ims/rest"
)

// Run runs an HSS until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("hss", "The HSS of the reference EPC: S6a, Diameter over TCP.", stdout, stderr)
	var listen netip.AddrPort
	c.Addr(&listen, "listen", true, "address for MMEs, Diameter over TCP: IP:3868")
	var s subscribers
	c.Uint64Var(&s.count, "subscribers", 100_000, "subscribers whose keys follow from the IMSI")
	first := c.String("first", "001010000000001", "IMSI of the first of them")
	c.Uint64Var(&s.wrong, "wrong-key-every", 0, "every so many of them have another key here than in their USIM; 0: none")
	file := c.String("file", "", "file of further subscribers: lines of IMSI,K,OPc, keys in hexadecimal")
	apns := c.String("apn", "internet,ims", "access point names of all subscribers, comma-separated, the default first")
	c.Uint32Var(&s.ambr.Up, "ambr-up", 50_000_000, "aggregate maximum bit rate uplink, bit/s")
	c.Uint32Var(&s.ambr.Down, "ambr-down", 150_000_000, "aggregate maximum bit rate downlink, bit/s")
	name := c.String("diameter-host", "hss.epc.test", "Diameter identity, in the realm after the first dot")
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	if err := s.fill(c, *first, *file, *apns); err != nil {
		return err
	}
	listener, err := ims.Listen(ctx, "listen", listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	d := &database{subscribers: &s, states: map[string]*state{}}
	server := diameter.NewHSS(*name, d, c.Registry)
	d.cancel = server.Cancel
	c.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "hss_registered", Help: "Subscribers that an MME serves."}, d.registered))
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(ctx, listener) })
	return rest.Wait(ctx, group, c, listener.Addr())
}

// The limits of a subscription: it must fit into a message. A name has at most 100
// octets, the first of them a length (TS 23.003 clause 9.1).
const (
	maxAPN  = 99
	maxAPNs = 16
)

// fill sets what flags give as text.
func (s *subscribers) fill(c *ims.Command, first, file, apns string) error {
	var err error
	if s.first, err = strconv.ParseUint(first, 10, 64); err != nil || !isIMSI(first) {
		return c.Bad(fmt.Sprintf("--first %q", first), "want an IMSI of 6 to 15 digits")
	}
	s.digits, s.apns = len(first), strings.Split(apns, ",")
	for _, apn := range s.apns {
		if apn == "" || len(apn) > maxAPN || len(s.apns) > maxAPNs {
			return c.Bad(fmt.Sprintf("--apn %q", apns), fmt.Sprintf("want 1 to %d names of 1 to %d characters", maxAPNs, maxAPN))
		}
	}
	if last := s.first + s.count; s.count > 0 && len(strconv.FormatUint(last-1, 10)) > s.digits {
		return c.Bad(fmt.Sprintf("--subscribers %d from --first %s", s.count, first), "want IMSIs of as many digits as the first")
	}
	s.file = map[string]aka.Secret{}
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return c.Bad(fmt.Sprintf("--file %q: %v", file, err), "want a file that can be read")
	}
	defer f.Close()
	if s.file, err = readFile(f); err != nil {
		return c.Bad(fmt.Sprintf("--file %s: %v", file, err), "want lines of IMSI,K,OPc")
	}
	return nil
}

// registered returns the number of subscribers that an MME serves.
func (d *database) registered() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return float64(d.served)
}
