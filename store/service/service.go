// Package service runs the store's APIs as a long-running service. It controls access and load,
// measures the latency of each operation, and shuts down in order.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vitrine"
	"vitrine/internal/access"
	"vitrine/internal/vitals"
	"vitrine/store"
	"vitrine/store/service/quick"
)

// Config of a Service. The zero value of a number means its default.
type Config struct {
	Routes   []Route
	Registry *prometheus.Registry
	Logger   *slog.Logger
	Version  string // for the metrics

	TLS    *access.ServerTLS // nil: plain
	Tokens *access.TokenFile // nil: no token needed
	Reload <-chan struct{}   // requests to reload their files, which also happens every 30 s; may be nil

	InFlight    int   // requests at the same time; beyond it 503; default 1024
	Watches     int   // at the same time; beyond it 429; default 1024
	Bodies      int64 // bytes of request bodies at the same time; beyond it 503, and 413 if one body is; default 64 MiB
	Answers     int64 // bytes of large answers at the same time, see Route.Answer; beyond it 503, and 403 if one answer is; default 256 MiB
	Connections int   // at the same time; more wait to be accepted; default 4096
	PerSource   int   // connections from one address (IPv6: /64); more are closed; default 1024

	Slow  time.Duration // a request is slow if it takes longer; default 50 ms
	Share float64       // an operation is past the threshold if more than this share of a window is slow or refused; default 0.01
	Every time.Duration // the window; default 10 s
}

// A Route serves one path and the paths below it.
type Route struct {
	Path      string // everything at it and below it
	Handler   http.Handler
	Operation func(*http.Request) string // operation name for metrics; "": a watch, which only Watches limits; nil: a check, which only mostChecks limits
	Open      bool                       // needs no token
	Answer    func(*http.Request) int64  // bytes of memory that a large answer may take; 0: small; nil: all answers are small
	Quick     func(*http.Request) bool   // reports whether the answer is short and comes soon, see quick.Config; nil: never
}

// answer returns how many bytes the answer to a request may take, if it is a large one.
func (r *Route) answer(request *http.Request) int64 {
	if r.Answer == nil {
		return 0
	}
	return r.Answer(request)
}

// Service is an http.Handler with limits, access control and metrics.
type Service struct {
	config   Config
	requests *budget
	checks   *budget
	watches  *budget
	bodies   *budget
	answers  *budget
	sources  *sources
	refused  *prometheus.CounterVec
	watch    *watch
	origins  *http.CrossOriginProtection

	ending context.Context // done when Serve ends; watches end then
	end    context.CancelFunc

	reloadFailed atomic.Bool // the last reload
}

// New returns a service for the routes.
func New(c Config) *Service {
	c.InFlight = cmp.Or(c.InFlight, 1024)
	c.Watches = cmp.Or(c.Watches, 1024)
	c.Bodies = cmp.Or(c.Bodies, 64<<20)
	c.Answers = cmp.Or(c.Answers, 256<<20)
	c.Connections = cmp.Or(c.Connections, 4096)
	c.PerSource = cmp.Or(c.PerSource, 1024)
	c.Slow = cmp.Or(c.Slow, 50*time.Millisecond)
	c.Share = cmp.Or(c.Share, 0.01)
	c.Every = cmp.Or(c.Every, 10*time.Second)
	s := &Service{
		config:   c,
		requests: newBudget(int64(c.InFlight)), checks: newBudget(mostChecks), watches: newBudget(int64(c.Watches)), bodies: newBudget(c.Bodies), answers: newBudget(c.Answers),
		watch: newWatch(c.Slow, c.Share, c.Every, c.Logger), origins: http.NewCrossOriginProtection(),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vitrine_store_refused_total", Help: "Requests refused, by cause: token, origin, size, requests, checks, watches, bodies, answers; connections, by cause: source, or head if they ended without a request.",
		}, []string{"cause"}),
	}
	s.ending, s.end = context.WithCancel(context.Background())
	s.sources = &sources{most: c.PerSource, refused: s.refused.WithLabelValues("source"), unused: s.refused.WithLabelValues("head"), log: c.Logger, count: map[netip.Addr]int{}}
	c.Registry.MustRegister(s.refused, s.watch,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "vitrine_store_connections", Help: "Open connections.",
		}, func() float64 { return float64(s.sources.total()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "vitrine_store_requests_in_flight", Help: "Requests in progress.",
		}, func() float64 { return float64(s.requests.taken()) }))
	self := vitals.Service{Prefix: "vitrine_store_", Version: c.Version, ReloadFailed: s.reloadFailed.Load}
	if c.TLS != nil {
		self.Expiry = c.TLS.Expiry
	}
	self.Register(c.Registry)
	for _, cause := range []string{"token", "origin", "size", "requests", "checks", "watches", "bodies", "answers", "source", "head"} {
		s.refused.WithLabelValues(cause)
	}
	return s
}

// Past returns the operations that are past the threshold of slow and refused requests, with the
// reason. It is the signal for an orchestrator to add an instance.
func (s *Service) Past() map[string]string { return s.watch.Past() }

