package service

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
// count its records, and that neither is an error. Whether the engine is full is known in both cases.
func TestEngineAway(t *testing.T) {
	promises := func() store.Promises { return store.Promises{} }
	if n := testutil.CollectAndCount(NewEngineCollector(measured{}, promises, NewProber(measured{}))); n != 6 {
		t.Errorf("got %d metrics, want 6", n)
	}
	want := "# HELP vitrine_store_engine_up 1 while the engine answers and takes writes. A full engine is up.\n" +
		"# TYPE vitrine_store_engine_up gauge\nvitrine_store_engine_up "
	for name, c := range map[string]struct {
		engine  measured
		up      string
		metrics int
	}{
		"away":                {measured{figures: errors.New("away"), state: errors.New("away")}, "0", 3},
		"busy":                {measured{figures: errors.New("too slow")}, "1", 3},
		"closed":              {measured{figures: store.ErrClosed, state: store.ErrClosed}, "0", 2},
		"reads, but no write": {measured{state: errors.New("a replica")}, "0", 6},
	} {
		collector := NewEngineCollector(c.engine, promises, NewProber(c.engine))
		if err := testutil.CollectAndCompare(collector, strings.NewReader(want+c.up+"\n"), "vitrine_store_engine_up"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := testutil.CollectAndCount(collector); n != c.metrics {
			t.Errorf("%s: got %d metrics, want %d", name, n, c.metrics)
		}
	}
}

// TestSynced checks that the metrics follow the promises, which change while the store runs.
func TestSynced(t *testing.T) {
	var now store.Promises
	collector := NewEngineCollector(measured{}, func() store.Promises { return now }, NewProber(measured{}))
	want := "# HELP vitrine_store_synced 1 while the engine promises that no crash loses an answered write.\n" +
		"# TYPE vitrine_store_synced gauge\nvitrine_store_synced "
	for durability, value := range map[store.Durability]string{
		store.Consensus: "1", store.Synced: "1", store.Interval: "0", store.Process: "0", store.Memory: "0",
	} {
		now.Durability = durability
		if err := testutil.CollectAndCompare(collector, strings.NewReader(want+value+"\n"), "vitrine_store_synced"); err != nil {
			t.Errorf("%s: %v", durability, err)
		}
	}
}

// A gated engine counts its probes. They end when the gate is closed.
type gated struct {
	probes atomic.Int64
	gate   chan struct{}
}

func (g *gated) Probe(ctx context.Context) error {
	g.probes.Add(1)
	<-g.gate
	return ctx.Err()
}

// TestProbesAreShared checks that many questions at the same time cost an engine few probes, and that a client
// that leaves does not make the engine seem down.
func TestProbesAreShared(t *testing.T) {
	g := &gated{gate: make(chan struct{})}
	p := NewProber(g)
	began := time.Now()
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() { p.IsUp(t.Context()) })
	}
	close(g.gate)
	all.Wait()
	if n, most := g.probes.Load(), 1+int64(time.Since(began)/probeEvery); n > most {
		t.Errorf("500 questions cost %d probes, want at most %d", n, most)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	if !NewProber(g).IsUp(ctx) {
		t.Error("the engine seems down because a client has left")
	}
}

// TestProbesAreRepeated checks that a Prober finds out soon that an engine has stopped serving.
func TestProbesAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measured{}
		p := NewProber(m)
		if !p.IsUp(t.Context()) {
			t.Error("an engine that serves is down")
		}
		m.state = errors.New("away")
		time.Sleep(probeEvery)
		if p.IsUp(t.Context()) {
			t.Errorf("an engine that stopped serving is up %s later", probeEvery)
		}
	})
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
