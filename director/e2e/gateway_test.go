package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/wmnsk/go-gtp/gtpv2"
	"github.com/wmnsk/go-gtp/gtpv2/ie"
	"github.com/wmnsk/go-gtp/gtpv2/message"
	"golang.org/x/sync/errgroup"

	director "vitrine/director/gtpc"
	"vitrine/store/client"
	"vitrine/store/embedded"
	"vitrine/store/service"
	"vitrine/store/service/servicetest"
)

// runStore is `vitrine store run` with only the plain API: ADDRESS FOLDER.
func runStore(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	log := slog.New(slog.NewTextHandler(stderr, nil))
	engine, err := embedded.Open(embedded.Config{Dir: args[1], Now: time.Now, Logger: log})
	if err != nil {
		return err
	}
	return servicetest.Run(ctx, args[0], engine, service.Config{Logger: log}, stdout)
}

// A gateway implements the S-GW side of S11 with go-gtp. It is one instance of an aggregate, in
// its own process. It keeps no state between transactions: sessions are in the store. It serves
// only the transactions of its type.
type gateway struct {
	ty       string
	self     string // the director's IP address, for F-TEIDs
	prefix   director.Prefix
	sessions *client.KV
	serials  atomic.Uint32
	handling chan struct{} // has an element for each request that is handled
	output   io.Writer
	ctx      context.Context //nolint:containedctx // go-gtp's handlers are given none
}

// A bearer is the stored state of a session with its only bearer.
type bearer struct {
	IMSI    string
	MME     uint32   // TEID of the MME on S11
	User    uint32   // TEID of the gateway on S1-U
	ENodeBs []uint32 // TEIDs of the eNodeBs on S1-U, in the order of the handovers
}

