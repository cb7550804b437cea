package nudsf

import (
	"github.com/prometheus/client_golang/prometheus"
)

// A collector exports a function's counters to Prometheus.
type collector struct {
	function                      *Function
	callbacks, due, notifications *prometheus.Desc
	waiting                       *prometheus.Desc
}

// Collector returns a Prometheus collector of the function's counters.
func (f *Function) Collector() prometheus.Collector {
	return &collector{
		function: f,
		callbacks: prometheus.NewDesc("vitrine_store_callbacks_total",
			"Callbacks by outcome: sent, retried, failed, refused, dropped because their receiver's queue was full.", []string{"outcome"}, nil),
		waiting: prometheus.NewDesc("vitrine_store_callbacks_waiting", "Callbacks in queues.", nil, nil),
		due: prometheus.NewDesc("vitrine_store_due_total",
			"Records, subscriptions and timers that fell due (handled, error), and notifications kept until sent: delivered, postponed, refused, given_up.", []string{"outcome"}, nil),
		notifications: prometheus.NewDesc("vitrine_store_notifications_total",
			"Notifications of changed records: queued, dropped.", []string{"outcome"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	n := c.function.Counters()
	count := func(d *prometheus.Desc, outcome string, value uint64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), outcome)
	}
	out <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(n.Callbacks.Waiting))
	count(c.callbacks, "sent", n.Callbacks.Sent)
	count(c.callbacks, "retried", n.Callbacks.Retried)
	count(c.callbacks, "failed", n.Callbacks.Failed)
	count(c.callbacks, "refused", n.Callbacks.Refused)
	count(c.callbacks, "dropped", n.Callbacks.Dropped)
	count(c.due, "handled", n.Due.Handled)
	count(c.due, "error", n.Due.Errors)
	count(c.due, "delivered", n.Due.Delivered)
	count(c.due, "postponed", n.Due.Postponed)
	count(c.due, "refused", n.Due.Refused)
	count(c.due, "given_up", n.Due.GivenUp)
	count(c.notifications, "queued", n.Records.Notified)
	count(c.notifications, "dropped", n.Records.Dropped)
}
