package mme

import (
	"errors"
	"time"

	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// initial handles the first message of a UE's connection (TS 36.413 clause 8.6.2.1).
// With a store, it first gets the UE's context from there.
func (w *worker) initial(e *enodeb) {
	if w.pdu.Parse(w.in.nas) != nil {
		w.mme.counts.malformedNAS.Inc()
		w.dismiss(e)
		return
	}
	if w.mme.config.Store == nil || !w.fetch(e) {
		w.dispatch(e)
	}
}

// dispatch handles the present initial message. If the UE has a context, it is in memory
// by now.
func (w *worker) dispatch(e *enodeb) {
	if w.pdu.Security == nas.ServiceRequestHeader {
		w.serviceRequest(e)
		return
	}
	h, err := nas.ParseHeader(w.pdu.Body)
	switch {
	case err != nil:
		w.mme.counts.malformedNAS.Inc()
		w.dismiss(e)
	case h.Type == nas.AttachRequestType:
		w.attachRequest(e)
	case h.Type == nas.UpdateRequestType:
		w.updateRequest(e)
	case h.Type == nas.DetachRequestType:
		w.detachRequest(e)
	case h.Type == nas.ExtendedServiceRequestType: // for services of the CS domain (TS 24.301 clause 5.6.1.5)
		w.refuse(e, service, refused, nas.Reject{Type: nas.ServiceRejectType, Cause: nas.CauseCSUnavailable})
	default:
		w.mme.counts.unexpected.Inc()
		w.dismiss(e)
	}
}

// dismiss releases the connection of the present initial message, which has no answer. The
// eNodeB cannot: it does not know the MME UE S1AP ID.
func (w *worker) dismiss(e *enodeb) { w.releaseIDs(e, w.newID(), w.in.enb, s1ap.CauseUnspecifiedNAS) }

// refuse refuses a UE that has no context, and releases its connection.
func (w *worker) refuse(e *enodeb, p procedure, o outcome, m nas.Reject) {
	w.mme.counts.procedures[p][o].Inc()
	w.body = m.Append(w.body[:0])
	w.turnAway(e, w.body)
}

// turnAway sends a plain NAS message to a UE that has no context, and releases its
// connection.
func (w *worker) turnAway(e *enodeb, body []byte) {
	id := w.newID()
	b := w.aboutIDs(s1ap.Initiating, s1ap.DownlinkNASTransport, s1ap.Ignore, id, w.in.enb)
	w.finish(e, s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, body))
	w.releaseIDs(e, id, w.in.enb, s1ap.CauseNormalRelease)
}

// attachRequest begins an attach (TS 23.401 clause 5.3.2.1). If the overload window is
// full, it refuses the attach before any other work.
func (w *worker) attachRequest(e *enodeb) {
	if w.mme.window != nil && w.mme.window.Full(w.mme.start.Add(w.now), w.arrived) {
		w.congestion(e)
		return
	}
	if w.mme.config.Store != nil && !w.mme.config.Store.Ready() {
		w.turnDown(e)
		return
	}
	var m nas.AttachRequest
	if m.Parse(w.pdu.Body) != nil {
		w.mme.counts.malformedNAS.Inc()
		w.refuse(e, attach, refused, nas.Reject{Type: nas.AttachRejectType, Cause: nas.CauseMandatory})
		return
	}
	if cause := unsupported(&m); cause != 0 {
		w.refuse(e, attach, refused, nas.Reject{Type: nas.AttachRejectType, Cause: cause})
		return
	}
	u := w.byGUTI(m.Identity)
	known := u != nil && u.free() && w.verify(u)
	if known {
		w.adopt(u, e)
		u.attached = false
		u.keepCapability(nil) // TS 23.401 clause 5.11.2
		w.mme.counts.reusedKeys.Inc()
	} else if u = w.newUE(); u == nil {
		w.congestion(e)
		return
	} else {
		w.connect(u, e, w.in.enb)
	}
	w.begin(u, attach)
	if w.mme.window != nil {
		w.mme.window.Enter()
		u.counted = true
	}
	u.tai, u.ecgi = w.in.tai, w.in.ecgi
	u.capLength, u.gea = uint8(copy(u.capability[:], m.Capability)), gprsAlgorithms(m.MSCapability)
	const combined = 2
	u.combined = m.Attach == combined
	u.gotSetup, u.gotAccept, u.resynced = false, false, false
	if !w.keepRequest(u, m.ESM) {
		return
	}
	switch {
	case known:
		u.secured, u.keyCount = true, u.up-1
		w.safe(u)
	case m.Identity.Kind == nas.KindIMSI:
		u.imsi = m.Identity.Digits
		w.authenticate(u)
	default:
		w.body = (&nas.IdentityRequest{Kind: nas.KindIMSI}).Append(w.body[:0])
		w.ask(u, identifying, nas.Plain, w.body)
	}
}

