package mme

import "vitrine/wire/s1ap"

// releaseRequest handles a UE Context Release Request: the UE is to become idle (TS
// 23.401 clause 5.3.5). During an attach, the request ends the attach. During a call,
// the release waits for the answer. It ends any other procedure.
func (w *worker) releaseRequest(u *ue) {
	u.cause = w.in.cause
	w.event = w.mme.config.Messages.Begin()
	switch {
	case u.gone || u.phase == releasing || u.phase == idling:
		return
	case u.phase.attaching():
		u.event = w.event
		w.end(u, radioFailed)
		w.discard(u, u.cause)
	case u.busy:
		u.deferred, u.awaiting = true, w.event
	default:
		u.event = w.event
		w.toIdle(u)
	}
}

// resume makes the deferred release after the answer to a call.
func (w *worker) resume(u *ue) {
	u.deferred = false
	if u.awaiting != 0 {
		u.event, w.event, u.awaiting = u.awaiting, u.awaiting, 0
	}
	if u.phase != releasing {
		w.toIdle(u)
	}
}

// toIdle releases a UE's access bearers, and then its connection if it has one.
func (w *worker) toIdle(u *ue) {
	w.cancelTarget(u)
	w.stopChange(u)
	w.end(u, radioFailed)
	w.releaseBearers(u)
}

// releaseBearers begins to make a UE idle. With a store, it first writes the record.
// If another MME has changed the record, that MME has the UE, and the context is only
// evicted.
func (w *worker) releaseBearers(u *ue) {
	w.begin(u, release)
	u.phase = idling
	u.deferred, u.awaiting = false, 0 // this release is the deferred one
	w.timers.stop(u)
	if u.stored {
		w.save(u, callKeep, 0)
		return
	}
	w.call(u, callRelease)
}

// idled releases the UE's connection after its access bearers.
func (w *worker) idled(u *ue) {
	u.tunnel = s1ap.Tunnel{}
	if u.enb != nil {
		w.sendRelease(u, u.cause)
		return
	}
	w.end(u, succeeded)
	w.rest(u)
}

// sendRelease sends a UE Context Release Command (TS 36.413 clause 8.3.3) and waits
// for the answer.
func (w *worker) sendRelease(u *ue, cause s1ap.Cause) {
	u.phase = releasing
	w.timers.set(u, w.now+w.mme.config.Timers.S1)
	w.releaseIDs(u.enb, u.mmeID, u.enbID, cause)
}

// releaseIDs sends a UE Context Release Command.
func (w *worker) releaseIDs(e *enodeb, mmeID, enbID uint32, cause s1ap.Cause) {
	b := s1ap.AppendHeader(w.out[:0], s1ap.Initiating, s1ap.UEContextRelease, s1ap.Reject)
	b = s1ap.AppendUEIDs(b, s1ap.Reject, mmeID, enbID)
	w.finish(e, s1ap.AppendCause(b, s1ap.Ignore, cause))
}

// released handles a UE Context Release Complete.
func (w *worker) released(u *ue) {
	if u.phase != releasing {
		w.mme.counts.unexpected.Inc()
		return
	}
	w.hangUp(u)
}

// hangUp ends the connection of a UE without a message.
func (w *worker) hangUp(u *ue) {
	w.disconnect(u)
	if u.gone {
		w.timers.stop(u)
		w.bury(u)
		return
	}
	if u.kind == release {
		w.end(u, succeeded)
	}
	w.rest(u)
}

// lostConnection handles the end of the UE's association. An attached UE becomes
// idle.
func (w *worker) lostConnection(u *ue) {
	w.renew(u)
	w.cancelTarget(u)
	switch {
	case u.gone:
		w.timers.stop(u)
		w.disconnect(u)
		w.bury(u)
	case u.phase == releasing:
		w.hangUp(u)
	case !u.attached:
		w.end(u, radioFailed)
		w.disconnect(u)
		w.discard(u, s1ap.CauseConnectionLost)
	case u.phase == idling: // idled runs next
		w.disconnect(u)
	case u.busy:
		w.disconnect(u)
		u.deferred = true
	default:
		w.disconnect(u)
		w.toIdle(u)
	}
}

// expired handles the expiry of a UE's timer.
func (w *worker) expired(u *ue) {
	w.event = u.event
	switch u.phase {
	case identifying, challenged, securing, informing, accepting:
		w.repeat(u)
	case releasing: // the eNodeB did not answer: the connection counts as released
		w.hangUp(u)
	case serving:
		w.end(u, timedOut)
		w.releaseBearers(u)
	case preparing, executing:
		w.handoverExpired(u)
	case activating, deactivating:
		w.changeExpired(u)
	case registered: // the idle UE was silent for too long, or did not answer paging
		if u.paged() {
			w.pagedInVain(u)
			return
		}
		w.renew(u)
		w.detachSilently(u)
	default: // phases that wait for a call have no timer
	}
}

// repeat retransmits a NAS message, or gives up.
func (w *worker) repeat(u *ue) {
	if u.tries == 0 {
		w.end(u, timedOut)
		w.discard(u, s1ap.CauseNormalRelease)
		return
	}
	u.tries--
	w.mme.counts.retransmits.Inc()
	w.timers.set(u, w.now+w.mme.config.Timers.NAS)
	w.download(u, u.lastAs, u.last)
}
