package service

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bounds returns the upper bounds of the histograms' buckets in seconds. Each bound is
// twice the previous one.
func bounds() []float64 { return prometheus.ExponentialBuckets(50e-6, 2, 18) }

// Watch measures the latency of each operation. An operation is past the threshold if more than a
// share of its requests in the last window were slow.
type Watch struct {
	slow    time.Duration
	share   float64
	every   time.Duration
	log     *slog.Logger
	latency *prometheus.HistogramVec
	past    *prometheus.GaugeVec

	operations sync.Map // name -> *operation
}

type operation struct {
	name      string
	histogram prometheus.Observer
	past      prometheus.Gauge
	count     atomic.Int64 // in this window
	slow      atomic.Int64 // slow ones in this window
	isPast    atomic.Bool
}

func newWatch(slow time.Duration, share float64, every time.Duration, log *slog.Logger) *Watch {
	return &Watch{
		slow: slow, share: share, every: every, log: log,
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vitrine_store_operation_seconds", Help: "Time from a request's head to its answer, by operation.", Buckets: bounds(),
		}, []string{"operation"}),
		past: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "vitrine_store_past_threshold", Help: "1 while too many of an operation's requests are slow: add an instance.",
		}, []string{"operation"}),
	}
}

// Describe implements prometheus.Collector.
func (w *Watch) Describe(c chan<- *prometheus.Desc) { w.latency.Describe(c); w.past.Describe(c) }

// Collect implements prometheus.Collector.
func (w *Watch) Collect(c chan<- prometheus.Metric) { w.latency.Collect(c); w.past.Collect(c) }

// Observe records the duration of one operation. The number of names must be small.
func (w *Watch) Observe(name string, d time.Duration) {
	o, ok := w.operations.Load(name)
	if !ok {
		o, _ = w.operations.LoadOrStore(name, &operation{
			name: name, histogram: w.latency.WithLabelValues(name), past: w.past.WithLabelValues(name),
		})
	}
	op := o.(*operation)
	op.histogram.Observe(d.Seconds())
	op.count.Add(1)
	if d > w.slow {
		op.slow.Add(1)
	}
}

// Past returns the operations that are past the threshold, sorted.
func (w *Watch) Past() []string {
	var names []string
	for _, o := range w.operations.Range {
		if op := o.(*operation); op.isPast.Load() {
			names = append(names, op.name)
		}
	}
	slices.Sort(names)
	return names
}

func (w *Watch) run(ctx context.Context) {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			w.judge()
		}
	}
}

// judge ends a window and updates which operations are past the threshold.
func (w *Watch) judge() {
	for _, o := range w.operations.Range {
		op := o.(*operation)
		count, slow := op.count.Swap(0), op.slow.Swap(0)
		past := count > 0 && float64(slow) > w.share*float64(count)
		if op.isPast.Swap(past) == past {
			continue
		}
		if past {
			op.past.Set(1)
			w.log.Warn("latency is past the threshold: add an instance", "operation", op.name,
				"slow", slow, "of", count, "threshold", w.slow, "window", w.every)
		} else {
			op.past.Set(0)
			w.log.Info("latency is below the threshold again", "operation", op.name)
		}
	}
}