// congestion refuses an attach with a back-off timer (TS 24.301 clause 5.5.1.2.5).
func (w *worker) congestion(e *enodeb) {
	w.refuse(e, attach, congested, nas.Reject{Type: nas.AttachRejectType, Cause: nas.CauseCongestion, T3346: w.backOff()})
}

// backOff returns the value of T3346.
func (w *worker) backOff() []byte {
	return []byte{byte(nas.MakeTimer(max(w.mme.config.BackOff, 2*time.Second)))}
}

// unsupported returns the cause for an attach that the MME refuses for every subscriber,
// or 0.
func unsupported(m *nas.AttachRequest) nas.Cause {
	switch {
	case m.Identity.Kind == nas.KindIMEI || m.Identity.Kind == nas.KindIMEISV: // an IMEI is only for emergency attaches
		return nas.CauseIMEINotAccepted
	case m.Capability[1]&capabilityEIA2 == 0:
		return nas.CauseCapabilityMismatch
	}
	return 0
}

// keepRequest stores the values of a PDN Connectivity Request. If the MME cannot serve
// the request, keepRequest refuses the attach and returns false.
func (w *worker) keepRequest(u *ue, esm []byte) bool {
	var m nas.ConnectivityRequest
	if m.Parse(esm) != nil || len(m.APN) > len(u.apn) || m.PTI == 0 {
		w.mme.counts.malformedNAS.Inc()
		w.rejectSession(u, nas.ESMCauseMandatory)
		return false
	}
	u.pti, u.pdn, u.transfer = m.PTI, m.PDN, m.Transfer
	u.apnLength = uint8(copy(u.apn[:], m.APN))
	if m.PDN == nas.PDNv6 {
		w.rejectSession(u, nas.ESMCauseIPv4Only)
		return false
	}
	return true
}

// byGUTI returns the context of a GUTI that this MME, or another MME with the same
// store, has allocated; nil if there is none.
func (w *worker) byGUTI(id nas.Identity) *ue {
	if of := w.mme.config.GUMMEI; id.Kind != nas.KindGUTI || id.GUTI.PLMN != of.PLMN || id.GUTI.Group != of.Group {
		return nil
	}
	return w.byTMSI[id.GUTI.STMSI()]
}

// adopt moves the context of a verified UE to the connection of the present message, and
// releases the old connection of the UE, if it has one.
func (w *worker) adopt(u *ue, e *enodeb) {
	w.leaveConnection(u)
	w.connect(u, e, w.in.enb)
	u.tai, u.ecgi = w.in.tai, w.in.ecgi
}

// leaveConnection ends the old connection of a UE that begins a new one, with the
// procedure that runs there.
func (w *worker) leaveConnection(u *ue) {
	if u.paged() {
		w.end(u, succeeded)
	}
	if u.enb != nil {
		if u.phase == releasing { // the UE is back before the old eNodeB has answered
			if u.kind == release {
				w.end(u, succeeded)
			}
			u.phase = registered
		} else {
			w.releaseIDs(u.enb, u.mmeID, u.enbID, s1ap.CauseNormalRelease)
		}
		w.disconnect(u)
	}
	w.timers.stop(u)
}

