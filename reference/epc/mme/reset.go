package mme

import (
	"sync/atomic"

	"vitrine/wire/s1ap"
)

// A reset is a Reset that the workers carry out.
type reset struct {
	enodeb *enodeb
	some   []s1ap.Connection // nil: all of the eNodeB
	left   atomic.Int32      // workers that have not carried it out
}

// resetRequested handles a Reset of an eNodeB (TS 36.413 clause 8.7.1.2.2): it has lost
// connections, or all of them. Their UEs become idle. Each worker does so for its own.
func (w *worker) resetRequested(e *enodeb) {
	all, some, ok := s1ap.ParseReset(w.in.reset)
	r := &reset{enodeb: e}
	for ok && !all && some.Next() {
		r.some = append(r.some, some.Connection)
	}
	if !ok || some.Malformed || !all && r.some == nil {
		w.mme.counts.malformedS1AP.Inc()
		w.indicate(e, 0, s1ap.CauseAbstractSyntax)
		return
	}
	r.left.Store(int32(len(w.mme.workers)))
	w.mme.counts.resets.Inc()
	for _, other := range w.mme.workers {
		if other != w {
			other.order(order{reset: r})
		}
	}
	w.carryOut(r)
}

// carryOut makes those of the connections idle that are this worker's. The last worker
// acknowledges. So the eNodeB gives an identifier to another UE only afterwards.
func (w *worker) carryOut(r *reset) {
	if r.some == nil {
		w.clear(w, r.enodeb)
	}
	for _, c := range r.some {
		if u := w.lookUp(r.enodeb, c); u != nil {
			w.lostConnection(u)
		}
	}
	if r.left.Add(-1) > 0 {
		return
	}
	b := s1ap.AppendHeader(w.out[:0], s1ap.Successful, s1ap.Reset, s1ap.Reject)
	if start := len(b); r.some != nil {
		b = s1ap.BeginList(b, s1ap.ResetConnections, s1ap.Ignore, len(r.some))
		for _, c := range r.some {
			b = s1ap.AppendConnection(b, s1ap.Ignore, c)
		}
		b = s1ap.EndElement(b, start)
	}
	b = s1ap.End(b, 0)
	w.out = b
	w.send(r.enodeb, streamCommon, b)
}
