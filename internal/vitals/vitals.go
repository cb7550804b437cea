// Package vitals has the metrics that every service exports about itself.
package vitals

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// A Service is a service that exports metrics.
type Service struct {
	Prefix       string // begins the names of the service's metrics, such as "vitrine_store_"
	Version      string
	ReloadFailed func() bool      // reports whether the last reload failed
	Expiry       func() time.Time // of the server's certificate; nil: no TLS
}

// Register registers the service's metrics, and those of its process.
func (s Service) Register(r prometheus.Registerer) {
	gauge := func(name, help string, labels prometheus.Labels, read func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: s.Prefix + name, Help: help, ConstLabels: labels}, read))
	}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	gauge("build_info", "1, with the version of the program.", prometheus.Labels{"version": s.Version}, func() float64 { return 1 })
	gauge("reload_failed", "1 from a reload that failed until one succeeds: what is in force is not what the files say.", nil, func() float64 {
		if s.ReloadFailed() {
			return 1
		}
		return 0
	})
	if s.Expiry != nil {
		gauge("certificate_expiry_timestamp_seconds", "When the server's certificate expires, in Unix time.", nil, func() float64 {
			return float64(s.Expiry().Unix())
		})
	}
}