// fail ends an attach that cannot go on, and removes the context.
func (w *worker) fail(u *ue, o outcome, m nas.Reject) {
	m.Type = nas.AttachRejectType
	w.body = m.Append(w.body[:0])
	if u.enb != nil {
		w.download(u, u.header(), w.body)
	}
	w.end(u, o)
	w.discard(u, s1ap.CauseNormalRelease)
}

// header returns the security header for downlink messages to the UE.
func (u *ue) header() nas.Security {
	if u.secured {
		return nas.Ciphered
	}
	return nas.Plain
}

// rejectSession ends an attach whose PDN connection the MME refuses. It sends an Attach
// Reject for an ESM failure with a PDN Connectivity Reject (TS 24.301 clause 5.5.1.2.5).
func (w *worker) rejectSession(u *ue, cause nas.ESMCause) {
	reject := nas.Release{Header: nas.Bearer(0, u.pti), Cause: cause}
	reject.Type = nas.ConnectivityRejectType
	w.esm = reject.Append(w.esm[:0])
	w.fail(u, esmOutcome(cause), nas.Reject{Cause: nas.CauseESMFailure, ESM: w.esm})
}

// esmOutcome returns the outcome of a procedure that ends with an ESM cause.
func esmOutcome(cause nas.ESMCause) outcome {
	switch cause {
	case nas.ESMCauseNetworkFailure:
		return networkFailure
	case nas.ESMCauseResources:
		return noResources
	}
	return refused
}

// failCall ends an attach after a call to the HSS failed.
func (w *worker) failCall(u *ue, err error) {
	if errors.Is(err, ErrUnknown) {
		w.fail(u, unknownSubscriber, nas.Reject{Cause: nas.CauseServicesNotAllowed})
		return
	}
	w.mme.config.Log.Debug("the HSS was not reached", "error", err)
	w.fail(u, networkFailure, nas.Reject{Cause: nas.CauseNetworkFailure})
}

// safe continues an attach once the UE's messages are protected.
func (w *worker) safe(u *ue) {
	if u.transfer {
		m := nas.ESMInformationRequest{Header: nas.Bearer(0, u.pti)}
		w.body = m.Append(w.body[:0])
		w.ask(u, informing, nas.Ciphered, w.body)
		return
	}
	w.locate(u)
}

