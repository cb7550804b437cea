package mme

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"vitrine/reference/ims"
)

// A procedure is a procedure of a UE that the MME counts.
type procedure uint8

const (
	attach procedure = iota
	detach
	service // service request
	update  // tracking area update
	release // to idle
	pathSwitch
	handover
	paging
	dedicated    // activation of a dedicated bearer
	deactivation // of a dedicated bearer
	procedures
)

func (p procedure) String() string {
	return [...]string{"attach", "detach", "service-request", "tracking-area-update", "release", "path-switch", "handover", "paging", "dedicated-bearer", "bearer-deactivation"}[p]
}

// An outcome is how a procedure ended.
type outcome uint8

const (
	succeeded          outcome = iota
	congested                  // refused because the overload window is full or the UE's context is busy
	unknownSubscriber          // the HSS does not have the IMSI
	unauthenticated            // wrong keys
	identityUnknown            // the GUTI or S-TMSI is not known, or the keys or the integrity are wrong
	refused                    // the request asks for something that the MME or the UE does not accept
	noResources                // the gateway has no address or room left
	networkFailure             // the HSS or the gateway cannot be used
	timedOut                   // the UE or the eNodeB did not answer
	radioFailed                // the eNodeB refused or gave up
	interrupted                // a detach or a new procedure ended it
	implicitlyDetached         // the UE was silent for too long, or attached elsewhere
	outcomes
)

func (o outcome) String() string {
	return [...]string{
		"success", "congestion", "unknown-subscriber", "authentication", "unknown-identity", "refused",
		"no-resources", "network-failure", "timeout", "radio-failure", "interrupted", "implicit",
	}[o]
}

// counts are the MME's counters.
type counts struct {
	procedures [procedures][outcomes]prometheus.Counter
	calls      [calls][2]prometheus.Counter
	callTime   prometheus.Counter

	received, sent, unsent       prometheus.Counter
	malformedS1AP, malformedNAS  prometheus.Counter
	unprotected, unexpected      prometheus.Counter
	errorsSent, errorsReceived   prometheus.Counter
	refusedENodeBs, retransmits  prometheus.Counter
	resynchronised, reusedKeys   prometheus.Counter
	contexts                     prometheus.Gauge
	setups, setupFailures, again prometheus.Counter
	turnedDown, takenOver        prometheus.Counter
	resets, unserved             prometheus.Counter
}

func newCounts(registry *prometheus.Registry) *counts {
	with, counter := promauto.With(registry), ims.Counters(registry, "mme")
	c := &counts{
		received:       counter("messages_received", "S1AP messages received."),
		sent:           counter("messages_sent", "S1AP messages sent."),
		unsent:         counter("messages_unsent", "S1AP messages for eNodeBs whose association had ended."),
		malformedS1AP:  counter("malformed_s1ap", "S1AP messages that do not parse or lack an element."),
		malformedNAS:   counter("malformed_nas", "NAS messages that do not parse."),
		unprotected:    counter("unprotected_nas", "NAS messages dropped because their integrity is wrong or missing."),
		unexpected:     counter("unexpected", "Messages dropped because nothing waits for them."),
		errorsSent:     counter("error_indications_sent", "Error Indications sent."),
		errorsReceived: counter("error_indications_received", "Error Indications received."),
		refusedENodeBs: counter("refused_associations", "Associations beyond the limit."),
		retransmits:    counter("nas_retransmissions", "NAS messages sent again."),
		resynchronised: counter("resynchronisations", "Challenges whose sequence number the UE refused."),
		reusedKeys:     counter("attaches_with_known_keys", "Attaches without authentication."),
		setups:         counter("s1_setups", "eNodeBs set up."),
		setupFailures:  counter("s1_setup_failures", "eNodeBs refused, because they serve no tracking area of the network."),
		again:          counter("attached_again", "Contexts removed because their IMSI attached again."),
		turnedDown:     counter("store_refused", "Procedures refused because the store did not answer, or another MME had the UE."),
		resets:         counter("resets", "Resets of eNodeBs."),
		unserved:       counter("unserved", "Session requests refused because the MME does not serve them, such as one for a second PDN connection."),
		takenOver:      counter("taken_over", "UEs that came from another MME through the store."),
		contexts:       with.NewGauge(prometheus.GaugeOpts{Name: "mme_contexts", Help: "UE contexts."}),
		callTime:       counter("call_seconds", "Time that calls to the HSS and the gateway took together."),
	}
	ended := with.NewCounterVec(prometheus.CounterOpts{
		Name: "mme_procedures_total", Help: "Procedures that ended, by outcome.",
	}, []string{"procedure", "outcome"})
	for p := range procedures {
		for o := range outcomes {
			c.procedures[p][o] = ended.WithLabelValues(p.String(), o.String())
		}
	}
	made := with.NewCounterVec(prometheus.CounterOpts{
		Name: "mme_calls_total", Help: "Calls to the HSS, the gateway and the store.",
	}, []string{"call", "result"})
	for i, name := range [...]string{"vector", "update-location", "purge", "create-session", "modify-bearer", "release-access-bearers", "delete-session", "load", "claim", "keep", "commit", "leave", "drop", "bearer-resource"} {
		c.calls[i] = [2]prometheus.Counter{made.WithLabelValues(name, "ok"), made.WithLabelValues(name, "error")}
	}
	return c
}

// called counts a call to the HSS, the gateway or the store.
func (c *counts) called(what call, took time.Duration, err error) {
	result := 0
	if err != nil {
		result = 1
	}
	c.calls[what][result].Inc()
	c.callTime.Add(took.Seconds())
}

// gauges registers the gauges, whose values are computed at each scrape.
func (m *MME) gauges() {
	gauge := ims.Gauges(m.config.Registry, "mme")
	gauge("enodebs", "eNodeBs that are set up.", func() float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return float64(len(m.enodebs))
	})
	if m.window != nil {
		gauge("window", "Attaches that may be in progress before new ones are refused.", m.window.Limit)
		gauge("in_flight", "Attaches in progress.", func() float64 { return float64(m.window.InFlight()) })
	}
}

// begin counts the start of a UE's procedure. A procedure that still runs
// counts as interrupted.
func (w *worker) begin(u *ue, p procedure) {
	w.end(u, interrupted)
	u.kind, u.running, u.began = p, true, w.arrived
}

// end counts the end of the UE's running procedure, if there is one.
func (w *worker) end(u *ue, o outcome) {
	if !u.running {
		return
	}
	u.running = false
	w.mme.counts.procedures[u.kind][o].Inc()
	w.leave(u, o == succeeded)
}

// leave removes an attach from the overload window.
func (w *worker) leave(u *ue, answered bool) {
	switch {
	case !u.counted:
		return
	case answered:
		now := w.mme.start.Add(w.now)
		w.mme.window.Leave(now, now.Sub(u.began))
	default:
		w.mme.window.Abandon()
	}
	u.counted = false
}