// runGateway runs a gateway until ctx is done.
func runGateway(ctx context.Context, args []string, stdout, _ io.Writer) error {
	g := &gateway{output: stdout, ctx: ctx, handling: make(chan struct{}, 128)} // the store refuses more than 1024 requests at once
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	listen, base := flags.String("listen", "", ""), flags.String("store", "", "")
	prefix := flags.Uint64("prefix", 0, "")
	flags.StringVar(&g.ty, "type", "", "")
	flags.StringVar(&g.self, "director", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	g.prefix.TEID = uint32(*prefix)
	c, err := client.New(client.Config{Base: *base})
	if err != nil {
		return err
	}
	defer c.Close()
	g.sessions = c.KV("sessions")
	at, err := netip.ParseAddrPort(*listen)
	if err != nil {
		return err
	}
	conn := gtpv2.NewConn(net.UDPAddrFromAddrPort(at), gtpv2.IFTypeS11S4SGWGTPC, 0)
	conn.DisableValidation() // validation looks up TEIDs in the library's memory, not in the store
	conn.AddHandlers(map[uint8]gtpv2.HandlerFunc{
		message.MsgTypeCreateSessionRequest: g.inTurn(g.create),
		message.MsgTypeModifyBearerRequest:  g.inTurn(g.modify),
		message.MsgTypeDeleteSessionRequest: g.inTurn(g.remove),
	})
	if err := conn.Listen(ctx); err != nil {
		return err
	}
	fmt.Fprintln(stdout, "ready on", at)
	serving, ctx := errgroup.WithContext(ctx)
	serving.Go(func() error { return conn.Serve(ctx) })
	return serving.Wait()
}

// inTurn lets requests wait while many others are handled, because go-gtp begins them all at once.
func (g *gateway) inTurn(handle gtpv2.HandlerFunc) gtpv2.HandlerFunc {
	return func(c *gtpv2.Conn, from net.Addr, m message.Message) error {
		g.handling <- struct{}{}
		defer func() { <-g.handling }()
		return handle(c, from, m)
	}
}

// create handles an attach. It stores the session before it answers.
func (g *gateway) create(c *gtpv2.Conn, from net.Addr, m message.Message) error {
	request := m.(*message.CreateSessionRequest)
	if request.SenderFTEIDC == nil || request.IMSI == nil {
		return c.RespondTo(from, m, message.NewCreateSessionResponse(0, 0, ie.NewCause(gtpv2.CauseMandatoryIEMissing, 0, 0, 0, nil)))
	}
	mme, err := request.SenderFTEIDC.TEID()
	if err != nil {
		return err
	}
	if g.ty != attachDetach {
		return c.RespondTo(from, m, message.NewCreateSessionResponse(mme, 0, ie.NewCause(gtpv2.CauseServiceNotSupported, 0, 0, 0, nil)))
	}
	imsi, err := request.IMSI.IMSI()
	if err != nil {
		return err
	}
	teid, b, err := g.attach(imsi, mme)
	if err != nil {
		return c.RespondTo(from, m, message.NewCreateSessionResponse(mme, 0, ie.NewCause(g.failed(err), 0, 0, 0, nil)))
	}
	g.tell(imsi, "attached")
	return c.RespondTo(from, m, message.NewCreateSessionResponse(mme, 0,
		ie.NewCause(gtpv2.CauseRequestAccepted, 0, 0, 0, nil), ie.NewFullyQualifiedTEID(gtpv2.IFTypeS11S4SGWGTPC, teid, g.self, ""), g.context(b)))
}

// attach stores a new session under an unused TEID. TEIDs can collide, because subscribers
// whose IMSIs have the same key share a range, and some sessions are long.
func (g *gateway) attach(imsi string, mme uint32) (teid uint32, b *bearer, err error) {
	const tries = 16 // an attacker may attach too: each of its requests may cost no more
	for range tries {
		serial := g.serials.Add(1)
		teid = g.prefix.SessionTEID(director.SessionKey([]byte(imsi)), serial)
		b = &bearer{IMSI: imsi, MME: mme, User: 0x5a000000 | serial<<8 | g.prefix.TEID>>24}
		if err = g.put(teid, b, client.Conditions{IfNoneMatch: "*"}); !client.Unmet(err) {
			break
		}
	}
	return teid, b, err
}

// modify handles a handover to the eNodeB with the TEID in the request.
func (g *gateway) modify(c *gtpv2.Conn, from net.Addr, m message.Message) error {
	request := m.(*message.ModifyBearerRequest)
	b, tag, cause := g.find(m.TEID(), handoverSR)
	if cause == gtpv2.CauseRequestAccepted && len(request.BearerContextsToBeModified) > 0 {
		ends, err := request.BearerContextsToBeModified[0].BearerContext()
		if err != nil {
			return err
		}
		for _, end := range ends {
			if end.Type == ie.FullyQualifiedTEID {
				b.ENodeBs = append(b.ENodeBs, end.MustTEID())
			}
		}
		if err := g.put(m.TEID(), b, client.Conditions{IfMatch: tag}); err != nil {
			cause = g.failed(err)
		}
	}
	g.tell(b.IMSI, "handed-over")
	return c.RespondTo(from, m, message.NewModifyBearerResponse(b.MME, 0, ie.NewCause(cause, 0, 0, 0, nil), g.context(b)))
}

// remove handles a detach.
func (g *gateway) remove(c *gtpv2.Conn, from net.Addr, m message.Message) error {
	b, tag, cause := g.find(m.TEID(), attachDetach)
	if cause == gtpv2.CauseRequestAccepted {
		if err := g.sessions.Delete(g.ctx, key(m.TEID()), client.Conditions{IfMatch: tag}); err != nil {
			cause = g.failed(err)
		}
	}
	g.tell(b.IMSI, "detached")
	return c.RespondTo(from, m, message.NewDeleteSessionResponse(b.MME, 0, ie.NewCause(cause, 0, 0, 0, nil)))
}

// find reads a session for a transaction of one aggregate type. Without a session it returns a
// cause other than accepted.
func (g *gateway) find(teid uint32, of string) (b *bearer, tag string, cause uint8) {
	b = &bearer{}
	if g.ty != of {
		return b, "", gtpv2.CauseServiceNotSupported
	}
	v, err := g.sessions.Get(g.ctx, key(teid), client.Conditions{})
	if client.NotFound(err) {
		return b, "", gtpv2.CauseContextNotFound
	}
	if err == nil {
		err = json.Unmarshal(v.Data, b)
	}
	if err != nil {
		return b, "", g.failed(err)
	}
	return b, v.ETag, gtpv2.CauseRequestAccepted
}

func (g *gateway) put(teid uint32, b *bearer, when client.Conditions) error {
	data, err := json.Marshal(b)
	if err == nil {
		_, err = g.sessions.Put(g.ctx, key(teid), data, "application/json", time.Hour, when)
	}
	return err
}

// context returns the Bearer Context for the MME with the gateway's TEID from the store.
func (g *gateway) context(b *bearer) *ie.IE {
	return ie.NewBearerContext(ie.NewEPSBearerID(5), ie.NewFullyQualifiedTEID(gtpv2.IFTypeS1USGWGTPU, b.User, g.self, ""))
}

func (g *gateway) tell(imsi, what string) { fmt.Fprintf(g.output, "%s %s;\n", imsi, what) }

// failed writes an error to the output, and returns the cause of the response.
func (g *gateway) failed(err error) uint8 {
	fmt.Fprintln(g.output, err)
	return gtpv2.CauseSystemFailure
}

func key(teid uint32) string { return fmt.Sprintf("%08x", teid) }
