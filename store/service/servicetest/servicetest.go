// Package servicetest serves a store in tests of its clients.
package servicetest

import (
	"context"
	"errors"
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
	handler := kv.New(kv.Config{Engine: engine, Now: store.ClockOf(engine, time.Now)})
	server := service.New(service.Config{
		Registry: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
		Routes: []service.Route{{Path: kv.Root, Operation: kv.Operation, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if s.Away.Load() {
				http.Error(w, "away", http.StatusServiceUnavailable)
				return
			}
			handler.ServeHTTP(w, r)
		})}},
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
