package nudsf_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/store"
	"vitrine/store/embedded"
	"vitrine/store/nudsf"
	"vitrine/store/nudsf/nudsftest"
)

func TestEmbedded(t *testing.T) {
	t.Parallel()
	nudsftest.Run(t, func(t *testing.T) func() store.Engine {
		dir := t.TempDir()
		return func() store.Engine {
			e, err := embedded.Open(embedded.Config{
				Dir: dir, Now: time.Now, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
			})
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	})
}

// TestMetrics checks the metrics against Prometheus' conventions.
func TestMetrics(t *testing.T) {
	e, err := embedded.Open(embedded.Config{Dir: t.TempDir(), Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f, err := nudsf.New(nudsf.Config{Engine: e, Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := testutil.CollectAndLint(f.Collector()); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	if n := testutil.CollectAndCount(f.Collector()); n != 14 {
		t.Errorf("got %d metrics, want 14", n)
	}
}
