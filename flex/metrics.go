package flex

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/flex/unit"
)

// prefix begins the names of all metrics.
const prefix = "vitrine_flex_"

// counters count events since the orchestrator's start.
type counters struct {
	actions, deaths, losses, cut *prometheus.CounterVec
	saves, steps, took           prometheus.Counter
	longest                      prometheus.Gauge

	most time.Duration // what longest shows; only the goroutine that calls step uses it
}

func newCounters() *counters {
	of := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: prefix + name, Help: help}
	}
	return &counters{
		actions: prometheus.NewCounterVec(of("actions_total", "What was decided, by kind and cause."), []string{"type", "kind", "cause"}),
		deaths:  prometheus.NewCounterVec(of("deaths_total", "Instances that did not start, or whose members ended."), []string{"type"}),
		losses:  prometheus.NewCounterVec(of("lost_total", "Transactions in flight when a draining instance reached its deadline."), []string{"type"}),
		cut:     prometheus.NewCounterVec(of("lost_dialogs_total", "Dialogs that were open when a draining instance reached its deadline."), []string{"type"}),
		saves:   prometheus.NewCounter(of("state_failures_total", "Writes of the state file that failed.")),
		steps:   prometheus.NewCounter(of("decisions_total", "Decisions.")),
		took:    prometheus.NewCounter(of("decisions_seconds_total", "Time that decisions took.")),
		longest: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "decision_longest_seconds", Help: "The longest decision."}),
	}
}

func (c *counters) register(r *prometheus.Registry) {
	r.MustRegister(c.actions, c.deaths, c.losses, c.cut, c.saves, c.steps, c.took, c.longest)
}

// begin sets the counts of a type to 0, or an alert would miss the first event.
func (c *counters) begin(typeName string) {
	c.deaths.WithLabelValues(typeName)
	c.losses.WithLabelValues(typeName)
	c.cut.WithLabelValues(typeName)
}

func (c *counters) decided(took time.Duration) {
	c.steps.Inc()
	c.took.Add(took.Seconds())
	c.most = max(c.most, took)
	c.longest.Set(c.most.Seconds())
}

// A collector is a prometheus.Collector for an orchestrator.
type collector struct{ o *Orchestrator }

// The metrics of the last status.
var (
	descInstances = describe("instances", "Instances, by state.", "type", "state")
	descRate      = describe("rate", "Transactions that arrive per second.", "type")
	descRefused   = describe("refused_rate", "Transactions per second that no instance got.", "type")
	descCapacity  = describe("capacity", "Transactions per second that the active instances carry, without those that all directors find away.", "type")
	descLatency   = describe("latency_p99_seconds", "99th percentile of latency over the last seconds, of the worst instance.", "type")
	descSuccess   = describe("success_ratio", "Success ratio over the last seconds, of the worst instance.", "type")
	descEvents    = describe("event_failures_total", "Events that could not be written to disk.")
	descServices  = describe("services", "Services and members of the store: 1 for the state that each is in.", "service", "state")
	descAlerts    = describe("alerts", "Alerts that hold, about a store or about a type whose drain differs at a director. The events say what to do.")
	descAway      = describe("away", "Directors, stores and runners that do not answer. Without a director or the runner nothing is scaled; without any store nothing is drained.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prefix+name, help, labels, nil)
}

// Describe lists the metrics.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descInstances, descRate, descRefused, descCapacity, descLatency, descSuccess, descServices, descAlerts, descEvents, descAway,
	} {
		to <- d
	}
}

// Collect reads the last status.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	s := c.o.Status()
	gauge(descAway, float64(len(s.Away)))
	gauge(descAlerts, float64(s.alerts))
	for _, service := range s.Services {
		for _, state := range []unit.State{unit.Starting, unit.Ready, unit.Failed, unit.Removing} {
			is := 0.0
			if service.State == state {
				is = 1
			}
			gauge(descServices, is, service.Name, string(state))
		}
	}
	for _, t := range s.Types {
		for _, state := range stateNames() { // also states without instances, or an alert on 0 could not fire
			gauge(descInstances, float64(t.Instances[state]), t.Name, state)
		}
		gauge(descCapacity, t.Capacity, t.Name)
		if t.Known { // do not export stale figures
			gauge(descRate, t.Rate, t.Name)
			gauge(descRefused, t.Refused, t.Name)
			gauge(descLatency, t.P99, t.Name)
			gauge(descSuccess, t.Success, t.Name)
		}
	}
	to <- prometheus.MustNewConstMetric(descEvents, prometheus.CounterValue, float64(c.o.events.unwritten()))
}
