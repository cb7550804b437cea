package mme

import (
	"encoding/binary"

	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// serviceRequest sets up the bearers of an idle UE (TS 23.401 clause 5.3.4.1). The
// S-TMSI identifies the UE, and the short message authentication code proves its
// identity.
func (w *worker) serviceRequest(e *enodeb) {
	var u *ue
	if w.in.has&hasSTMSI != 0 {
		u = w.byTMSI[w.in.stmsi]
	}
	if u == nil || w.pdu.KSI != u.ksi || !w.verify(u) {
		w.refuse(e, service, identityUnknown, nas.Reject{Type: nas.ServiceRejectType, Cause: nas.CauseIdentityUnderived})
		return
	}
	if !u.free() { // without T3346 the UE keeps its identity and may try again (TS 24.301 clause 5.6.1.6)
		w.refuse(e, service, congested, nas.Reject{Type: nas.ServiceRejectType, Cause: nas.CauseCongestion})
		return
	}
	w.adopt(u, e)
	w.begin(u, service)
	w.serve(u, nil)
}

// ready reports whether a procedure of an attached UE may begin on its connection.
func (u *ue) ready() bool { return u.attached && !u.busy && u.phase == registered }

// free reports whether a procedure of an attached UE may begin on a new connection.
func (u *ue) free() bool { return u.ready() || u.attached && !u.busy && u.phase == releasing }

// serve sets up the bearers of a UE whose message has just been verified.
func (w *worker) serve(u *ue, pdu []byte) {
	u.secured, u.keyCount = true, u.up-1
	u.phase = serving
	w.timers.set(u, w.now+w.mme.config.Timers.S1)
	w.setUpContext(u, pdu)
}

// updateRequest handles a Tracking Area Update Request that begins a connection (TS
// 23.401 clause 5.3.3). If the UE asks for bearers, it gets them; otherwise its
// connection is released.
func (w *worker) updateRequest(e *enodeb) {
	var m nas.UpdateRequest
	if m.Parse(w.pdu.Body) != nil {
		w.mme.counts.malformedNAS.Inc()
		w.refuse(e, update, refused, nas.Reject{Type: nas.UpdateRejectType, Cause: nas.CauseMandatory})
		return
	}
	u := w.byGUTI(m.GUTI)
	if u == nil || !w.verify(u) {
		w.refuse(e, update, identityUnknown, nas.Reject{Type: nas.UpdateRejectType, Cause: nas.CauseIdentityUnderived})
		return
	}
	if !u.free() { // as for a service request (clause 5.5.3.2.6)
		w.refuse(e, update, congested, nas.Reject{Type: nas.UpdateRejectType, Cause: nas.CauseCongestion})
		return
	}
	w.adopt(u, e)
	u.secured = true
	w.begin(u, update)
	if m.NewRadio {
		u.keepCapability(nil) // TS 23.401 clause 5.11.2
	}
	gone := u.absent(m.Bearers)
	u.drop(gone)
	w.body = w.appendUpdateAccept(w.body[:0], u, m.Update)
	if m.Active {
		w.serve(u, w.protect(u, nas.Ciphered, w.body))
		return
	}
	w.download(u, nas.Ciphered, w.body)
	w.end(u, succeeded)
	if u.moved || gone != 0 || m.NewRadio || u.tunnel != (s1ap.Tunnel{}) { // the gateway or the store may have what is no longer true
		u.cause = s1ap.CauseNormalRelease
		w.releaseBearers(u)
		return
	}
	w.begin(u, release)
	w.sendRelease(u, s1ap.CauseNormalRelease)
}

// updated handles a Tracking Area Update Request of a connected UE, such as after a
// handover.
func (w *worker) updated(u *ue, body []byte) {
	var m nas.UpdateRequest
	if m.Parse(body) != nil {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	w.begin(u, update)
	if m.NewRadio {
		u.keepCapability(nil)
	}
	gone := u.absent(m.Bearers)
	if u.busy { // the UE has one call at a time
		gone = 0
	}
	if gone != 0 {
		w.lose(u, gone)
	}
	w.body = w.appendUpdateAccept(w.body[:0], u, m.Update)
	w.download(u, nas.Ciphered, w.body)
	if gone == 0 { // otherwise the update ends with the gateway's answer
		w.end(u, succeeded)
		w.refresh(u)
	}
}

// appendUpdateAccept appends a Tracking Area Update Accept for an update of a kind (TS 24.301
// clause 9.9.3.14). The GUTI stays.
func (w *worker) appendUpdateAccept(b []byte, u *ue, kind uint8) []byte {
	const combined, withIMSIAttach = 1, 2
	var areas [16]byte
	timer := [1]byte{byte(nas.MakeTimer(w.mme.config.Timers.Update))}
	var bearers [2]byte // EPS bearer context status (TS 24.301 clause 9.9.2.1)
	binary.LittleEndian.PutUint16(bearers[:], u.dedicated()|1<<defaultBearer)
	accept := nas.UpdateAccept{T3412: timer[:], TAIs: nas.AppendTAIs(areas[:0], u.tai), Bearers: bearers[:]}
	if kind == combined || kind == withIMSIAttach { // clause 5.5.3.3.4.3; without the cause the UE tries again and again
		accept.Cause = nas.CauseCSUnavailable
	}
	return accept.Append(b)
}
