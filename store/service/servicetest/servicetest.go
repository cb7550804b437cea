// Package servicetest serves a store in tests of its clients.
package servicetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/store"
	"vitrine/store/kv"
	"vitrine/store/service"
)

// A Store serves the plain API.
type Store struct {
	URL  string
	Away atomic.Bool // requests get 503
}

// Serve serves an engine until the test ends, and then closes it.
func Serve(t testing.TB, engine store.Engine) *Store {
	t.Helper()
	s := &Store{}
	plain := route(engine)
	handler := plain.Handler
	plain.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.Away.Load() {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		handler.ServeHTTP(w, r)
	})
	server := service.New(service.Config{
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler), Routes: []service.Route{plain},
	})
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.URL = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, engine.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Run serves an engine at an address until ctx ends, and then closes it. It prints a line with
// "ready on" when it serves, as a hosttest.Program does. Run sets the registry and the routes of c.
func Run(ctx context.Context, address string, engine store.Engine, c service.Config, stdout io.Writer) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	c.Registry, c.Routes = prometheus.NewRegistry(), []service.Route{route(engine)}
	fmt.Fprintf(stdout, "store: ready on %s\n", listener.Addr())
	return errors.Join(service.New(c).Serve(ctx, listener), engine.Close())
}

// route serves the plain API over an engine.
func route(engine store.Engine) service.Route {
	return service.Route{Path: kv.Root, Handler: kv.New(kv.Config{Engine: engine, Now: store.ClockOf(engine, time.Now)}), Operation: kv.Operation}
}