// ServeHTTP passes a request to its route, or refuses it.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route := s.route(r.URL.Path)
	noteRequest(r)
	if route == nil {
		refuse(w, http.StatusNotFound, "no such path")
		return
	}
	if !route.Open && s.config.Tokens != nil && !s.config.Tokens.Tokens().Accept(r) {
		because := "no token"
		if r.Header.Get("Authorization") != "" {
			because = "a token that is not known"
		}
		s.deny(r, "token", because)
		w.Header().Set("WWW-Authenticate", `Bearer realm="vitrine store"`)
		refuse(w, http.StatusUnauthorized, "a token is needed: Authorization: Bearer TOKEN")
		return
	}
	if status, why := s.checkOrigin(r); status != 0 {
		s.deny(r, "origin", why)
		refuse(w, status, why)
		return
	}
	if route.Operation == nil {
		s.counted(w, r, route, s.checks, refusal{http.StatusServiceUnavailable, "1", "checks"})
		return
	}
	if operation := route.Operation(r); operation != "" {
		s.measured(w, r, route, operation)
		return
	}
	if r.ContentLength != 0 { // with HTTP/2, up to 1 MiB of it would stay in memory while the watch lasts
		refuse(w, http.StatusBadRequest, "a watch has no body")
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.ending, func() { cancel(store.ErrClosed) })()
	s.counted(w, r.WithContext(ctx), route, s.watches, refusal{http.StatusTooManyRequests, "10", "watches"})
}

// deny counts and logs a request that is refused access.
func (s *Service) deny(r *http.Request, cause, because string) {
	s.refused.WithLabelValues(cause).Inc()
	s.config.Logger.Warn("access refused", "from", r.RemoteAddr, "method", r.Method, "path", r.URL.Path, "because", because)
}

// checkOrigin returns a status and a reason for a request that a web page of another site may have
// made a browser send, and 0 for others. A page has no token, so tokens make the check needless.
func (s *Service) checkOrigin(r *http.Request) (status int, why string) {
	if s.config.Tokens != nil {
		return 0, ""
	}
	if s.config.TLS == nil && r.Host != "" && !access.IsAddress(r.Host) {
		return http.StatusMisdirectedRequest, "without tokens, Host must be the store's address: an IP address or localhost"
	}
	if err := s.origins.Check(r); err != nil {
		return http.StatusForbidden, err.Error()
	}
	return 0, ""
}

// mostChecks is the number of requests at the same time for /health, /metrics and documents. They have a limit of
// their own: /health must answer when a store has too many requests, and whoever has no token can ask only for these.
const mostChecks = 64

// counted serves a request that only its number limits. A refused one does not count towards the threshold: another
// store would not help for long against watches, which stay, and checks are no load.
func (s *Service) counted(w http.ResponseWriter, r *http.Request, route *Route, limit *budget, full refusal) {
	from := clientOf(r)
	if !limit.take(from, 1) {
		s.full(w, full)
		return
	}
	defer limit.free(from, 1)
	route.Handler.ServeHTTP(w, r)
}

func (s *Service) route(path string) *Route {
	for i := range s.config.Routes {
		route := &s.config.Routes[i]
		rest, ok := strings.CutPrefix(path, route.Path)
		if ok && (rest == "" || rest[0] == '/') {
			return route
		}
	}
	return nil
}

// isQuick reports whether package quick may serve a request.
func (s *Service) isQuick(r *http.Request) bool {
	route := s.route(r.URL.Path)
	return route != nil && route.Quick != nil && route.Quick(r)
}

// maxBody is the length of the longest body that any route takes, in bytes, with its framing.
const maxBody = 5 << 20

// measured serves a request within the limits and measures its duration.
func (s *Service) measured(w http.ResponseWriter, r *http.Request, route *Route, operation string) {
	began := time.Now()
	body, answer := r.ContentLength, route.answer(r)
	if body < 0 {
		body = 1 << 20 // length unknown: assume the largest value
		if r.Method == http.MethodPost {
			body = maxBody // a batch
		}
	}
	switch {
	case body > min(maxBody, s.bodies.most):
		s.tooLarge(w, http.StatusRequestEntityTooLarge, "the body is too long")
		return
	case answer > s.answers.most:
		s.tooLarge(w, http.StatusForbidden, "the answer may be larger than --max-answers: ask for less")
		return
	}
	from := clientOf(r)
	if !s.requests.take(from, 1) {
		s.overload(w, operation, "requests")
		return
	}
	defer s.requests.free(from, 1)
	if body > 0 {
		if !s.bodies.take(from, body) {
			s.overload(w, operation, "bodies")
			return
		}
		defer s.bodies.free(from, body)
	}
	if answer > 0 {
		if !s.answers.take(from, answer) {
			s.overload(w, operation, "answers")
			return
		}
		defer s.answers.free(from, answer)
	}
	route.Handler.ServeHTTP(w, r)
	s.watch.Observe(operation, time.Since(began))
}

