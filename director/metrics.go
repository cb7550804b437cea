package director

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"vitrine"
	"vitrine/director/datagram"
	"vitrine/director/latency"
	"vitrine/director/meter"
	"vitrine/internal/vitals"
)

// prefix begins the names of all metrics.
const prefix = "vitrine_director_"

// metricsHandler serves /metrics in Prometheus's formats. It reads all counts on request,
// so the workers do no extra work.
func (d *Director) metricsHandler() http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(&collector{d})
	self := vitals.Service{Prefix: prefix, Version: d.options.Version, ReloadFailed: func() bool {
		_, err := d.lastReload()
		return err != nil
	}}
	if d.secure != nil {
		self.Expiry = d.secure.Expiry
	}
	self.Register(r)
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// A collector reads a director's counts.
type collector struct{ d *Director }

// Describe sends nothing, because the series depend on the instances.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends all counts.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	e := emitter{to}
	c.instances(e)
	c.types(e)
	c.service(e)
	for _, p := range c.d.protocols {
		p.collect(e)
	}
}

// An emitter sends metrics. Its methods take names without the prefix, and labels in pairs.
type emitter struct{ to chan<- prometheus.Metric }

func (e emitter) send(kind prometheus.ValueType, name, help string, value float64, labels ...string) {
	desc, values := describe(name, help, labels)
	e.to <- prometheus.MustNewConstMetric(desc, kind, value, values...)
}

func (e emitter) count(name, help string, value uint64, labels ...string) {
	e.send(prometheus.CounterValue, name, help, float64(value), labels...)
}

func (e emitter) gauge(name, help string, value float64, labels ...string) {
	e.send(prometheus.GaugeValue, name, help, value, labels...)
}

func describe(name, help string, labels []string) (*prometheus.Desc, []string) {
	var names, values []string
	for i := 0; i < len(labels); i += 2 {
		names, values = append(names, labels[i]), append(values, labels[i+1])
	}
	return prometheus.NewDesc(prefix+name, help, names, nil), values
}

func (c *collector) instances(e emitter) {
	table := c.d.epochs.View().Table
	for _, in := range c.d.meter.Instances() {
		l := []string{"type", in.Type, "instance", in.Name}
		with := func(more ...string) []string { return append(l[:len(l):len(l)], more...) }
		e.count("messages_total", "Requests sent to the instance, retransmissions included.", in.Messages, l...)
		e.count("transactions_total", "Transactions begun.", in.Begun, l...)
		e.gauge("transactions_in_flight", "Transactions without a final answer; add up over directors to drain.", float64(in.InFlight), l...)
		e.count("transactions_untimed_total", "Transactions forgotten for lack of room.", in.Untimed, l...)
		e.count("dialogs_begun_total", "Dialogs begun through this director.", in.DialogsBegun, l...)
		e.count("dialogs_ended_total", "Dialogs ended through this director; only sums over directors balance, and not after a restart without a hand-over or a removal of the instance.", in.DialogsEnded, l...)
		for outcome, n := range in.Ended {
			e.count("transactions_ended_total", "Transactions by outcome.", n, with("outcome", outcome)...)
		}
		e.latencies(in.Latencies, in.Latency, l...)
		up := 1.0
		if c.d.watch.away(in.Name) {
			up = 0
		}
		e.gauge("instance_up", "0 while health checks find the instance away, else 1.", up, l...)
		if t := table.ByName(in.Name); t != nil {
			e.gauge("instance_weight", "The weight in force.", t.Weight, l...)
			for _, state := range vitrine.States() {
				is := 0.0
				if t.State.String() == state {
					is = 1
				}
				e.gauge("instance_state", "1 for the state in force.", is, with("state", state)...)
			}
		}
	}
}

const latencyHelp = "Time from request to final answer; from INVITE to its first response other than 100 Trying."

