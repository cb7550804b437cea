package service

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/store"
)

// engineCollector exports an engine's gauges.
type engineCollector struct {
	engine                            store.Measured
	up, records, bytes, waiting, full *prometheus.Desc
}

// NewEngineCollector returns a collector of an engine's gauges.
func NewEngineCollector(m store.Measured) prometheus.Collector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("vitrine_store_"+name, help, nil, nil)
	}
	return &engineCollector{
		engine:  m,
		up:      desc("engine_up", "1 while the engine answers; without it there are no figures of it."),
		records: desc("records", "Records kept."),
		bytes:   desc("storage_bytes", "Bytes of storage in use."),
		waiting: desc("writes_waiting", "Writes that wait for the engine."),
		full:    desc("full", "1 while puts are refused because there is no room. Over Redis and etcd: 1 if the last put was refused."),
	}
}

// Describe implements prometheus.Collector.
func (c *engineCollector) Describe(d chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{c.up, c.records, c.bytes, c.waiting, c.full} {
		d <- one
	}
}

// Collect implements prometheus.Collector.
func (c *engineCollector) Collect(m chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s, err := c.engine.Gauges(ctx)
	gauge := func(d *prometheus.Desc, v float64) {
		if v >= 0 {
			m <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
		}
	}
	if err != nil { // so that a scrape still gets the other metrics
		gauge(c.up, 0)
		return
	}
	gauge(c.up, 1)
	gauge(c.records, float64(s.Records))
	gauge(c.bytes, float64(s.Bytes))
	gauge(c.waiting, float64(s.Waiting))
	full := 0.0
	if s.Full {
		full = 1
	}
	gauge(c.full, full)
}
