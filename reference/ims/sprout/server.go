package sprout

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/emiago/sipgo/sip"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"vitrine/internal/truth"
	"vitrine/reference/ims"
	"vitrine/reference/ims/overload"
	"vitrine/reference/ims/rest"
	"vitrine/reference/ims/sipudp"
	"vitrine/reference/keep"
)

// A server is Sprout's logic. One goroutine reads and parses. It handles requests
// that need no other component, and queues the others, up to a limit, for the
// workers.
type server struct {
	socket       *sipudp.Socket
	ours         map[netip.AddrPort]bool // addresses of this Sprout
	directors    []netip.AddrPort        // in front of the Bonos; they know no Sprouts
	edge         atomic.Pointer[netip.AddrPort]
	transactions *sipudp.Transactions
	load         *overload.Monitor // nil except in mode clearwater
	queue        chan *sipudp.Transaction
	records      keeper
	answered     chan *sipudp.Transaction // forwarded requests whose answer is to be published; nil except with --publish all
	home         *rest.Client
	homer, ralf  *rest.Client // nil if there is none
	charges      chan chargeable
	unwatched    chan watcher // subscriptions whose NOTIFY failed
	maxExpires   time.Duration
	log          *slog.Logger
	counts       counts
}

// begun handles a request that is no retransmission.
func (s *server) begun(tx *sipudp.Transaction, a sipudp.Arrival) {
	req := tx.Request
	s.counts.requests.WithLabelValues(method(req)).Inc()
	switch {
	case req.Method == sip.OPTIONS && req.Recipient.User == "":
		s.respond(tx, sipudp.Reply(req, sip.StatusOK, "OK"))
	case sipudp.Initial(req):
		if s.load != nil && !s.load.Admit(a.At) {
			s.reject(tx)
			return
		}
		if !s.records.Ready() {
			s.answer(tx, keep.ErrAway)
			return
		}
		if req.Method == sip.INVITE {
			s.respond(tx, sipudp.Reply(req, sip.StatusTrying, "Trying"))
		}
		s.enqueue(tx)
	case req.Method == sip.SUBSCRIBE, s.answered != nil:
		s.enqueue(tx) // the worker learns whether the store answers
	default:
		s.answer(tx, s.inDialog(tx))
	}
}

// method returns the label of a request. It limits the labels, because clients
// can send any method.
func method(req *sip.Request) string {
	switch req.Method {
	case sip.REGISTER, sip.INVITE, sip.BYE, sip.SUBSCRIBE, sip.OPTIONS, sip.MESSAGE:
		return string(req.Method)
	}
	return "other"
}

// enqueue queues a request for the workers, or rejects it if the queue is full.
func (s *server) enqueue(tx *sipudp.Transaction) {
	select {
	case s.queue <- tx:
	default:
		s.reject(tx)
	}
}

func (s *server) reject(tx *sipudp.Transaction) {
	s.counts.shed.Inc()
	s.unavailable(tx, "Overloaded")
}

func (s *server) unavailable(tx *sipudp.Transaction, reason string) {
	s.respond(tx, sipudp.Reply(tx.Request, sip.StatusServiceUnavailable, reason, sip.NewHeader("Retry-After", "1")))
}

// work serves the queue until ctx is done. It measures the time from the kernel's
// receive queue to the end of the work. As in Clearwater, the wait for a slow
// Homestead counts.
func (s *server) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case tx := <-s.queue:
			s.counts.waited.Observe(time.Since(tx.Arrived).Seconds())
			s.handle(truth.With(ctx, tx.Event), tx)
			if s.load != nil {
				now := time.Now()
				s.load.Done(now, now.Sub(tx.Arrived))
			}
		case tx := <-s.answered:
			_, answer := s.transactions.Sent(tx)
			s.publishSent(truth.With(ctx, tx.Event), tx, answerMessage, answer)
		}
	}
}

func (s *server) serve(ctx context.Context, tx *sipudp.Transaction) error {
	s.learnEdge(tx.Request)
	switch tx.Request.Method {
	case sip.REGISTER:
		return s.register(ctx, tx)
	case sip.SUBSCRIBE:
		return s.subscribe(ctx, tx)
	}
	if !sipudp.Initial(tx.Request) {
		return s.inDialog(tx)
	}
	return s.session(ctx, tx)
}