// latencies sends the histogram of an instance, with one bucket for each doubling from 64 us.
func (e emitter) latencies(h latency.Histogram, sum time.Duration, labels ...string) {
	const first, last = 64, 64 << 20 // microseconds
	desc, values := describe("instance_latency_seconds", latencyHelp, labels)
	buckets, total := map[float64]uint64{}, uint64(0)
	h.Each(func(bucket int, n uint64) {
		total += n
		_, below := latency.Limits(bucket)
		for bound := uint64(first); bound <= last; bound *= 2 {
			if below <= bound {
				buckets[(time.Duration(bound) * time.Microsecond).Seconds()] += n
			}
		}
	})
	for bound := uint64(first); bound <= last; bound *= 2 {
		buckets[(time.Duration(bound) * time.Microsecond).Seconds()] += 0
	}
	e.to <- prometheus.MustNewConstHistogram(desc, total, sum.Seconds(), buckets, values...)
}

func (c *collector) types(e emitter) {
	for _, t := range c.d.meter.Types() {
		for cause, n := range t.Failures {
			e.count("failures_total", "Messages that were not served, by cause; those without a type were not classified.", n, "type", t.Name, "cause", cause)
		}
		if t.Name == "" {
			continue
		}
		for outcome, n := range t.Failed {
			e.count("transactions_failed_total", "Transactions that ended as failed, busy or unanswered, also at instances that have been removed since.", n, "type", t.Name, "outcome", outcome)
		}
		panics := 0.0
		if slices.Contains(c.d.panics(), t.Name) {
			panics = 1
		}
		e.gauge("panic", "1 while the type's instances count as up although checks fail.", panics, "type", t.Name)
		desc, values := describe("latency_seconds", latencyHelp, []string{"type", t.Name})
		buckets := make(map[float64]uint64, len(t.Latency))
		total := uint64(0)
		bounds := meter.Bounds()
		for i, n := range t.Latency {
			total += n
			if i < len(bounds) {
				buckets[(time.Duration(bounds[i]) * time.Microsecond).Seconds()] = total
			}
		}
		e.to <- prometheus.MustNewConstHistogram(desc, total, t.Total.Seconds(), buckets, values...)
	}
	c.d.publishing.Lock()
	defer c.d.publishing.Unlock()
	for protocol, q := range c.d.quotas {
		e.count("quota_sources_forgotten_total", "Sources that made room for others while their bucket was not full.", q.Forgotten(), "protocol", protocol)
	}
	for name, g := range c.d.gates {
		now := g.Read()
		e.gauge("gate_rate", "Transactions per second that the overload gate admits.", now.Rate, "type", name)
		e.count("gate_admitted_total", "Transactions admitted.", now.Admitted, "type", name)
		e.count("gate_refused_total", "Transactions refused.", now.Refused, "type", name)
		e.gauge("gate_loss", "Share refused recently, 0 to 1. SIP clients that support RFC 7339 learn the smallest of all SIP types.", float64(now.Loss)/100, "type", name)
	}
}

func (c *collector) service(e emitter) {
	d := c.d
	v := d.epochs.View()
	for _, l := range d.roster.listLeases(d.now()) {
		e.gauge("lease_left_seconds", "Time until the lease of the type's weights expires, unless it is renewed.", l.Left, "type", l.Type, "holder", l.Holder)
	}
	e.gauge("epoch", "Number of the table in force.", float64(v.Table.Epoch()))
	e.gauge("table_digest", "Hash of instances, rooms and rules. Directors side by side that steer alike have the same.", d.tableDigest())
	e.count("epochs_total", "Changes of epoch since the start.", d.counts.epochs.Load())
	e.count("publications_total", "Changes of epoch or health since the start.", d.counts.publications.Load())
	e.count("state_failures_total", "Writes of the state file that failed or came late.", d.counts.stateFailures.Load())
	failed, _, _ := d.handovers.read()
	e.count("restarts_failed_total", "Hand-overs that failed, after which this process continued.", failed)
	d.reloads.mu.Lock()
	e.count("reloads_total", "Configurations put in force since the start.", d.reloads.done)
	e.count("reloads_failed_total", "Reloads that failed, because of the configuration or of a file of tokens, certificates or keys.", d.reloads.failed)
	d.reloads.mu.Unlock()
	s := d.steered()
	for what, n := range map[string]uint64{"kept": s.Kept, "moved": s.Moved, "gone": s.Gone, "unknown": s.Unknown, "forgotten": s.Forgotten, "none": s.None} {
		e.count("steered_total", "Messages not simply steered by the table in force: kept at the old instance; moved to the new one; of those, gone because the old instance went away; unknown after a restart; forgotten for lack of memory; none because no instance was available.", n, "how", what)
	}
}

