package rest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/ims"
	"vitrine/reference/ims/socket"
)

// MaxRequest limits the bodies that servers read, in bytes.
const MaxRequest = 1 << 20

// NewMux returns a mux with the GET /ping of Clearwater's servers.
func NewMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "OK") })
	return mux
}

// Body reads and parses the body of a request. If that fails, it answers the request with
// 400 and returns false.
func Body[T any](w http.ResponseWriter, r *http.Request, parse func([]byte) (T, error)) (value T, ok bool) {
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxRequest))
	if err == nil {
		value, err = parse(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return value, false
	}
	return value, true
}

// Serve serves an open listener until ctx is done, and closes it.
func Serve(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(socket.Listener{Listener: listener}); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Wait serves the component's counters in group, in the Prometheus text format at
// /metrics, and its readiness at /ready. It prints that the component is ready at
// its address. When the group has ended, it prints the counters if they are asked
// for, and returns.
func Wait(ctx context.Context, group *errgroup.Group, c *ims.Command, at fmt.Stringer) error {
	metrics, err := ims.Listen(ctx, "metrics", c.Metrics)
	if err != nil {
		group.Go(func() error { return err })
		return errors.Join(group.Wait(), c.Messages.Close())
	}
	if metrics != nil {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{}))
		mux.HandleFunc("GET /ready", func(w http.ResponseWriter, _ *http.Request) {
			if c.Connected != nil && !c.Connected() {
				http.Error(w, "not connected yet", http.StatusServiceUnavailable)
			}
		})
		group.Go(func() error { return Serve(ctx, metrics, mux, c.Log) })
	}
	c.Ready(at)
	return errors.Join(group.Wait(), c.End())
}
