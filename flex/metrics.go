package flex

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/flex/decide"
)

// counters count events since the orchestrator's start. The zero value is ready to use.
type counters struct {
	mu      sync.Mutex
	actions map[[3]string]uint64 // by type, kind and cause
	deaths  map[string]uint64    // by type
	losses  map[string]uint64    // by type
	cut     map[string]uint64    // dialogs, by type
	saves   uint64               // failed writes of the state file
	steps   uint64
	took    time.Duration
	longest time.Duration
}

func count[K comparable](m *map[K]uint64, key K, n uint64) {
	if *m == nil {
		*m = map[K]uint64{}
	}
	(*m)[key] += n
}

func (c *counters) acted(a decide.Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.actions, [3]string{a.Type, a.Kind.String(), string(a.Cause)}, 1)
}

func (c *counters) failed(typeName string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.deaths, typeName, 1)
}

func (c *counters) lost(typeName string, transactions, dialogs uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	count(&c.losses, typeName, transactions)
	count(&c.cut, typeName, dialogs)
}

func (c *counters) unsaved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.saves++
}

func (c *counters) decided(took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps++
	c.took += took
	c.longest = max(c.longest, took)
}

// A collector is a prometheus.Collector for an orchestrator.
type collector struct{ o *Orchestrator }

// The metrics.
var (
	descInstances = describe("instances", "Instances, by state.", "type", "state")
	descRate      = describe("rate", "Transactions that arrive per second.", "type")
	descRefused   = describe("refused_rate", "Transactions per second that no instance got.", "type")
	descCapacity  = describe("capacity", "Transactions per second that the active instances carry.", "type")
	descLatency   = describe("latency_p99_seconds", "99th percentile of latency over the last seconds, of the worst instance.", "type")
	descSuccess   = describe("success_ratio", "Success ratio over the last seconds, of the worst instance.", "type")
	descActions   = describe("actions_total", "What was decided, by kind and cause.", "type", "kind", "cause")
	descDeaths    = describe("deaths_total", "Instances that did not start, or whose members ended.", "type")
	descLosses    = describe("lost_total", "Transactions in flight when a draining instance reached its deadline.", "type")
	descCut       = describe("lost_dialogs_total", "Dialogs that were open when a draining instance reached its deadline.", "type")
	descSaves     = describe("state_failures_total", "Writes of the state file that failed.")
	descEvents    = describe("event_failures_total", "Events that could not be written to disk.")
	descAway      = describe("away", "Directors, stores and runners that do not answer. Without a director or the runner nothing is scaled; without any store nothing is drained.")
	descSteps     = describe("decisions_total", "Decisions.")
	descTook      = describe("decisions_seconds_total", "Time that decisions took.")
	descLongest   = describe("decision_longest_seconds", "The longest decision.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("vitrine_flex_"+name, help, labels, nil)
}

// Describe lists the metrics.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		descInstances, descRate, descRefused, descCapacity, descLatency, descSuccess, descActions, descDeaths, descLosses, descCut, descSaves, descEvents, descAway, descSteps, descTook, descLongest,
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
	c.o.counted.collect(to)
}

func (c *counters) collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for key, n := range c.actions {
		counter(descActions, float64(n), key[:]...)
	}
	for name, n := range c.deaths {
		counter(descDeaths, float64(n), name)
	}
	for name, n := range c.losses {
		counter(descLosses, float64(n), name)
	}
	for name, n := range c.cut {
		counter(descCut, float64(n), name)
	}
	counter(descSaves, float64(c.saves))
	counter(descSteps, float64(c.steps))
	counter(descTook, c.took.Seconds())
	to <- prometheus.MustNewConstMetric(descLongest, prometheus.GaugeValue, c.longest.Seconds())
}
