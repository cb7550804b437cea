package main

import (
	"context"
	"log/slog"
	"net/netip"
	"net/url"
	"time"

	"github.com/spf13/pflag"

	"vitrine"
	"vitrine/store"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/timer"
	"vitrine/store/service"
)

// nudsfFlags are the flags of the standard APIs of a store.
type nudsfFlags struct {
	storages      []string
	callbacks     []string
	root          string
	subscriptions int
	searchTime    time.Duration
	searchBytes   int64
}

func (f *nudsfFlags) register(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.storages, "storage", nil, "realm/storage that Nudsf serves (default all)")
	flags.StringSliceVar(&f.callbacks, "allow-callback", nil, "allowed callback targets: host, host:port, *.domain, *, or a prefix such as 10.0.0.0/8 (default every host that is not denied);\n"+
		"loopback, link-local, multicast, unspecified and broadcast addresses are denied unless listed as addresses, and the store's own listeners always")
	flags.StringVar(&f.root, "api-root", "", "scheme, host and port of URIs in responses; without it, the URIs are paths")
	flags.DurationVar(&f.searchTime, "search-time", time.Minute, "longest duration of a search or a deletion by filter")
	flags.Int64Var(&f.searchBytes, "max-search-bytes", 256<<20, "bytes that searches and deletions by filter hold in memory; further ones are answered 503")
	flags.IntVar(&f.subscriptions, "max-subscriptions", 1000, "largest number of subscriptions per storage")
}

// checkRoot refuses an --api-root that has more than a scheme, a host and a port. The paths of URIs follow
// it, and the store compares URIs of clients with its own.
func (f *nudsfFlags) checkRoot() error {
	if f.root == "" {
		return nil
	}
	u, err := url.Parse(f.root)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && f.root == u.Scheme+"://"+u.Host {
		return nil
	}
	return &vitrine.BadInput{File: "--api-root", Found: f.root, Want: "want scheme, host and port alone, such as https://store.example:8443"}
}

// function creates the standard APIs on top of an engine. own are the addresses on which the store
// listens. failed counts failed requests.
func (f *nudsfFlags) function(engine store.Engine, log *slog.Logger, own []netip.AddrPort, failed func(status int)) (*nudsf.Function, error) {
	function, err := nudsf.New(nudsf.Config{
		Engine: engine, Clock: store.ClockOf(engine, time.Now), Log: log, Failed: failed, SearchTime: f.searchTime, SearchBytes: f.searchBytes,
		Storages: f.storages, Allow: f.callbacks, Own: own, APIRoot: f.root, Subscriptions: f.subscriptions,
	})
	if err != nil {
		return nil, &vitrine.BadInput{File: "vitrine store run", Found: err.Error()}
	}
	return function, nil
}

// nudsfRoutes returns the routes of the standard APIs and their descriptions.
func nudsfRoutes(f *nudsf.Function) []service.Route {
	return []service.Route{
		{Path: nudsf.Root, Handler: f.Records, Operation: nudsf.Operation, Answer: nudsf.Answer},
		{Path: timer.Root, Handler: f.Timers, Operation: timer.Operation},
		{Path: "/openapi/nudsf-dr.yaml", Handler: serveYAML(nudsf.OpenAPI), Open: true},
		{Path: "/openapi/nudsf-timer.yaml", Handler: serveYAML(timer.OpenAPI), Open: true},
	}
}

// serveWith runs serve together with the function, which sends callbacks and expires records and
// timers. When one of them ends, serveWith stops the other.
func serveWith(ctx context.Context, f *nudsf.Function, serve func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- f.Run(ctx)
	}()
	err := serve(ctx)
	cancel()
	if ran := <-ended; err == nil {
		err = ran
	}
	return err
}
