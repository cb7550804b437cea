package mme

import (
	"sync/atomic"

	"vitrine/wire/s1ap"
)

// A reset is a Reset from an eNodeB that the workers carry out.
type reset struct {
	enodeb *enodeb
	some   []s1ap.Connection // nil: all connections of the eNodeB
	left   atomic.Int32      // workers that are not done yet
}

// resetRequested handles a Reset from an eNodeB (TS 36.413 clause 8.7.1.2.2), which has
// lost some or all connections. Each worker makes its own UEs of these connections
// idle.
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

// errorIndicated handles an Error Indication from an eNodeB. If the eNodeB does not know a connection, its UE
// becomes idle, because both ends release such a connection (TS 36.413 clause 10.6).
func (w *worker) errorIndicated(e *enodeb) {
	w.mme.counts.errorsReceived.Inc()
	in := &w.in
	switch in.cause {
	case s1ap.CauseUnknownMMEUEID, s1ap.CauseUnknownENBUEID, s1ap.CauseUnknownPair:
		u := w.lookUp(e, s1ap.Connection{MME: in.mme, ENB: in.enb, HasMME: in.has&hasMME != 0, HasENB: in.has&hasENB != 0})
		if u != nil {
			w.lostConnection(u)
		}
	}
}

// carryOut makes this worker's UEs of the connections idle. The last worker sends the
// acknowledgement, so that the eNodeB does not reuse an identifier too early.
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
	w.finishCommon(r.enodeb, s1ap.AppendConnections(b, r.some...))
}
