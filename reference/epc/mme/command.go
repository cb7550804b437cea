package mme

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/gtp"
	"vitrine/reference/epc/s1"
	"vitrine/reference/ims"
	"vitrine/reference/ims/overload"
	"vitrine/reference/ims/rest"
	"vitrine/reference/keep"
	"vitrine/wire/gtpc"
	"vitrine/wire/identity"
)

// Options holds the values of the command line. If Node is set, the gateways run in
// this process. Then Node, SGW and PGW have no flags, and the MME has no store.
type Options struct {
	Node     gtp.Node
	SGW, PGW netip.AddrPort
	Host     string // Diameter identity

	config       Config
	s1, hss      netip.AddrPort
	transport    string // of S1AP
	network      string
	group        uint16
	cipher, shed string
	delay        time.Duration
	store        keep.Config
}

// Flags declares the flags.
func (l *Options) Flags(c *ims.Command) {
	apart, defaults := !l.Node.Addr().IsValid(), Config{}.withDefaults()
	c.Addr(&l.s1, "s1", true, "address for eNodeBs: IP:PORT")
	c.OneOf(&l.transport, "s1-transport", []string{s1.TCP, s1.SCTP}, "transport for eNodeBs; tcp is "+s1.Describe(s1.TCP))
	if apart {
		l.Node.Flags(c)
	}
	c.Addr(&l.hss, "hss", true, "HSS, Diameter over TCP: IP:3868")
	if apart {
		c.Addr(&l.SGW, "sgw", true, "S-GW, GTP-C over UDP: IP:2123")
		c.Addr(&l.PGW, "pgw", true, "P-GW that the S-GW shall use: IP:2123")
	}
	c.StringVar(&l.network, "network", "00101", "country and network code, five or six digits")
	c.Uint16Var(&l.group, "group", 1, "MME group; the MME code is the instance")
	c.StringVar(&l.config.Name, "name", defaults.Name, "name that eNodeBs see")
	c.StringVar(&l.Host, "diameter-host", "mme.epc.test", "Diameter identity, in the realm after the first dot")
	c.OneOf(&l.cipher, "ciphering", []string{"eea0", "eea2"}, "ciphering of NAS messages, for UEs that support it")
	c.IntVar(&l.config.Workers, "workers", defaults.Workers, "goroutines that share the UEs")
	c.IntVar(&l.config.ENodeBs, "enodebs", defaults.ENodeBs, "largest number of eNodeBs")
	c.IntVar(&l.config.Contexts, "contexts", defaults.Contexts, "largest number of UE contexts")
	c.IntVar(&l.config.Calls, "calls", defaults.Calls, "requests of a worker to HSS and S-GW at the same time; more wait")
	c.DurationVar(&l.config.CallTime, "call-timeout", defaults.CallTime, "longest time of a request to the HSS or the S-GW")
	c.OneOf(&l.shed, "overload", []string{overload.Graceful, overload.Off}, "load control")
	c.DurationVar(&l.delay, "target-delay", 200*time.Millisecond, "graceful: refuse attaches when even the quickest one takes longer than this from its first message to the Attach Accept; with real UEs, add the time that they take to answer")
	c.DurationVar(&l.config.BackOff, "back-off", defaults.BackOff, "T3346 of refused attaches")
	c.DurationVar(&l.config.Timers.NAS, "nas-timer", defaults.Timers.NAS, "time after which a NAS message is sent again (T3450, T3460, T3470)")
	c.DurationVar(&l.config.Timers.Update, "t3412", defaults.Timers.Update, "periodic tracking area update; a silent UE is detached 8 minutes later")
	if apart { // the record of a UE names its session at the S-GW, which must outlive the MME
		l.store.Flags(c, "UE contexts, for all MMEs of the group,", "mme")
	}
	c.Positive("workers", "enodebs", "contexts", "calls", "call-timeout", "target-delay", "back-off", "nas-timer", "t3412")
}

