package bono

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/emiago/sipgo/sip"

	"vitrine/internal/truth"
	"vitrine/reference/ims/overload"
	"vitrine/reference/ims/sipudp"
)

// A proxy is Bono's logic: a transaction-stateful proxy (RFC 3261 section 16)
// that puts itself on the path of registrations (RFC 3327) and dialogs. Behind a
// director it is on the path of calls alone, because registrations and subscriptions
// outlive it.
type proxy struct {
	socket       *sipudp.Socket
	directors    []netip.AddrPort // in front, which phones know instead
	receiver     *sipudp.Receiver // of datagrams from clients and from Sprouts
	flows        flows
	pool         *pool
	transactions *sipudp.Transactions
	window       *overload.Window  // nil except in mode graceful
	load         *overload.Monitor // nil except in mode clearwater
	answer       []byte            // buffer of refuse
	log          *slog.Logger
	counts       counts
}

// arrive handles one datagram from the socket that clients use.
func (p *proxy) arrive(data []byte, a sipudp.Arrival) {
	if p.window == nil || !p.refuse(data, a) {
		p.receiver.Receive(data, a)
	}
}

// begun handles a request that is no retransmission.
func (p *proxy) begun(tx *sipudp.Transaction, a sipudp.Arrival) {
	req := tx.Request
	p.counts.requests.Inc()
	if req.Method == sip.OPTIONS && req.Recipient.User == "" && req.Route() == nil {
		p.respond(tx, sipudp.Reply(req, sip.StatusOK, "OK"))
		return
	}
	if sipudp.Initial(req) {
		done, ok := p.control(tx, a)
		if !ok {
			p.counts.shed.Inc()
			if p.window != nil { // refuse has answered all new calls
				p.counts.broken.Inc()
			}
			p.respond(tx, sipudp.Reply(req, sip.StatusServiceUnavailable, "Overloaded", sip.NewHeader("Retry-After", "1")))
			return
		}
		defer done()
	}
	if !sipudp.HopsLeft(req) {
		p.respond(tx, sipudp.Reply(req, sip.StatusTooManyHops, "Too Many Hops"))
		return
	}
	if req.Method == sip.INVITE {
		p.respond(tx, sipudp.Reply(req, sip.StatusTrying, "Trying"))
	}
	p.route(tx, a.From)
}

// A hop is the next hop of a request.
type hop struct {
	client netip.AddrPort // if valid, the request goes to this client
	sprout netip.AddrPort // otherwise it goes to a Sprout, preferably this one
}

// next returns the request's next hop from its Route, and removes Bono's own
// entries. A Route with a flow other than the sender's leads to that client. From
// Sprout, so does a Route with a director. Everything else goes to Sprout.
func (p *proxy) next(req *sip.Request, from netip.AddrPort) (hop, error) {
	for route := req.Route(); route != nil; route = req.Route() {
		addr, ok := sipudp.RouteAddr(&route.Address)
		switch {
		case slices.Contains(p.directors, addr) && p.pool.fromSprout(from): // a client's own Route must not bypass Sprout
			return hop{client: addr}, nil
		case !ok || addr != p.socket.Local():
			return hop{sprout: addr}, nil
		}
		req.RemoveHeader("Route")
		if route.Address.User == "" {
			continue // a preloaded route to Bono itself
		}
		client, ok := p.flows.client(route.Address.User)
		if !ok {
			return hop{}, fmt.Errorf("unknown flow %q", route.Address.User)
		}
		if client != from {
			return hop{client: client}, nil
		}
	}
	return hop{}, nil
}

// route forwards a request, or answers it with a failure.
func (p *proxy) route(tx *sipudp.Transaction, from netip.AddrPort) {
	// Change a copy, because answers need the request as received.
	out := tx.Request.Clone()
	w, err := p.next(out, from)
	if err != nil {
		p.respond(tx, sipudp.Reply(tx.Request, 430, "Flow Failed")) // RFC 5626 section 11.5
		return
	}
	if !p.pool.fromSprout(from) {
		dropChargingVector(out)
	}
	flow := from
	if w.client.IsValid() {
		flow = w.client
	}
	self := sipudp.LooseURI(p.socket.Local())
	self.User = p.flows.token(flow)
	switch {
	case out.Method == sip.REGISTER:
		if !p.staysOut(out) {
			self.UriParams.Add("ob", "")
			out.PrependHeader(sip.NewHeader("Path", "<"+self.String()+">"))
		}
		out.AppendHeader(p.chargingVector())
	case sipudp.Initial(out):
		if !p.staysOut(out) {
			out.PrependHeader(&sip.RecordRouteHeader{Address: self})
		}
		if !w.client.IsValid() {
			out.AppendHeader(p.chargingVector())
		}
	}
	if w.client.IsValid() {
		if err := p.transactions.Forward(tx, out, sipudp.Peer{Socket: p.socket, To: w.client}, nil); err != nil {
			p.respond(tx, sipudp.Reply(tx.Request, sip.StatusTemporarilyUnavailable, "Temporarily Unavailable"))
			return
		}
		p.counts.forwarded.Inc()
		return
	}
	p.toSprout(tx, out, w.sprout)
}