// answer answers a request that could not be served. It does nothing if err is
// nil.
func (s *server) answer(tx *sipudp.Transaction, err error) {
	switch {
	case err == nil:
		return
	case errors.Is(err, keep.ErrAway):
		s.counts.away.Inc()
		s.unavailable(tx, "Store Is Unreachable")
		return
	}
	r := &refusal{status: sip.StatusInternalServerError, reason: "Internal Error"}
	if !errors.As(err, &r) {
		s.log.Warn("a request failed", "method", tx.Request.Method, "to", tx.Request.To().Address.Addr(), "error", err)
	}
	s.counts.refused.Inc()
	s.respond(tx, sipudp.Reply(tx.Request, r.status, r.reason, r.headers...))
}

func (s *server) respond(tx *sipudp.Transaction, res *sip.Response) {
	if err := s.transactions.Respond(tx, res); err != nil {
		s.log.Debug("an answer was not sent", "error", err)
	}
}

// timedOut answers 408 for the next hop that did not answer. If the request is a NOTIFY of
// this Sprout, its subscription ends.
func (s *server) timedOut(tx *sipudp.Transaction) {
	s.counts.timeouts.Inc()
	if tx.Own() {
		s.notified(tx, sip.StatusRequestTimeout)
		return
	}
	s.respond(tx, sipudp.Reply(tx.Request, sip.StatusRequestTimeout, "Request Timeout"))
	s.publishLater(tx)
}

// uri returns this Sprout's own URI with lr, and with param if it is not empty.
func (s *server) uri(param string) string {
	uri := "sip:" + s.socket.Local().String() + ";lr"
	if param != "" {
		uri += ";" + param
	}
	return uri
}

type counts struct {
	requests, registered                                                       *prometheus.CounterVec
	shed, refused, late, challenges, wrong, subscriptions, notifies, forwarded prometheus.Counter
	timeouts, garbage, expired, homerFailed, unchargeable, away, unpublished   prometheus.Counter
	unwatched                                                                  prometheus.Counter
	waited                                                                     prometheus.Histogram
}

func newCounts(registry *prometheus.Registry) counts {
	register, counter := promauto.With(registry), ims.Counters(registry, "sprout")
	return counts{
		requests:   register.NewCounterVec(prometheus.CounterOpts{Name: "sprout_requests_total", Help: "Requests received, without retransmissions."}, []string{"method"}),
		registered: register.NewCounterVec(prometheus.CounterOpts{Name: "sprout_registrations_total", Help: "Registrations carried out, by kind."}, []string{"kind"}),
		waited: register.NewHistogram(prometheus.HistogramOpts{
			Name: "sprout_queue_seconds", Help: "From the kernel's receive queue to a worker.",
			Buckets: []float64{.001, .005, .01, .02, .05, .1, .2, .5, 1},
		}),
		shed:          counter("rejected", "Requests rejected with 503 for overload."),
		refused:       counter("refused", "Requests answered with any other failure."),
		late:          counter("homestead_late", "Requests to Homestead that were not answered in time."),
		challenges:    counter("challenges", "401 challenges sent."),
		wrong:         counter("wrong_credentials", "REGISTERs with a wrong password, username, realm or public identity."),
		subscriptions: counter("subscriptions", "Subscriptions begun, refreshed or ended."),
		notifies:      counter("notifies", "NOTIFYs sent."),
		unwatched:     counter("subscriptions_failed", "Subscriptions removed because a NOTIFY failed."),
		forwarded:     counter("forwarded", "Requests forwarded."),
		timeouts:      counter("timeouts", "Forwarded requests that nobody answered in time."),
		garbage:       counter("garbage", "Datagrams that were no usable SIP message."),
		expired:       counter("expired", "Expired registrations claimed here."),
		homerFailed:   counter("homer_failed", "Telephony settings that could not be fetched."),
		away:          counter("store_refused", "Requests refused with 503 because the store did not answer."),
		unchargeable:  counter("charging_lost", "Charging records that were lost."),
		unpublished:   counter("unpublished", "Messages of transactions that were not published, although --publish all asks for it."),
	}
}
