package gtp

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"vitrine/wire/gtpc"
)

// Procedures counts a node's procedures by type and final cause.
type Procedures struct {
	counts *prometheus.CounterVec
	names  [256]string // of types
}

// NewProcedures registers the counter NODE_procedures_total.
func NewProcedures(registry prometheus.Registerer, node string) *Procedures {
	p := &Procedures{counts: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: node + "_procedures_total", Help: "Procedures, by request and the cause of the answer (TS 29.274 table 8.4-1); 0: no answer.",
	}, []string{"procedure", "cause"})}
	for i := range p.names {
		p.names[i] = other
	}
	for _, t := range counted {
		p.names[t] = t.String()
	}
	registry.MustRegister(p.counts)
	return p
}

// Count counts a finished procedure.
func (p *Procedures) Count(request gtpc.Type, cause gtpc.CauseValue) {
	p.counts.WithLabelValues(p.names[request], strconv.Itoa(int(cause))).Inc()
}

// Answer counts a request and answers it. teid is the peer's TEID; 0: not known.
func (p *Procedures) Answer(r *Request, teid uint32, m Message, cause gtpc.CauseValue) {
	p.Count(r.Type, cause)
	r.Answer(teid, m)
}

// Refuse refuses a request with the cause of a gtpc.Result, and counts it.
func (p *Procedures) Refuse(r *Request, teid uint32, err error) {
	a := gtpc.Refuse(r.Type, err)
	p.Answer(r, teid, a, a.Result.Cause)
}

// A Body is the body of a request.
type Body interface {
	Parse(from *gtpc.Message) error // the error is a gtpc.Result
}

// Take parses the body of a request for a session into m. If the session does not exist or
// the request is malformed, Take refuses the request and returns false. teid is the peer's
// TEID.
func (p *Procedures) Take(r *Request, m Body, exists bool, teid uint32) bool {
	err := m.Parse(&r.Message)
	switch {
	case !exists:
		p.Refuse(r, 0, gtpc.Result{Cause: gtpc.ContextNotFound})
	case err != nil:
		p.Refuse(r, teid, err)
	default:
		return true
	}
	return false
}

// Sum returns the cause of an answer for several bearers. unknown is the number of bearers
// that do not exist (TS 29.274 clause 7.2.8).
func Sum(bearers, unknown int) gtpc.CauseValue {
	switch unknown {
	case 0:
		return gtpc.RequestAccepted
	case bearers:
		return gtpc.ContextNotFound
	}
	return gtpc.AcceptedPartially
}
