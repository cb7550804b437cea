package mme

import "vitrine/wire/nas"

// uplink handles the NAS message of an Uplink NAS Transport.
func (w *worker) uplink(u *ue) {
	if w.pdu.Parse(w.in.nas) != nil {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	if u.gone || u.phase == releasing {
		w.mme.counts.unexpected.Inc()
		return
	}
	// Before the secure exchange, a UE may protect a message with keys that the MME does not have.
	// The MME handles such a message as a plain one (TS 24.301 clause 4.4.4.3).
	early := !u.secured && (w.pdu.Security == nas.Plain || w.pdu.Security == nas.Protected)
	switch {
	case early:
	case w.pdu.Security == nas.Plain:
		w.mme.counts.unprotected.Inc()
		return
	case w.pdu.Security == nas.ServiceRequestHeader:
		w.mme.counts.unexpected.Inc()
		return
	case w.pdu.Security == nas.ProtectedNewContext || (w.pdu.Security == nas.CipheredNewContext) != (u.phase == securing):
		// Only Security Mode Complete has this header, and the UE sends no other message
		// before it.
		w.mme.counts.unexpected.Inc()
		return
	case !w.verify(u):
		w.mme.counts.unprotected.Inc()
		return
	}
	h, err := nas.ParseHeader(w.pdu.Body)
	if err != nil {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	if early {
		w.plain(u, h.Type)
		return
	}
	w.protected(u, h)
}

// plain handles a message that nothing protects, or keys that the MME does not have. A UE may
// send some before the secure exchange (TS 24.301 clause 4.4.4.3).
func (w *worker) plain(u *ue, t nas.Type) {
	body := w.pdu.Body
	switch {
	case t == nas.IdentityResponseType && u.phase == identifying:
		w.identified(u, body)
	case t == nas.AuthenticationResponseType && u.phase == challenged:
		w.responded(u, body)
	case t == nas.AuthenticationFailureType && u.phase == challenged:
		w.keysRefused(u, body)
	case t == nas.SecurityModeRejectType && u.phase == securing:
		w.securityRefused(u)
	default:
		w.mme.counts.unexpected.Inc()
	}
}

// protected handles a message whose integrity was verified.
func (w *worker) protected(u *ue, h nas.Header) {
	t, body := h.Type, w.pdu.Body
	switch {
	case t == nas.SecurityModeCompleteType && u.phase == securing:
		w.securityDone(u)
	case t == nas.ESMInformationResponseType && u.phase == informing:
		w.informed(u, body)
	case t == nas.AttachCompleteType && u.phase == accepting && !u.gotAccept:
		w.completed(u, body)
	case t == nas.DetachRequestType && u.secured:
		w.renew(u)
		w.detached(u, body)
	case (t == nas.AllocationRequestType || t == nas.ModificationRequestType) && u.phase == requesting: // the UE repeats it
		w.mme.counts.unexpected.Inc()
	case t == nas.UpdateRequestType || t == nas.AllocationRequestType || t == nas.ModificationRequestType:
		w.happen()
		if w.later(u, u.enb) { // for example, a handover is not complete until the gateway answers
			u.parked.verified = true
			return
		}
		w.requested(u, t, body)
	case (t == nas.DedicatedBearerAcceptType || t == nas.DedicatedBearerRejectType) && u.phase == activating:
		w.bearerAnswered(u, h)
	case t == nas.DeactivateAcceptType && u.phase == deactivating && h.EBI == u.change.remove:
		w.bearerReleased(u, true)
	default:
		w.unserved(u, h)
	}
}

// unserved refuses a session request that the MME does not serve, because a UE has one PDN
// connection (TS 24.301 clauses 6.5.1.4, 6.5.2.4 and 7.4). It drops other messages.
func (w *worker) unserved(u *ue, h nas.Header) {
	m := nas.Release{Header: nas.Bearer(0, h.PTI)}
	switch {
	case !u.attached:
	case h.Type == nas.ConnectivityRequestType:
		m.Type, m.Cause = nas.ConnectivityRejectType, nas.ESMCauseUnsupported
	case h.Type == nas.DisconnectRequestType:
		m.Type, m.Cause = nas.DisconnectRejectType, nas.ESMCauseLastDisconnected
	case h.Discriminator == nas.ESM && !h.IsKnown():
		m.EBI, m.Type, m.Cause = h.EBI, nas.ESMStatusType, nas.ESMCauseTypeUnknown
	}
	if m.Type == 0 {
		w.mme.counts.unexpected.Inc()
		return
	}
	w.mme.counts.unserved.Inc()
	w.body = m.Append(w.body[:0])
	w.download(u, nas.Ciphered, w.body)
}

// requested handles a request of a UE that no call of the UE has to precede.
func (w *worker) requested(u *ue, t nas.Type, body []byte) {
	switch {
	case t != nas.UpdateRequestType:
		u.event = w.event
		w.resourceRequested(u, body)
	case u.phase != registered:
		w.mme.counts.unexpected.Inc()
	default:
		u.event = w.event
		w.updated(u, body)
	}
}
