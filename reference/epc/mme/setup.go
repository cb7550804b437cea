package mme

import (
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// relativeCapacity is the same for every MME (TS 36.413 clause 9.2.3.17).
const relativeCapacity = 255

// setUp answers an S1 Setup Request (TS 36.413 clause 8.7.3). An eNodeB that
// repeats S1 Setup has lost its UEs.
func (w *worker) setUp(e *enodeb) {
	in := &w.in
	areas, served, err := w.areas(in.areas)
	if err != nil {
		w.mme.counts.malformedS1AP.Inc()
		w.indicate(e, 0, s1ap.CauseAbstractSyntax)
		return
	}
	if !served {
		w.mme.counts.setupFailures.Inc()
		b := s1ap.AppendHeader(w.out[:0], s1ap.Unsuccessful, s1ap.S1Setup, s1ap.Reject)
		w.finishCommon(e, s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseUnknownPLMN))
		return
	}
	w.register(e, areas)
	w.mme.counts.setups.Inc()
	b := s1ap.AppendHeader(w.out[:0], s1ap.Successful, s1ap.S1Setup, s1ap.Reject)
	b = s1ap.AppendName(b, s1ap.MMEName, s1ap.Ignore, w.mme.config.Name)
	own := w.mme.config.GUMMEI
	b = s1ap.AppendServed(b, s1ap.Reject, own.PLMN, own.Group, own.Code)
	start := len(b)
	b = append(s1ap.BeginElement(b, s1ap.RelativeCapacity, s1ap.Ignore), relativeCapacity)
	w.finishCommon(e, s1ap.EndElement(b, start))
}

// reconfigure answers an eNB Configuration Update (TS 36.413 clause 8.7.4). The MME uses only the tracking areas.
func (w *worker) reconfigure(e *enodeb) {
	if w.in.has&hasAreas != 0 {
		areas, served, err := w.areas(w.in.areas)
		if err != nil {
			w.mme.counts.malformedS1AP.Inc()
			w.indicate(e, 0, s1ap.CauseAbstractSyntax)
			return
		}
		if !served {
			b := s1ap.AppendHeader(w.out[:0], s1ap.Unsuccessful, s1ap.ENBConfigurationUpdate, s1ap.Reject)
			w.finishCommon(e, s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseUnknownPLMN))
			return
		}
		w.mme.mu.Lock()
		e.areas = areas
		w.mme.mu.Unlock()
	}
	w.finishCommon(e, s1ap.AppendHeader(w.out[:0], s1ap.Successful, s1ap.ENBConfigurationUpdate, s1ap.Reject))
}

// areas returns the tracking areas in a list that belong to the MME's network, and
// whether there is any.
func (w *worker) areas(list []byte) (areas []identity.TAI, served bool, err error) {
	it := s1ap.ParseAreas(list)
	for it.Next() {
		for rest := it.PLMNs; len(rest) >= 3; rest = rest[3:] {
			if p := identity.PLMN(rest[:3]); p == w.mme.config.GUMMEI.PLMN {
				areas = append(areas, identity.TAI{PLMN: p, TAC: it.TAC})
			}
		}
	}
	return areas, len(areas) > 0, it.Err
}

// register adds an eNodeB to the set-up eNodeBs, and aborts an older association of
// the same eNodeB.
func (w *worker) register(e *enodeb, areas []identity.TAI) {
	w.mme.mu.Lock()
	if w.mme.enodebs[e.id] == e {
		delete(w.mme.enodebs, e.id)
	}
	old := w.mme.enodebs[w.in.enodeb]
	e.id, e.areas = w.in.enodeb, areas
	again := e.up.Swap(true)
	w.mme.enodebs[e.id] = e
	w.mme.mu.Unlock()
	if old != nil {
		old.Abort()
	}
	if again {
		for _, other := range w.mme.workers {
			other.clear(w, e)
		}
	}
}
