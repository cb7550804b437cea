package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"vitrine/reference/ims"
	"vitrine/reference/ims/socket"
)

// MaxRequest bounds the bodies that servers read, in bytes.
const MaxRequest = 1 << 20

// Serve answers on an open listener until ctx is done, and closes it.
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

// ServeMetrics serves the counters on addr in group, in the text format of
// Prometheus at /metrics, unless addr is zero.
func ServeMetrics(ctx context.Context, group *errgroup.Group, addr netip.AddrPort, registry *prometheus.Registry, log *slog.Logger) error {
	if !addr.IsValid() {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr.String())
	if err != nil {
		return ims.ListenError("metrics", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	group.Go(func() error { return Serve(ctx, listener, mux, log) })
	return nil
}
