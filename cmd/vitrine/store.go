package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"vitrine"
	"vitrine/internal/access"
	"vitrine/store"
	"vitrine/store/kv"
	"vitrine/store/service"
)

// storeFlags are the flags of store run.
type storeFlags struct {
	listen                 []string
	engine                 engineFlags
	nudsf                  nudsfFlags
	tokens                 string
	cert, key, clientCA    string
	inFlight               int
	connections, perSource int
	bodies, answers        int64
	watches                int
	slow, window           time.Duration
	share                  float64
	log                    string
}

func (a *app) storeCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "store",
		Short: "Run the shared state store",
		Long: "Run the shared state store: records that outlive a transaction, kept outside the\n" +
			"instances, behind a plain API (/kv) and the standard one (Nudsf). See docs/store.md.",
		Args: checkVerb,
		RunE: showHelp,
	}
	c.AddCommand(a.storeRunCommand())
	return c
}

func (a *app) storeRunCommand() *cobra.Command {
	f := &storeFlags{}
	c := &cobra.Command{
		Use:   "run",
		Short: "Answer requests until interrupted",
		Args:  args(cobra.NoArgs),
		RunE:  func(c *cobra.Command, _ []string) error { return a.runStore(c.Context(), f) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.listen, "listen", []string{"127.0.0.1:8070"}, "addresses to listen on; addresses other than loopback need TLS, and tokens or client certificates")
	flags.StringVar(&f.tokens, "token-file", "", "file with the accepted tokens, one per line")
	flags.StringVar(&f.cert, "tls-cert", "", "PEM file of the server certificate")
	flags.StringVar(&f.key, "tls-key", "", "PEM file of the server certificate's key")
	flags.StringVar(&f.clientCA, "client-ca", "", "PEM file of the authorities that must sign client certificates")
	flags.IntVar(&f.inFlight, "max-requests", 1024, "concurrent requests; further ones are answered 503")
	flags.Int64Var(&f.bodies, "max-bodies", 64<<20, "bytes of request bodies in memory; further requests are answered 503")
	flags.Int64Var(&f.answers, "max-answers", 256<<20, "bytes of large answers in memory (searches that retrieve records, lists with values); further requests are answered 503")
	flags.IntVar(&f.connections, "max-connections", 4096, "concurrent connections; further ones wait")
	flags.IntVar(&f.perSource, "max-connections-per-source", 1024, "concurrent connections from one address (IPv6: /64); further ones are closed")
	flags.IntVar(&f.watches, "max-watches", 1024, "concurrent watches, at most three quarters of them from one address (IPv6: /64); further ones are answered 429")
	flags.DurationVar(&f.slow, "slow", 50*time.Millisecond, "an operation that takes longer counts as slow")
	flags.Float64Var(&f.share, "slow-share", 0.01, "share of slow or refused requests in a window above which /health reports the operation")
	flags.DurationVar(&f.window, "slow-window", 10*time.Second, "length of the window for --slow-share")
	flags.StringVar(&f.log, "log", "info", "log level: debug, info, warn, error")
	f.engine.register(flags)
	f.nudsf.register(flags)
	return c
}

// runStore runs a store until ctx ends.
func (a *app) runStore(ctx context.Context, f *storeFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	log, err := a.storeLog(f.log)
	if err != nil {
		return err
	}
	reload, _, stop := serviceSignals() // first, because an engine may take long to open, and SIGHUP would end the store
	defer stop()
	syscall.Umask(0o077) // only the store's user may read its files
	engine, err := f.engine.open(ctx, log)
	if err != nil {
		return startError(ctx, err)
	}
	err = a.serveStore(ctx, f, engine, log, reload)
	if closed := engine.Close(); err == nil {
		err = closed
	}
	return err
}

// check returns an error if the value of a flag is out of range.
func (f *storeFlags) check() error {
	e, n := &f.engine.embedded, &f.nudsf
	for flag, given := range map[string]int64{
		"max-requests": int64(f.inFlight), "max-bodies": f.bodies, "max-answers": f.answers, "max-connections": int64(f.connections),
		"max-connections-per-source": int64(f.perSource), "max-watches": int64(f.watches), "slow": int64(f.slow), "slow-window": int64(f.window),
		"sync-every": int64(e.Every), "cache": e.CacheBytes, "max-records": e.MaxRecords,
		"search-time": int64(n.searchTime), "max-search-bytes": n.searchBytes, "max-subscriptions": int64(n.subscriptions),
	} {
		if given <= 0 {
			return &vitrine.BadInput{File: "--" + flag, Found: "a value that is not positive", Want: "want more than 0"}
		}
	}
	if !(f.share > 0 && f.share <= 1) {
		return &vitrine.BadInput{File: "--slow-share", Found: fmt.Sprint(f.share), Want: "want a share above 0, at most 1"}
	}
	e.ReserveBytes = max(e.ReserveBytes, 1) // the engine takes 0 as its default
	return n.checkRoot()
}

func (a *app) storeLog(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, oneOf("--log", level, []string{"debug", "info", "warn", "error"})
	}
	return a.logFrom(l), nil
}

