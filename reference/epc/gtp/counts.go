package gtp

import (
	"github.com/prometheus/client_golang/prometheus"

	"vitrine/reference/ims"
	"vitrine/wire/gtpc"
)

// The reasons to drop a message.
const (
	dropMalformed = "malformed"
	dropVersion   = "version"
	dropStray     = "no_request" // a response without a request
	dropRoom      = "no_room"    // too many requests are being handled
	dropSocket    = "socket"
)

// counts are the endpoint's counters.
type counts struct {
	sent, received                                              [256]prometheus.Counter // by type
	retransmitted, duplicates, timeouts, busy, restarts, unsent prometheus.Counter
	dropped                                                     *prometheus.CounterVec
}

func newCounts(registry prometheus.Registerer) *counts {
	counter := ims.Counters(registry, "gtpc")
	messages := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gtpc_messages_total", Help: "Messages, by direction and type. Retransmissions count."}, []string{"direction", "type"})
	c := &counts{
		retransmitted: counter("retransmissions", "Requests sent again."),
		duplicates:    counter("duplicates", "Requests that a peer sent again."),
		timeouts:      counter("timeouts", "Requests without an answer."),
		busy:          counter("busy", "Requests not sent because too many wait for answers."),
		restarts:      counter("peer_restarts", "Changes of a peer's restart counter."),
		unsent:        counter("unsent", "Messages that the socket did not take."),
		dropped:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gtpc_dropped_total", Help: "Messages dropped or refused unread, by reason."}, []string{"reason"}),
	}
	registry.MustRegister(messages, c.dropped)
	for _, name := range []string{dropMalformed, dropVersion, dropStray, dropRoom, dropSocket} {
		c.dropped.WithLabelValues(name)
	}
	other := [2]prometheus.Counter{messages.WithLabelValues("sent", other), messages.WithLabelValues("received", other)}
	for i := range c.sent {
		c.sent[i], c.received[i] = other[0], other[1]
	}
	for _, t := range counted {
		name := t.String()
		c.sent[t], c.received[t] = messages.WithLabelValues("sent", name), messages.WithLabelValues("received", name)
	}
	return c
}

// other is the name for all types that the counters do not distinguish.
const other = "other"

// counted are the types that the counters distinguish.
var counted = [...]gtpc.Type{
	gtpc.EchoRequest, gtpc.EchoResponse, gtpc.VersionNotSupported,
	gtpc.CreateSessionRequest, gtpc.CreateSessionResponse, gtpc.ModifyBearerRequest, gtpc.ModifyBearerResponse,
	gtpc.DeleteSessionRequest, gtpc.DeleteSessionResponse, gtpc.ReleaseAccessBearersRequest, gtpc.ReleaseAccessBearersResponse,
	gtpc.CreateBearerRequest, gtpc.CreateBearerResponse, gtpc.DeleteBearerRequest, gtpc.DeleteBearerResponse,
	gtpc.DownlinkData, gtpc.DownlinkDataAcknowledge, gtpc.BearerResourceCommand, gtpc.BearerResourceFailure,
}