const chargingHeader = "P-Charging-Vector"

// dropChargingVector removes what a phone says about charging. It must not choose the
// identifier of its records (TS 24.229 section 5.2).
func dropChargingVector(out *sip.Request) {
	for _, h := range out.GetHeaders(chargingHeader) {
		out.RemoveHeader(h.Name()) // as the phone spells it
	}
}

// chargingVector returns the header with a new identifier for charging records.
func (p *proxy) chargingVector() sip.Header {
	return sip.NewHeader(chargingHeader, "icid-value="+sipudp.NewToken()+";icid-generated-at="+p.socket.Local().Addr().String())
}

// staysOut reports whether Bono stays out of the Path or Record-Route. Behind a
// director it does, because both may outlive a Bono that the director drains. The
// director's own entry leads to the client, through any Bono.
func (p *proxy) staysOut(req *sip.Request) bool {
	return len(p.directors) > 0 && (req.Method == sip.REGISTER || req.Method == sip.SUBSCRIBE)
}

// sentBy returns the address in the Via of requests to Sprout; zero: the connection's
// address. Behind a director it is Bono's own address, from which Sprout learns its
// edge.
func (p *proxy) sentBy() netip.AddrPort {
	if len(p.directors) == 0 {
		return netip.AddrPort{}
	}
	return p.socket.Local()
}

// toSprout tries two Sprouts, then gives up with 503.
func (p *proxy) toSprout(tx *sipudp.Transaction, out *sip.Request, wanted netip.AddrPort) {
	var tried *sprout
	for range 2 {
		c := p.pool.choose(wanted, tried)
		if c == nil {
			break
		}
		err := p.transactions.Forward(tx, out, sipudp.Peer{Socket: c.socket}, c.sprout)
		if err == nil {
			p.counts.forwarded.Inc()
			return
		}
		p.pool.recordFailure(c.sprout)
		tried = c.sprout
	}
	p.respond(tx, sipudp.Reply(tx.Request, sip.StatusServiceUnavailable, "No Sprout", sip.NewHeader("Retry-After", "1")))
}

func (p *proxy) forwardAck(req *sip.Request, from netip.AddrPort, of truth.Event) {
	if !sipudp.HopsLeft(req) {
		return
	}
	w, err := p.next(req, from)
	if err != nil {
		p.log.Debug("dropped an ACK", "from", from, "error", err)
		return
	}
	peer := sipudp.Peer{Socket: p.socket, To: w.client}
	if !w.client.IsValid() {
		c := p.pool.choose(w.sprout, nil)
		peer = sipudp.Peer{Socket: c.socket}
	}
	if err := sipudp.ForwardAck(req, peer, of); err != nil {
		p.log.Debug("an ACK was not sent", "error", err)
	}
}

// response handles an answer and returns its event.
func (p *proxy) response(res *sip.Response, _ sipudp.Arrival) truth.Event {
	tx, pass, first := p.transactions.Answered(res)
	if tx == nil {
		return 0
	}
	if s, ok := tx.Owner.(*sprout); ok {
		switch {
		case res.StatusCode != sip.StatusServiceUnavailable:
			p.pool.recordSuccess(s)
		case first: // Sprout may send it again
			p.counts.refused.Inc()
			p.pool.recordBusy(s)
		}
	}
	if pass {
		p.respond(tx, res)
	}
	return tx.Event
}

// timedOut answers 408 for the next hop that did not answer.
func (p *proxy) timedOut(tx *sipudp.Transaction) {
	p.counts.timeouts.Inc()
	if s, ok := tx.Owner.(*sprout); ok {
		p.pool.recordFailure(s)
	}
	if !tx.Own() {
		p.respond(tx, sipudp.Reply(tx.Request, sip.StatusRequestTimeout, "Request Timeout"))
	}
}

func (p *proxy) respond(tx *sipudp.Transaction, res *sip.Response) {
	p.leave(tx, res)
	if err := p.transactions.Respond(tx, res); err != nil {
		p.log.Debug("an answer was not sent", "error", err)
	}
}
