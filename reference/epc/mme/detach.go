package mme

import (
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// detachRequest handles a Detach Request that begins a connection. It detaches the
// UE only if the message's integrity is right. A busy UE is detached too: bury then
// waits for the answer to its call.
func (w *worker) detachRequest(e *enodeb) {
	var m nas.DetachRequest
	if m.Parse(w.pdu.Body) != nil {
		w.mme.counts.malformedNAS.Inc()
		w.dismiss(e)
		return
	}
	u := w.byGUTI(m.Identity)
	if u == nil || !w.verify(u) {
		w.mme.counts.procedures[detach][identityUnknown].Inc()
		if m.SwitchOff { // the UE waits for no answer (TS 24.301 clause 5.5.2.2.2)
			w.releaseIDs(e, w.newID(), w.in.enb, s1ap.CauseNormalRelease)
			return
		}
		w.body = (&nas.Empty{Type: nas.DetachAcceptType}).Append(w.body[:0])
		w.turnAway(e, w.body)
		return
	}
	w.cancelTarget(u)
	w.adopt(u, e)
	u.secured = true
	w.detached(u, w.pdu.Body)
}

// detached detaches a UE at its request (TS 23.401 clause 5.3.8.2.1).
func (w *worker) detached(u *ue, body []byte) {
	var m nas.DetachRequest
	if m.Parse(body) != nil {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	if u.phase == modifying { // the UE already has what the procedure gives it
		w.end(u, succeeded)
	}
	w.begin(u, detach)
	if !m.SwitchOff {
		w.body = (&nas.Empty{Type: nas.DetachAcceptType}).Append(w.body[:0])
		w.download(u, nas.Ciphered, w.body)
	}
	w.end(u, succeeded)
	w.discard(u, s1ap.CauseDetach)
}

// supersede detaches a UE without a message to it: the IMSI has attached with
// another context, and the HSS has that context's location.
func (w *worker) supersede(u *ue) {
	u.subscribed, u.event = false, w.event
	w.detachSilently(u)
}

// detachSilently detaches a UE without a message to it.
func (w *worker) detachSilently(u *ue) {
	w.begin(u, detach)
	w.end(u, implicitlyDetached)
	w.discard(u, s1ap.CauseNormalRelease)
}

// discard removes a UE from the indexes, so that no identity leads to it any more.
// It releases the UE's connection; bury then removes the session and the location.
func (w *worker) discard(u *ue, cause s1ap.Cause) {
	if u.gone {
		return
	}
	w.end(u, interrupted)
	u.gone = true
	u.attached = false
	w.forget(u)
	w.cancelTarget(u)
	if u.change != nil {
		w.endChange(u, errNoContext)
	}
	if u.enb != nil && u.phase != releasing {
		w.sendRelease(u, cause)
	}
	w.bury(u)
}
