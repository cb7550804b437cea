package service

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/store"
)

// engineCollector exports an engine's gauges.
type engineCollector struct {
	engine                                    store.Measured
	promises                                  func() store.Promises
	prober                                    *Prober
	up, synced, records, bytes, waiting, full *prometheus.Desc
}

// NewEngineCollector returns a collector of an engine's gauges. promises returns what the engine promises
// now.
func NewEngineCollector(m store.Measured, promises func() store.Promises, p *Prober) prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("vitrine_store_"+name, help, nil, nil)
	}
	return &engineCollector{
		engine:   m,
		promises: promises,
		prober:   p,
		up:       desc("engine_up", "1 while the engine answers and takes writes. A full engine is up."),
		synced:   desc("synced", "1 while the engine promises that no crash loses an answered write."),
		records:  desc("records", "Records kept."),
		bytes:    desc("storage_bytes", "Bytes of storage in use."),
		waiting:  desc("writes_waiting", "Writes that wait for the engine."),
		full:     desc("full", "1 while puts are refused because there is no room. Over Redis and etcd: 1 if the last put was refused."),
	}
}

// Describe implements prometheus.Collector.
func (c *engineCollector) Describe(d chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{c.up, c.synced, c.records, c.bytes, c.waiting, c.full} {
		d <- one
	}
}

// Collect implements prometheus.Collector.
func (c *engineCollector) Collect(m chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		if v >= 0 {
			m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
		}
	}
	flag := func(d *prometheus.Desc, is bool) {
		v := 0.0
		if is {
			v = 1
		}
		gauge(d, v)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	flag(c.up, c.prober.IsUp(ctx))
	durability := c.promises().Durability
	flag(c.synced, durability == store.Synced || durability == store.Consensus)
	s, err := c.engine.Gauges(ctx)
	if !errors.Is(err, store.ErrClosed) { // an alert on a full engine must not end while the engine is slow
		flag(c.full, s.Full)
	}
	if err != nil { // a busy engine may be too slow to count its records; a scrape still gets the other metrics
		return
	}
	gauge(c.records, float64(s.Records))
	gauge(c.bytes, float64(s.Bytes))
	gauge(c.waiting, float64(s.Waiting))
}

// probeEvery is the shortest time between two probes of an engine.
const probeEvery = 250 * time.Millisecond

// A Prober knows whether an engine serves. All who ask share its probes. Otherwise requests for /health, which
// needs no token, could load the engine and delay each other until the engine seems down.
type Prober struct {
	engine store.Probed // nil: the engine cannot stop serving

	mu sync.Mutex
	at time.Time // of the end of the last probe
	up bool      // by the last probe
}

// NewProber returns a Prober of an engine.
func NewProber(engine any) *Prober {
	probed, _ := engine.(store.Probed)
	return &Prober{engine: probed}
}

// IsUp reports whether the engine serves, or served in the last probeEvery. It waits for at most about a second,
// because an orchestrator waits for the answer of /health for two.
func (p *Prober) IsUp(ctx context.Context) bool {
	if p.engine == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) < probeEvery {
		return p.up
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // a client that leaves must not spoil the result for others
	defer cancel()
	p.up = p.engine.Probe(ctx) == nil
	p.at = time.Now()
	return p.up
}

// CountFailures registers a counter of answers of status 500 or more, and returns the function that counts
// one.
func CountFailures(r prometheus.Registerer) func(status int) {
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "vitrine_store_failures_total", Help: "Requests that the engine did not serve, by the status of their answer: 500, 503, 507.",
	}, []string{"status"})
	r.MustRegister(failures)
	count := func(status int) prometheus.Counter { return failures.WithLabelValues(strconv.Itoa(status)) }
	for _, status := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusInsufficientStorage} {
		count(status) // from 0, so that the first failure shows as an increase
	}
	return func(status int) { count(status).Inc() }
}