// tooLarge refuses a request that exceeds a limit by itself. It does not count towards the
// threshold, because another store would refuse it too.
func (s *Service) tooLarge(w http.ResponseWriter, status int, title string) {
	s.refused.WithLabelValues("size").Inc()
	refuse(w, status, title)
}

// overload refuses a request of an operation that would exceed a limit, and counts the request
// towards the threshold.
func (s *Service) overload(w http.ResponseWriter, operation, cause string) {
	s.watch.Refuse(operation, cause)
	s.full(w, refusal{http.StatusServiceUnavailable, "1", cause})
}

// A refusal is the answer to a request that would exceed a limit.
type refusal struct {
	status int
	retry  string // seconds
	cause  string // the end of the option's name, if the limit has an option
}

// full refuses a request that would exceed a limit.
func (s *Service) full(w http.ResponseWriter, why refusal) {
	s.refused.WithLabelValues(why.cause).Inc()
	w.Header().Set("Retry-After", why.retry)
	refuse(w, why.status, "too many "+why.cause+" at the same time")
}

func refuse(w http.ResponseWriter, status int, title string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	fmt.Fprintf(w, "{\"status\":%d,\"title\":%q}\n", status, title)
}

// Guarded returns an error unless the service may listen on the address. Beyond loopback it needs
// access control, and TLS so that tokens do not travel in clear.
func (c *Config) Guarded(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return &vitrine.BadInput{File: "--listen", Found: err.Error(), Want: "ADDRESS:PORT"}
	}
	if ip := net.ParseIP(host); (ip != nil && ip.IsLoopback()) || host == "localhost" {
		return nil
	}
	switch {
	case c.Tokens == nil && (c.TLS == nil || c.TLS.Clients == ""):
		return &vitrine.BadInput{File: "--listen", Found: address + " is not loopback, and anybody could ask",
			Want: "give --tls-cert and --tls-key, and --token-file or --client-ca"}
	case c.TLS == nil:
		return &vitrine.BadInput{File: "--listen", Found: address + " is not loopback, and tokens would go in clear",
			Want: "give --tls-cert and --tls-key"}
	}
	return nil
}

// graceTime is how long requests may take to finish at shutdown.
const graceTime = 5 * time.Second

// Serve serves on the listeners until ctx ends, ends the watches, gives running requests graceTime to
// finish, and returns. It is called once.
func (s *Service) Serve(ctx context.Context, listeners ...net.Listener) error {
	server := s.server()
	work, ctx := errgroup.WithContext(ctx)
	limit := make(chan struct{}, s.config.Connections)
	var quicks []*quick.Listener
	for _, l := range listeners {
		l = &limited{Listener: l, slots: limit, sources: s.sources, done: make(chan struct{})}
		serve := func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		if s.config.TLS == nil {
			q := s.quick(l)
			quicks = append(quicks, q)
			l, serve = q, server.Serve
		}
		work.Go(func() error {
			if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve %s: %w", l.Addr(), err)
			}
			return nil
		})
	}
	work.Go(func() error {
		s.watch.run(ctx)
		return nil
	})
	work.Go(func() error {
		s.reload(ctx)
		return nil
	})
	work.Go(func() error {
		<-ctx.Done()
		s.end()
		//nolint:contextcheck // ctx has ended: this is what comes after it
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceTime)
		defer cancel()
		err := server.Shutdown(grace)
		for _, q := range quicks {
			err = errors.Join(err, q.Shutdown(grace))
		}
		if err != nil {
			return server.Close() // a client that reads nothing holds its request
		}
		return nil
	})
	return work.Wait()
}

// quick returns a listener that serves quick requests itself, with the timeouts of server.
func (s *Service) quick(l net.Listener) *quick.Listener {
	return quick.Listen(l, quick.Config{
		Handler: s, Quick: s.isQuick, Context: withConnection, Logger: s.config.Logger,
		First: headTimeout, Idle: idleTimeout, Write: writeTimeout,
	})
}

// reload reads tokens and certificates again on request and at intervals.
func (s *Service) reload(ctx context.Context) {
	var files []func() error
	if s.config.Tokens != nil {
		files = append(files, s.config.Tokens.Reload)
	}
	if s.config.TLS != nil {
		files = append(files, s.config.TLS.Reload)
	}
	access.Reread(ctx, s.config.Reload, s.config.Logger, &s.reloadFailed, files...)
}

// Timeouts of a client that sends or reads nothing.
const (
	headTimeout  = 5 * time.Second
	idleTimeout  = 2 * time.Minute
	writeTimeout = time.Minute
)

// server returns a server for HTTP/1.1 and HTTP/2, with and without TLS. Its timeouts stop clients
// that send or read nothing. Watches and long requests set their own write deadline.
func (s *Service) server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headTimeout,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		Protocols:         protocols,
		ConnContext:       withConnection,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 250, WriteByteTimeout: 30 * time.Second},
		ErrorLog:          slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelWarn), // panics, failed TLS handshakes
	}
	if s.config.TLS != nil {
		server.TLSConfig = s.config.TLS.Config()
	}
	return server
}
