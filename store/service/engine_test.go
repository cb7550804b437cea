package service

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vitrine/store"
)

// A measured engine has figures and a state, or errors in place of them.
type measured struct{ figures, state error }

func (m measured) Gauges(context.Context) (store.Gauges, error) {
	return store.Gauges{Records: 1, Bytes: 2, Waiting: 3}, m.figures
}

func (m measured) Probe(context.Context) error { return m.state }

// TestEngineAway checks that the metrics tell an engine that does not serve from one that is too busy to
// count its records, and that neither is an error.
func TestEngineAway(t *testing.T) {
	if n := testutil.CollectAndCount(NewEngineCollector(measured{})); n != 5 {
		t.Errorf("got %d metrics, want 5", n)
	}
	want := "# HELP vitrine_store_engine_up 1 while the engine answers and takes writes. A full engine is up.\n" +
		"# TYPE vitrine_store_engine_up gauge\nvitrine_store_engine_up "
	for name, c := range map[string]struct {
		engine  measured
		up      string
		metrics int
	}{
		"away":                {measured{figures: errors.New("away"), state: errors.New("away")}, "0", 1},
		"busy":                {measured{figures: errors.New("too slow")}, "1", 1},
		"reads, but no write": {measured{state: errors.New("a replica")}, "0", 5},
	} {
		collector := NewEngineCollector(c.engine)
		if err := testutil.CollectAndCompare(collector, strings.NewReader(want+c.up+"\n"), "vitrine_store_engine_up"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := testutil.CollectAndCount(collector); n != c.metrics {
			t.Errorf("%s: got %d metrics, want %d", name, n, c.metrics)
		}
	}
}

// TestFailuresBeginAtZero checks that the counter of failures has each status before the first failure, so
// that an alert on its increase sees that one.
func TestFailuresBeginAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	failed := CountFailures(registry)
	failed(507)
	want := "# HELP vitrine_store_failures_total Requests that the engine did not serve, by the status of their answer: 500, 503, 507.\n" +
		"# TYPE vitrine_store_failures_total counter\n" +
		"vitrine_store_failures_total{status=\"500\"} 0\nvitrine_store_failures_total{status=\"503\"} 0\nvitrine_store_failures_total{status=\"507\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
