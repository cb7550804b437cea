package service

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// bounds returns the upper bounds of the histograms' buckets in seconds. Each bound is
// twice the previous one.
func bounds() []float64 { return prometheus.ExponentialBuckets(50e-6, 2, 18) }

// calmWindows is the number of windows in a row within the threshold that end an operation's state
// past it. Clients that are refused pause, so overload often shows only in every second window.
const calmWindows = 2

// A watch measures the latency of each operation, and how many of its requests are refused. An
// operation is past the threshold if more than a share of its requests in a window were slow or
// refused, until calmWindows windows are within it.
type watch struct {
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
	count     atomic.Int64           // requests served in this window
	slow      atomic.Int64           // slow ones in this window
	refused   atomic.Int64           // requests refused in this window
	cause     atomic.Pointer[string] // what the last refused request would have exceeded
	reason    atomic.Pointer[string] // why it is past the threshold; nil: it is within
	calm      int                    // windows in a row within the threshold; only judge uses it
}

func newWatch(slow time.Duration, share float64, every time.Duration, log *slog.Logger) *watch {
	return &watch{
		slow: slow, share: share, every: every, log: log,
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "vitrine_store_operation_seconds", Help: "Time from a request's head to its answer, by operation.", Buckets: bounds(),
		}, []string{"operation"}),
		past: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "vitrine_store_past_threshold", Help: "1 while too many of an operation's requests are slow or refused: add an instance.",
		}, []string{"operation"}),
	}
}

// Describe implements prometheus.Collector.
func (w *watch) Describe(c chan<- *prometheus.Desc) { w.latency.Describe(c); w.past.Describe(c) }

// Collect implements prometheus.Collector.
func (w *watch) Collect(c chan<- prometheus.Metric) { w.latency.Collect(c); w.past.Collect(c) }

// Observe records the duration of one operation. The number of names must be small.
func (w *watch) Observe(name string, d time.Duration) {
	op := w.operation(name)
	op.histogram.Observe(d.Seconds())
	op.count.Add(1)
	if d > w.slow {
		op.slow.Add(1)
	}
}

// Refuse records a request that was refused because the service is at a limit. cause names what
// the limit bounds.
func (w *watch) Refuse(name, cause string) {
	op := w.operation(name)
	op.cause.Store(&cause)
	op.refused.Add(1)
}

func (w *watch) operation(name string) *operation {
	o, ok := w.operations.Load(name)
	if !ok {
		o, _ = w.operations.LoadOrStore(name, &operation{
			name: name, histogram: w.latency.WithLabelValues(name), past: w.past.WithLabelValues(name),
		})
	}
	return o.(*operation)
}

// Past returns the operations that are past the threshold, with the reason.
func (w *watch) Past() map[string]string {
	past := map[string]string{}
	for _, o := range w.operations.Range {
		op := o.(*operation)
		if reason := op.reason.Load(); reason != nil {
			past[op.name] = *reason
		}
	}
	return past
}

func (w *watch) run(ctx context.Context) {
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
func (w *watch) judge() {
	for _, o := range w.operations.Range {
		op := o.(*operation)
		count, slow, refused := op.count.Swap(0), op.slow.Swap(0), op.refused.Swap(0)
		was := op.reason.Load() != nil
		if float64(slow+refused) > w.share*float64(count+refused) {
			reason := w.explain(op, count, slow, refused)
			op.calm = 0
			op.reason.Store(&reason)
			op.past.Set(1)
			if !was {
				w.log.Warn("an operation is past the threshold: add an instance", "operation", op.name, "reason", reason, "window", w.every)
			}
			continue
		}
		if op.calm++; was && op.calm >= calmWindows {
			op.reason.Store(nil)
			op.past.Set(0)
			w.log.Info("an operation is within the threshold again", "operation", op.name)
		}
	}
}

// explain says why an operation is past the threshold.
func (w *watch) explain(op *operation, count, slow, refused int64) string {
	var why []string
	if slow > 0 {
		why = append(why, fmt.Sprintf("%d of %d requests took longer than %s", slow, count, w.slow))
	}
	if refused > 0 {
		cause := *op.cause.Load()
		why = append(why, fmt.Sprintf("%d of %d requests were refused: too many %s at the same time (--max-%s)", refused, count+refused, cause, cause))
	}
	return strings.Join(why, "; ")
}
