package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"

	"github.com/emiago/sipgo/sip"

	"vitrine/internal/truth"
	"vitrine/reference/ims/sipudp"
	"vitrine/reference/keep"
)

// receiver returns the receiver of a socket. upstream sends the answers to requests; nil: the
// socket gets answers alone.
func (s *sidecar) receiver(upstream *sipudp.Socket) *sipudp.Receiver {
	return &sipudp.Receiver{
		Transactions: s.transactions, Upstream: upstream, Parser: sip.NewParser(), Garbage: s.counts.garbage, Log: s.log,
		Begun: s.begun, Ack: s.forwardAck, Response: s.response,
	}
}

func (s *sidecar) forwardAck(req *sip.Request, _ netip.AddrPort, of truth.Event) {
	if sipudp.HopsLeft(req) {
		s.note(sipudp.ForwardAck(req, s.toFunction(), of))
	}
}

// begun handles a request that is no retransmission. Locations matter to requests outside
// a dialog for a user.
func (s *sidecar) begun(tx *sipudp.Transaction, _ sipudp.Arrival) {
	s.counts.requests.Inc()
	if !sipudp.HopsLeft(tx.Request) {
		s.answer(tx, sip.StatusTooManyHops, "Too Many Hops")
		return
	}
	of := userOf(tx.Request, s.spelling)
	if of.uri.User == "" || !sipudp.Initial(tx.Request) {
		s.forward(tx)
		return
	}
	select {
	case s.slots <- struct{}{}:
		s.pending.Go(func() {
			defer func() { <-s.slots }()
			s.serve(s.ctx, tx, of)
		})
	default:
		s.counts.refused.Inc()
		s.answer(tx, sip.StatusServiceUnavailable, "Too Many Requests Wait", retryAfter())
	}
}

// A user is an address of record, without port and parameters.
type user struct {
	uri  sip.Uri // as the request spells it
	name string  // of the user's record in the store: the same for all spellings
}

// A spelling says which addresses of record are one user for the registrar. The sidecar
// must agree. Otherwise it would remove the user's locations from the registrar when a
// request has another spelling, because the store has no record of that name.
type spelling struct{ caseSensitive, anyDomain bool }

// name returns the name of a user. Escapes never count, because registrars resolve them.
func (s spelling) name(uri sip.Uri) string {
	name, err := url.PathUnescape(uri.User)
	if err != nil {
		name = uri.User
	}
	if !s.caseSensitive {
		name = sip.ASCIIToLower(name)
	}
	uri.User = strings.ReplaceAll(url.PathEscape(name), "@", "%40") // so that the host begins after the only @
	if s.anyDomain {
		return "sip:" + uri.User
	}
	return uri.String()
}

// userOf returns the user that a request is about: To of a REGISTER (RFC 3261 section
// 10.2), the request's URI otherwise.
func userOf(req *sip.Request, s spelling) user {
	of := &req.Recipient
	if req.Method == sip.REGISTER {
		of = &req.To().Address
	}
	uri := sip.Uri{Scheme: "sip", User: of.User, Host: strings.ToLower(of.Host)}
	return user{uri, s.name(uri)}
}

// serve brings the user's locations at the function up to date and forwards the request.
func (s *sidecar) serve(ctx context.Context, tx *sipudp.Transaction, of user) {
	lock := s.lock(of.name)
	lock.Lock()
	had, err := s.restore(ctx, of)
	if err == nil && tx.Request.Method == sip.REGISTER {
		err = s.register(ctx, tx, of, had)
	}
	lock.Unlock()
	switch {
	case err != nil:
		s.fail(tx, err)
	case tx.Request.Method != sip.REGISTER:
		s.forward(tx)
	}
}

// register forwards a REGISTER. If it succeeds, register publishes the user's locations
// before it answers: a client that got a 200 finds its registration at every instance.
func (s *sidecar) register(ctx context.Context, tx *sipudp.Transaction, of user, had record) error {
	res, err := s.exchange(ctx, tx, tx.Request.Clone(), s.toFunction())
	if err != nil {
		return err
	}
	if res.IsSuccess() && tx.Request.Contact() != nil {
		if err := s.publish(ctx, of, had, tx.Request, res); err != nil {
			return err
		}
	}
	s.respond(tx, res)
	return nil
}