// tableDigest returns a hash of 48 bits, which a float64 holds exactly. Leases are left out, because they
// change every few seconds during a measurement.
func (d *Director) tableDigest() float64 {
	d.publishing.Lock()
	base, rules := d.state.Current, d.state.Rules
	d.publishing.Unlock()
	base.Leases = nil
	n, _ := strconv.ParseUint(digestOf([]any{base.digest(), rules}), 16, 64) // 64 bits in hexadecimal
	return float64(n >> 16)
}

// The same metric of several protocols must have the same help.
const (
	receivedHelp = "Messages received. SIP counts messages that do not parse as malformed, unless they are requests that can be answered."
	handledHelp  = "Messages by what the director did with them. GTP-C and S1AP count some messages under several; S1AP's answered and forwarded count messages sent."
)

// collectDatagrams sends the counters of a protocol's datagrams and of all its drops.
func (d *Director) collectDatagrams(e emitter, protocol string, c datagram.Counters) {
	e.count("datagrams_received_total", "Datagrams read.", c.Received, "protocol", protocol)
	e.count("datagrams_sent_total", "Datagrams that the kernel accepted.", c.Sent, "protocol", protocol)
	d.collectDrops(e, protocol, c)
}

// collectDrops sends the counts of a protocol's messages that were dropped.
func (d *Director) collectDrops(e emitter, protocol string, c datagram.Counters) {
	drops := d.meter.Drops(protocol)
	drops[meter.SocketFull.String()] += c.Dropped
	drops[meter.Unsent.String()] += c.Unsent
	for reason, n := range drops {
		e.count("drops_total", "Messages that the director neither served nor answered, by reason. A burst that the kernel loses in one piece counts once as socket_full.", n, "protocol", protocol, "reason", reason)
	}
}

// logDrops logs samples of the dropped messages until ctx is done. Each reason has its own
// limit in the log.
func (d *Director) logDrops(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case s := <-d.samples:
			d.log.Warn("message dropped: "+s.Cause.String(), "protocol", s.Protocol, "peer", s.Peer, "dropped_by_this_worker", s.Total)
		}
	}
}

// logLosses logs what was refused, forgotten for lack of room, or lost by sockets since the last call.
func (d *Director) logLosses() {
	for _, r := range d.meter.NewRefusals() {
		d.log.Warn("messages not served: "+r.Cause.String(), "type", r.Type, "messages", r.Messages)
	}
	for _, p := range d.protocols {
		p.logForgotten(d.log)
		c, err := p.Datagrams()
		if err != nil {
			d.log.Warn("counters of sockets", "protocol", p.name, "error", err)
			continue
		}
		if n := c.Dropped - p.lost.Dropped; n > 0 {
			d.log.Warn("messages dropped: "+meter.SocketFull.String(), "protocol", p.name, "messages", n)
		}
		if n := c.Unsent - p.lost.Unsent; n > 0 {
			d.log.Warn("messages dropped: "+meter.Unsent.String(), "protocol", p.name, "messages", n, "last_to", c.Refused.To, "error", c.Refused.Err)
		}
		p.lost = c
	}
}

// logForgotten logs what a protocol forgot since the last call.
func (p *protocol) logForgotten(log *slog.Logger) {
	if p.forgotten == nil {
		return
	}
	for what, n := range p.forgotten() {
		if more := n - p.forgot[what]; more > 0 {
			log.Warn("forgotten for lack of room: "+what, "protocol", p.name, "count", more)
			p.forgot[what] = n
		}
	}
}