// Run runs an MME until ctx is done. The error is a *vitrine.BadInput for wrong
// arguments.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := ims.NewCommand("mme", "The MME of the reference EPC: S1AP, NAS, S6a and S11.", stdout, stderr)
	var l Options
	l.Flags(c)
	c.LogMessages()
	if help, err := c.Parse(args); help || err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	at, err := l.Start(ctx, group, c)
	if err != nil {
		return err
	}
	return rest.Wait(ctx, group, c, at)
}

// Start runs an MME in a group until ctx is done. It returns the address that eNodeBs
// connect to, and sets c.Connected. The error is a *vitrine.BadInput for wrong flags.
func (l *Options) Start(ctx context.Context, group *errgroup.Group, c *ims.Command) (net.Addr, error) {
	err := l.fill(c)
	if err != nil {
		return nil, err
	}
	gateway := &s11{sgw: l.SGW, pgw: gtpc.Endpoint{Interface: gtpc.S5PGW}, teids: gtp.NewTable[leg](l.Node.Sessions, l.Node.Prefix)}
	if addr := l.PGW.Addr().Unmap(); addr.Is4() {
		gateway.pgw.V4 = addr
	} else {
		gateway.pgw.V6 = addr
	}
	var m *MME
	hss := diameter.NewMME(diameter.MMEConfig{
		ClientConfig: diameter.ClientConfig{Peer: l.hss, Host: l.Host, Log: c.Log, Registry: c.Registry, Messages: c.Messages},
		Cancelled: func(imsi string) {
			if digits, ok := identity.MakeDigits(imsi); ok {
				m.Cancel(digits)
			}
		},
	})
	l.config.Subscribers, l.config.Gateway = s6a{hss}, gateway
	c.Connected = hss.Connected
	if l.store.Given() {
		l.store.Messages = c.Messages
		if l.config.Store, err = keep.New(l.store, "mme", c.Log, c.Registry); err != nil {
			return nil, err
		}
		c.Connected = func() bool { return hss.Connected() && l.config.Store.Connected() }
	}
	m = New(l.config)
	gateway.page, gateway.bearers = m.Page, m
	if l.config.Store != nil {
		gateway.find = m.findLeg
	}
	listener, err := l.listen(ctx)
	if err != nil {
		return nil, err
	}
	if gateway.endpoint, err = l.Node.Listen(ctx, c, gateway.request, nil); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	c.Log.Info("serving eNodeBs", "transport", s1.Describe(l.transport), "at", listener.Addr())
	group.Go(func() error { return gateway.endpoint.Serve(ctx) })
	group.Go(func() error { return hss.Run(ctx) })
	group.Go(func() error { return m.Serve(ctx, listener) })
	return listener.Addr(), nil
}

// listen listens for eNodeBs.
func (l *Options) listen(ctx context.Context) (net.Listener, error) {
	if l.transport != s1.SCTP {
		return ims.Listen(ctx, "s1", l.s1)
	}
	listener, err := s1.ListenSCTP(l.s1)
	if err != nil && !vitrine.IsUnsupported(err) {
		err = ims.ListenError("s1", l.s1, err)
	}
	return listener, err
}

// fill converts the flags whose values are text.
func (l *Options) fill(c *ims.Command) error {
	if err := l.Node.CheckPrefix(c); err != nil {
		return err
	}
	if err := l.store.Check(c); err != nil {
		return err
	}
	if l.store.Given() {
		l.Node.KeepsState()
	}
	network, ok := identity.ParsePLMN(l.network)
	if !ok {
		return c.Bad(fmt.Sprintf("--network %q", l.network), "want five or six digits, such as 00101")
	}
	if len(l.config.Name) < 1 || len(l.config.Name) > 150 {
		return c.Bad(fmt.Sprintf("--name %q", l.config.Name), "want 1 to 150 characters")
	}
	l.config.GUMMEI, l.config.Instance = identity.GUMMEI{PLMN: network, Group: l.group}, l.Node.Prefix.Instance
	if l.cipher == "eea2" {
		l.config.Cipher = aka.AES
	}
	if l.shed == overload.Graceful {
		l.config.TargetDelay = l.delay
	}
	l.config.Log, l.config.Registry, l.config.Messages = c.Log, c.Registry, c.Messages
	return nil
}