// A waiter is the owner of a transaction whose final answer a goroutine waits for. It gets
// one value: the answer, or nil if none came in time.
type waiter chan *sip.Response

// exchange forwards a request and waits for the final answer.
func (s *sidecar) exchange(ctx context.Context, tx *sipudp.Transaction, out *sip.Request, to sipudp.Peer) (*sip.Response, error) {
	answer := make(waiter, 1)
	if err := s.transactions.Forward(tx, out, to, answer); err != nil {
		return nil, err
	}
	select {
	case res := <-answer:
		if res == nil {
			return nil, errTimeout
		}
		return res, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// forward sends a request on to the function, whose answers return on the transaction. An
// INVITE is answered 100 only now: a client sends no CANCEL before that (RFC 3261 section
// 9.1), so none arrives while the user's locations are restored.
func (s *sidecar) forward(tx *sipudp.Transaction) {
	if tx.Request.Method == sip.INVITE {
		s.answer(tx, sip.StatusTrying, "Trying")
	}
	switch err := s.transactions.Forward(tx, tx.Request.Clone(), s.toFunction(), nil); {
	case errors.Is(err, sipudp.ErrCancelled):
		s.answer(tx, sip.StatusRequestTerminated, "Request Terminated")
	case err != nil:
		s.fail(tx, err)
	}
}

// response handles an answer and returns its event. Only the function's are believed.
func (s *sidecar) response(res *sip.Response, a sipudp.Arrival) truth.Event {
	if a.From != s.function {
		s.counts.garbage.Inc()
		return 0
	}
	tx, pass, first := s.transactions.Answered(res)
	if tx == nil {
		return 0
	}
	if waiting, ok := tx.Owner.(waiter); ok {
		if first {
			waiting <- res
		}
	} else if pass {
		s.respond(tx, res)
	}
	return tx.Event
}

func (s *sidecar) timedOut(tx *sipudp.Transaction) {
	s.counts.timeouts.Inc()
	if waiting, ok := tx.Owner.(waiter); ok {
		waiting <- nil
		return
	}
	if !tx.Own() { // a CANCEL is the sidecar's own
		s.answer(tx, sip.StatusRequestTimeout, "Request Timeout")
	}
}

var errTimeout = errors.New("the function does not answer")

// fail answers a request that the store or the function kept from being served.
func (s *sidecar) fail(tx *sipudp.Transaction, err error) {
	s.counts.failed.Inc()
	level := slog.LevelDebug
	switch {
	case errors.Is(err, errTimeout):
		s.answer(tx, sip.StatusGatewayTimeout, "Function Timeout")
	case errors.Is(err, keep.ErrAway), errors.Is(err, keep.ErrChanged):
		s.answer(tx, sip.StatusServiceUnavailable, "Store Unavailable", retryAfter())
	case errors.Is(err, context.Canceled):
		s.answer(tx, sip.StatusServiceUnavailable, "Sidecar Ends", retryAfter())
	default: // an operator must act: the function does not trust the sidecar, or a record is damaged
		level = slog.LevelWarn
		s.answer(tx, sip.StatusInternalServerError, "Sidecar Error")
	}
	s.log.Log(context.Background(), level, "a request failed", "method", tx.Request.Method, "error", err)
}

func retryAfter() sip.Header { return sip.NewHeader("Retry-After", "1") }

func (s *sidecar) answer(tx *sipudp.Transaction, status int, reason string, headers ...sip.Header) {
	s.respond(tx, sipudp.Reply(tx.Request, status, reason, headers...))
}

func (s *sidecar) respond(tx *sipudp.Transaction, res *sip.Response) {
	s.note(s.transactions.Respond(tx, res))
}

// note logs a message that could not be sent. The client or the function repeats it.
func (s *sidecar) note(err error) {
	if err != nil {
		s.log.Debug("a message was not sent", "error", err)
	}
}

func (s *sidecar) toFunction() sipudp.Peer { return sipudp.Peer{Socket: s.socket, To: s.function} }
