package sprout

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/emiago/sipgo/sip"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
	"vitrine/reference/ims/sipudp"
)

// session routes an initial request, usually an INVITE, from a registered user to
// the latest contact of another user. It applies originating services, then
// terminating ones, both in this Sprout (TS 24.229 section 5.4.3).
func (s *server) session(ctx context.Context, tx *sipudp.Transaction) error {
	req := tx.Request
	caller, err := identity(&req.From().Address)
	if err != nil {
		return refuse(sip.StatusForbidden, "Forbidden")
	}
	from, _, err := s.registered(ctx, caller)
	if err != nil {
		return err
	}
	if len(from.Bindings) == 0 {
		return refuse(sip.StatusForbidden, "Not Registered")
	}
	data, err := s.assign(ctx, caller, ims.RequestCall)
	if err != nil {
		return err
	}
	if usesTelephonyServer(data.Subscription.Profile, string(req.Method), originating) && s.services(ctx, caller).Outgoing.Bars() {
		return refuse(sip.StatusGlobalDecline, "Outgoing Calls Are Barred")
	}
	return s.terminate(ctx, tx, caller)
}

func (s *server) terminate(ctx context.Context, tx *sipudp.Transaction, caller string) error {
	req := tx.Request
	callee, err := identity(&req.Recipient)
	if err != nil {
		return err
	}
	data, err := s.assign(ctx, callee, ims.RequestCall)
	if err != nil {
		return err
	}
	to, _, err := s.registered(ctx, callee)
	if err != nil {
		return err
	}
	if len(to.Bindings) == 0 {
		return refuse(sip.StatusTemporarilyUnavailable, "Temporarily Unavailable")
	}
	if usesTelephonyServer(data.Subscription.Profile, string(req.Method), terminating) && s.services(ctx, callee).Incoming.Bars() {
		return refuse(sip.StatusGlobalDecline, "Incoming Calls Are Barred")
	}
	out := req.Clone()
	if !sipudp.HopsLeft(out) {
		return refuse(sip.StatusTooManyHops, "Too Many Hops")
	}
	s.dropOwnRoutes(out)
	latest := to.Bindings[len(to.Bindings)-1]
	if err := retarget(out, latest); err != nil {
		return err
	}
	if err := s.throughEdge(out); err != nil {
		return err
	}
	out.PrependHeader(&sip.RecordRouteHeader{Address: sipudp.LooseURI(s.socket.Local())})
	assertIdentity(out, caller)
	return s.send(tx, out)
}

// assertIdentity tells the callee who the caller is. It removes identities that the caller
// asserts, because the callee trusts the header (RFC 3325 section 5).
func assertIdentity(out *sip.Request, caller string) {
	const name = "P-Asserted-Identity"
	for _, h := range out.GetHeaders(name) {
		out.RemoveHeader(h.Name()) // as the caller spells it
	}
	out.AppendHeader(sip.NewHeader(name, "<"+caller+">"))
}

// retarget sets a request's URI to the contact and its Route to the contact's
// path.
func retarget(out *sip.Request, b binding) error {
	var target sip.Uri
	if err := sip.ParseUri(b.URI, &target); err != nil {
		return fmt.Errorf("contact %q: %w", b.URI, err)
	}
	out.Recipient = target
	// Prepend the Routes in reverse order, so that the first one ends on top.
	for _, p := range slices.Backward(b.Path) {
		var uri sip.Uri
		if err := sip.ParseUri(p, &uri); err != nil {
			return fmt.Errorf("path %q: %w", p, err)
		}
		out.PrependHeader(&sip.RouteHeader{Address: uri})
	}
	return nil
}

// learnEdge notes the Bono that sent a request, the edge of this Sprout's aggregate.
// Behind a director its Via has the address at which it listens. Requests within calls
// do not count: another Sprout may have sent them.
func (s *server) learnEdge(req *sip.Request) {
	if len(s.directors) == 0 || !sipudp.Initial(req) && req.Method != sip.SUBSCRIBE {
		return
	}
	via := req.Via()
	if edge, ok := sipudp.RouteAddr(&sip.Uri{Host: via.Host, Port: via.Port}); ok {
		s.edge.Store(&edge)
	}
}