// informed handles an ESM Information Response.
func (w *worker) informed(u *ue, body []byte) {
	var m nas.ESMInformationResponse
	if m.Parse(body) != nil || len(m.APN) > len(u.apn) {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	w.timers.stop(u)
	u.transfer = false
	u.apnLength = uint8(copy(u.apn[:], m.APN))
	w.locate(u)
}

// locate tells the HSS that this MME serves the subscriber, unless the HSS already
// knows.
func (w *worker) locate(u *ue) {
	if u.subscribed && u.holding {
		w.connectPDN(u)
		return
	}
	u.phase = locating
	w.call(u, callLocation)
}

// located stores the subscription from the HSS. From now on this context is the IMSI's
// context, and an older context is detached.
func (w *worker) located(u *ue, s *Subscription, err error) {
	if err != nil {
		w.failCall(u, err)
		return
	}
	u.subscription, u.subscribed = *s, true
	w.hold(u)
	w.connectPDN(u)
}

// hold registers a context as its IMSI's context. An older context of the IMSI is
// detached.
func (w *worker) hold(u *ue) {
	if before, had := w.mme.claim(u); had {
		w.mme.counts.again.Inc()
		if of := before.ue.worker; of == w {
			if before.ue.serial == before.serial && !before.ue.gone {
				w.supersede(before.ue)
			}
		} else {
			of.order(order{holder: before})
		}
	}
	u.holding = true
}

// connectPDN asks the gateway for a session to the APN. The session of an earlier
// attach is deleted first (TS 23.401 clause 5.3.2.1 step 7).
func (w *worker) connectPDN(u *ue) {
	if u.apnLength > 0 {
		name, ok := nas.AppendName(w.text[:0], u.apn[:u.apnLength])
		w.text = name
		if !ok || string(name) != u.subscription.APN {
			w.rejectSession(u, nas.ESMCauseUnknownAPN)
			return
		}
	}
	if u.hasSession {
		u.phase, u.hasSession = replacing, false
		w.call(u, callDelete)
		return
	}
	w.create(u)
}

func (w *worker) create(u *ue) {
	w.newTMSI(u)
	u.phase = creating
	w.call(u, callCreate)
}

// created continues an attach after the gateway's answer. With a store, it writes the
// UE's context before it sends the Attach Accept.
func (w *worker) created(u *ue, s *Session, err error) {
	if err != nil {
		w.mme.config.Log.Debug("the gateway made no session", "error", err)
		w.rejectSession(u, esmCause(err))
		return
	}
	u.session, u.hasSession = *s, true
	if w.mme.config.Store != nil {
		u.phase = keeping
		w.save(u, callCommit, reserve)
		return
	}
	w.accept(u)
}

// committed accepts the attach if the store has the UE's context now, and refuses it
// otherwise.
func (w *worker) committed(u *ue, j *job) {
	if j.err != nil {
		w.mme.counts.turnedDown.Inc()
		w.fail(u, congested, nas.Reject{Cause: nas.CauseCongestion, T3346: w.backOff()})
		return
	}
	u.keep(j.kept, j.tag)
	w.accept(u)
}

// accept sends the Attach Accept.
func (w *worker) accept(u *ue) {
	w.leave(u, true)
	w.body = w.appendAccept(w.body[:0], u)
	u.phase, u.tries = accepting, retransmissions
	u.last, u.lastAs = append(u.last[:0], w.body...), nas.Ciphered
	w.timers.set(u, w.now+w.mme.config.Timers.NAS)
	w.setUpContext(u, w.protect(u, nas.Ciphered, w.body))
}

// appendAccept appends an Attach Accept with the request to activate the default
// bearer.
func (w *worker) appendAccept(b []byte, u *ue) []byte {
	s := &u.subscription
	var qos, ambr, address, areas [16]byte
	bearer := nas.DefaultBearerRequest{
		Header:  nas.Bearer(u.session.Bearer, u.pti),
		QoS:     nas.QoS{QCI: s.QCI}.Append(qos[:0]),
		Address: nas.Address{Type: nas.PDNv4, V4: u.session.Address}.Append(address[:0]),
		AMBR:    nas.AMBR{Down: uint32(s.APNDown / 1000), Up: uint32(s.APNUp / 1000)}.Append(ambr[:0]),
	}
	w.text = nas.AppendAPN(w.text[:0], s.APN)
	bearer.APN = w.text
	if u.pdn == nas.PDNv4v6 {
		bearer.Cause = nas.ESMCauseIPv4Only
	}
	w.esm = bearer.Append(w.esm[:0])
	accept := nas.AttachAccept{
		Result: 1, T3412: nas.MakeTimer(w.mme.config.Timers.Update), TAIs: nas.AppendTAIs(areas[:0], u.tai),
		ESM: w.esm, HasGUTI: true, GUTI: identity.GUTI{GUMMEI: w.mme.config.GUMMEI, TMSI: u.stmsi.TMSI},
	}
	if u.combined { // clause 5.5.1.3.4.3; without the cause the UE tries again and again
		accept.Cause = nas.CauseCSUnavailable
	}
	return accept.Append(b)
}

// completed handles an Attach Complete.
func (w *worker) completed(u *ue, body []byte) {
	var m nas.AttachComplete
	if m.Parse(body) != nil {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	var bearer nas.BearerAccept
	if bearer.Parse(m.ESM) != nil || bearer.Type != nas.DefaultBearerAcceptType { // the UE refuses the bearer
		w.end(u, refused)
		w.discard(u, s1ap.CauseNormalRelease)
		return
	}
	u.gotAccept = true
	w.confirmTMSI(u)
	w.complete(u)
}

// complete ends an attach once both the UE and the eNodeB have answered, and sends the
// eNodeB's end of the bearer to the gateway (TS 23.401 clause 5.3.2.1 step 23).
func (w *worker) complete(u *ue) {
	if !u.gotSetup || !u.gotAccept {
		return
	}
	w.timers.stop(u)
	u.attached = true
	u.phase = modifying
	w.call(u, callModify)
}