// serveStore serves the APIs on top of the engine.
func (a *app) serveStore(ctx context.Context, f *storeFlags, engine store.Engine, log *slog.Logger, reload <-chan struct{}) error {
	c, err := f.service(log)
	if err != nil {
		return err
	}
	listeners, err := listenStore(ctx, c, f.listen)
	if err != nil {
		return err
	}
	defer closeListeners(listeners) // harmless if serve has closed them already
	c.Reload = reload
	prober := service.NewProber(engine)
	if m, ok := engine.(store.Measured); ok {
		c.Registry.MustRegister(service.NewEngineCollector(m, engine.Promises, prober))
	}
	failed := service.CountFailures(c.Registry)
	function, err := f.nudsf.function(engine, log, addresses(listeners), failed)
	if err != nil {
		return err
	}
	c.Registry.MustRegister(function.Collector())
	var s *service.Service
	health := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeHealth(w, engine.Promises(), prober.IsUp(r.Context()), s.Past())
	})
	plain := kv.New(kv.Config{Engine: engine, Now: store.ClockOf(engine, time.Now), Log: log, Failed: failed})
	c.Routes = []service.Route{
		{Path: kv.Root, Handler: plain, Operation: kv.Operation, Answer: kv.Answer, Quick: quickOn(engine)},
		{Path: "/openapi/kv.yaml", Handler: serveYAML(kv.OpenAPI), Open: true},
		{Path: "/metrics", Handler: promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{})},
		{Path: "/health", Handler: health, Open: true},
	}
	c.Routes = append(c.Routes, nudsfRoutes(function)...)
	s = service.New(*c)
	for _, l := range listeners {
		fmt.Fprintf(a.stdout, "listening on %s\n", l.Addr())
	}
	log.Info("store runs", "engine", engine.Promises().Engine, "durability", engine.Promises().Durability, "pid", os.Getpid())
	return serveWith(ctx, function, func(ctx context.Context) error { return s.Serve(ctx, listeners...) })
}

// quickOn returns a function that reports which requests of the plain API are quick. If several stores
// may share the records, these are on other hosts, and no request is quick: the engine may not answer,
// and then only net/http notices that a client has disconnected.
func quickOn(engine store.Engine) func(*http.Request) bool {
	if engine.Promises().Shared {
		return nil
	}
	return kv.Quick
}

// service returns the service configuration from the flags, without routes.
func (f *storeFlags) service(log *slog.Logger) (*service.Config, error) {
	c := &service.Config{
		Registry: prometheus.NewRegistry(), Logger: log, Version: toolVersion(),
		InFlight: f.inFlight, Watches: f.watches, Bodies: f.bodies, Answers: f.answers, Connections: f.connections, PerSource: f.perSource,
		Slow: f.slow, Share: f.share, Every: f.window,
	}
	var err error
	if f.tokens != "" {
		if c.Tokens, err = access.ReadTokenFile(f.tokens); err != nil {
			return nil, err
		}
	}
	if f.cert+f.key+f.clientCA != "" { // with any TLS flag, never serve without TLS
		if c.TLS, err = service.LoadTLS(f.cert, f.key, f.clientCA); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func listenStore(ctx context.Context, c *service.Config, addresses []string) ([]net.Listener, error) {
	var all []net.Listener
	for _, address := range addresses {
		err := c.Guarded(address)
		if err == nil {
			var l net.Listener
			if l, err = new(net.ListenConfig).Listen(ctx, "tcp", address); err == nil {
				all = append(all, l)
				continue
			}
		}
		closeListeners(all)
		return nil, err
	}
	return all, nil
}

func closeListeners(all []net.Listener) {
	for _, l := range all {
		_ = l.Close() // a listener buffers nothing, so the error is irrelevant
	}
}

// addresses returns the TCP addresses of the listeners.
func addresses(all []net.Listener) (at []netip.AddrPort) {
	for _, l := range all {
		if a, ok := l.Addr().(*net.TCPAddr); ok {
			at = append(at, a.AddrPort())
		}
	}
	return at
}

// A storeHealth is what a store answers at /health.
type storeHealth struct {
	Promises store.Promises    `json:"promises"`
	EngineUp *bool             `json:"engine_up"` // nil: the store is of a version that does not ask its engine
	Past     []string          `json:"past_threshold"`
	Reasons  map[string]string `json:"reasons,omitempty"` // by operation
}

// writeHealth writes the guarantees of the engine, whether it serves, which operations are past their
// threshold, and why.
func writeHealth(w http.ResponseWriter, promises store.Promises, up bool, past map[string]string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(storeHealth{promises, &up, append([]string{}, slices.Sorted(maps.Keys(past))...), past})
}

func serveYAML(document []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		_, _ = w.Write(document)
	})
}