// errNoEdge is the error for a request to a phone before any Bono has sent a request.
var errNoEdge = errors.New("no Bono is known that leads to the director: none has sent a request yet")

// throughEdge prepends the edge to a Route that begins with a director, because a
// director takes requests to phones from Bonos alone (RFC 3261 section 16.6, step 6:
// local policy). Any Bono will do, so the one of the registration may be gone.
func (s *server) throughEdge(out *sip.Request) error {
	route := out.Route()
	if route == nil {
		return nil
	}
	if addr, ok := sipudp.RouteAddr(&route.Address); !ok || !slices.Contains(s.directors, addr) {
		return nil
	}
	edge := s.edge.Load()
	if edge == nil {
		return errNoEdge
	}
	out.PrependHeader(&sip.RouteHeader{Address: sipudp.LooseURI(*edge)})
	return nil
}

// dropOwnRoutes removes this Sprout's entries from the top of the Route.
func (s *server) dropOwnRoutes(req *sip.Request) {
	for route := req.Route(); route != nil; route = req.Route() {
		addr, ok := sipudp.RouteAddr(&route.Address)
		if !ok || !s.ours[addr] {
			return
		}
		req.RemoveHeader("Route")
	}
}

// nextHop returns the destination of a request: its first Route, or else its URI.
func (s *server) nextHop(req *sip.Request) (sipudp.Peer, error) {
	uri := &req.Recipient
	if route := req.Route(); route != nil {
		uri = &route.Address
	}
	addr, ok := sipudp.RouteAddr(uri)
	if !ok || s.ours[addr] {
		return sipudp.Peer{}, refuse(sip.StatusNotFound, "Not Found")
	}
	return sipudp.Peer{Socket: s.socket, To: addr}, nil
}

// send forwards a request to its next hop.
func (s *server) send(tx *sipudp.Transaction, out *sip.Request) error {
	to, err := s.nextHop(out)
	if err != nil {
		return err
	}
	switch err := s.transactions.Forward(tx, out, to, nil); {
	case errors.Is(err, sipudp.ErrCancelled):
		return refuse(sip.StatusRequestTerminated, "Request Terminated")
	case err != nil:
		s.log.Warn("a request was not forwarded", "to", to.To, "error", err)
		return refuse(sip.StatusTemporarilyUnavailable, "Temporarily Unavailable")
	}
	s.counts.forwarded.Inc()
	return nil
}

// inDialog forwards a request of a dialog along its Route.
func (s *server) inDialog(tx *sipudp.Transaction) error {
	out := tx.Request.Clone()
	if !sipudp.HopsLeft(out) {
		return refuse(sip.StatusTooManyHops, "Too Many Hops")
	}
	s.dropOwnRoutes(out)
	return s.send(tx, out)
}

func (s *server) ack(req *sip.Request, _ netip.AddrPort, of truth.Event) {
	if !sipudp.HopsLeft(req) {
		return
	}
	s.dropOwnRoutes(req)
	to, err := s.nextHop(req)
	if err == nil {
		err = sipudp.ForwardAck(req, to, of)
	}
	if err != nil {
		s.log.Debug("an ACK was dropped", "error", err)
	}
}

// response forwards an answer, and starts or ends the charging of a call. An answer to a
// NOTIFY of this Sprout ends here. response returns the answer's event.
func (s *server) response(res *sip.Response, _ sipudp.Arrival) truth.Event {
	tx, pass, first := s.transactions.Answered(res)
	switch {
	case tx == nil:
		return 0
	case !pass:
		if first {
			s.notified(tx, res.StatusCode)
		}
		return tx.Event
	}
	s.respond(tx, res)
	if first {
		s.publishLater(tx)
	}
	switch {
	case !first:
	case tx.Request.Method == sip.INVITE && res.IsSuccess() && sipudp.Initial(tx.Request):
		s.charge(tx, ims.StartRecord, res.StatusCode)
	case tx.Request.Method == sip.BYE:
		s.charge(tx, ims.StopRecord, res.StatusCode)
	}
	return tx.Event
}
