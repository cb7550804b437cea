package mme

import "vitrine/wire/s1ap"

// pathSwitch begins the completion of an X2 handover (TS 23.401 clause 5.5.1.1.2, TS
// 36.413 clause 8.4.4): the UE is at another eNodeB, and the MME tells the gateway.
func (w *worker) pathSwitch(e *enodeb) {
	in := &w.in
	u := w.byID[in.source]
	if u == nil {
		w.mme.counts.unexpected.Inc()
		w.failSwitch(e, in.source, in.enb, s1ap.CauseUnknownMMEUEID)
		return
	}
	if w.later(u, e) {
		return
	}
	tunnel, ok := tunnelOf(in.list, s1ap.ToBeSwitchedItemDL, u.session.Bearer)
	if ok {
		w.makeWay(u)
	}
	if !ok || u.enb == nil || !u.ready() {
		w.mme.counts.procedures[pathSwitch][refused].Inc()
		w.failSwitch(e, in.source, in.enb, s1ap.CauseUnknownERAB)
		return
	}
	u.event = w.event
	w.begin(u, pathSwitch)
	w.unlink(u) // the old eNodeB has released the UE by X2
	w.link(u, e, in.enb)
	u.tai, u.ecgi, u.tunnel = in.tai, in.ecgi, tunnel
	u.foreign = listed(in.list, s1ap.ToBeSwitchedItemDL) &^ (u.dedicated() | 1<<u.session.Bearer)
	u.session.Dedicated = u.admitted(in.list, s1ap.ToBeSwitchedItemDL)
	u.phase = switching
	w.call(u, callModify)
}

// switched answers a Path Switch Request.
func (w *worker) switched(u *ue, err error) {
	if u.enb == nil { // the association was lost meanwhile; resume runs next
		w.end(u, outcomeOf(err))
		return
	}
	if err != nil {
		w.end(u, networkFailure)
		w.failSwitch(u.enb, u.mmeID, u.enbID, s1ap.CauseUnknownERAB)
		u.cause = s1ap.CauseUnknownERAB
		w.releaseBearers(u)
		return
	}
	w.rest(u)
	u.advanceChain()
	b := appendReleased(w.about(u, s1ap.Successful, s1ap.PathSwitchRequest, s1ap.Reject), u.foreign)
	b = s1ap.AppendNextHop(b, s1ap.Reject, u.chain, u.nextHop)
	w.finish(u.enb, b)
	w.end(u, succeeded)
}

func (w *worker) failSwitch(e *enodeb, mmeID, enbID uint32, cause s1ap.Cause) {
	b := w.aboutIDs(s1ap.Unsuccessful, s1ap.PathSwitchRequest, s1ap.Reject, mmeID, enbID)
	w.finish(e, s1ap.AppendCause(b, s1ap.Ignore, cause))
}

// handoverRequired begins an S1 handover (TS 23.401 clause 5.5.1.2.2, TS 36.413
// clause 8.4.1). It asks the target eNodeB for resources.
func (w *worker) handoverRequired(u *ue) {
	in := &w.in
	w.happen()
	if w.later(u, u.enb) {
		return
	}
	var target *enodeb
	if in.has&hasTarget != 0 {
		target = w.mme.find(in.target)
	}
	const withinLTE = 0
	possible := target != nil && target != u.enb && in.handover == withinLTE
	if !possible || !u.ready() {
		w.mme.counts.procedures[handover][refused].Inc()
		cause := s1ap.CauseUnknownTarget
		if possible {
			cause = s1ap.CauseInteraction
		}
		w.failPreparation(u, cause)
		return
	}
	u.event = w.event
	w.begin(u, handover)
	u.phase, u.target, u.targetID = preparing, target, 0
	w.timers.set(u, w.now+w.mme.config.Timers.S1)
	u.advanceChain()

	b := s1ap.AppendHeader(w.out[:0], s1ap.Initiating, s1ap.HandoverResourceAllocation, s1ap.Reject)
	b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Reject, u.mmeID)
	b = s1ap.AppendEnum(b, s1ap.HandoverType, s1ap.Reject, withinLTE)
	b = s1ap.AppendCause(b, s1ap.Ignore, in.cause)
	b = s1ap.AppendBitRates(b, s1ap.Reject, u.subscription.Down, u.subscription.Up)
	b = u.appendBearers(b, s1ap.ToBeSetupHO, s1ap.ToBeSetupItemHO, nil)
	b = s1ap.AppendNAS(b, s1ap.SourceToTarget, s1ap.Reject, in.container)
	ciphering, integrity := u.algorithms()
	b = s1ap.AppendCapabilities(b, s1ap.Reject, ciphering, integrity)
	w.finish(target, s1ap.AppendNextHop(b, s1ap.Reject, u.chain, u.nextHop))
}

func (w *worker) failPreparation(u *ue, cause s1ap.Cause) {
	b := w.about(u, s1ap.Unsuccessful, s1ap.HandoverPreparation, s1ap.Reject)
	w.finish(u.enb, s1ap.AppendCause(b, s1ap.Ignore, cause))
}

// handleTarget handles a message from the target eNodeB of a handover. It returns
// false if the target does not send such a message now.
func (w *worker) handleTarget(u *ue, e *enodeb) bool {
	m, in := &w.s1, &w.in
	switch {
	case m.Procedure == s1ap.HandoverResourceAllocation && u.phase == preparing:
		w.targetAnswered(u, m.Kind == s1ap.Successful)
	case m.Procedure == s1ap.HandoverNotification && u.phase == executing && in.enb == u.targetID:
		w.arrive(u, e)
	default:
		return false
	}
	return true
}

// targetAnswered passes the target's answer on to the source eNodeB.
func (w *worker) targetAnswered(u *ue, admitted bool) {
	in := &w.in
	tunnel, ok := tunnelOf(in.list, s1ap.AdmittedItem, u.session.Bearer)
	if !admitted || !ok {
		if admitted {
			w.releaseIDs(u.target, u.mmeID, in.enb, s1ap.CauseUnknownERAB)
		}
		u.target = nil
		w.rest(u)
		w.end(u, radioFailed)
		w.failPreparation(u, s1ap.CauseUnknownTarget)
		return
	}
	u.targetID, u.newTunnel, u.phase = in.enb, tunnel, executing
	u.newDedicated = u.admitted(in.list, s1ap.AdmittedItem)
	w.timers.set(u, w.now+w.mme.config.Timers.S1)
	b := w.about(u, s1ap.Successful, s1ap.HandoverPreparation, s1ap.Reject)
	b = s1ap.AppendEnum(b, s1ap.HandoverType, s1ap.Reject, 0)
	w.finish(u.enb, s1ap.AppendNAS(b, s1ap.TargetToSource, s1ap.Reject, in.container))
}

// statusTransfer forwards the state of the source's radio bearers to the target (TS
// 36.413 clauses 8.4.6 and 8.4.7).
func (w *worker) statusTransfer(u *ue) {
	if u.phase != executing {
		w.mme.counts.unexpected.Inc()
		return
	}
	b := w.aboutIDs(s1ap.Initiating, s1ap.MMEStatusTransfer, s1ap.Ignore, u.mmeID, u.targetID)
	w.finish(u.target, s1ap.AppendElement(b, statusContainer, s1ap.Reject, w.in.status))
}

// arrive handles a Handover Notify: the UE is at the target. It releases the
// source's resources and tells the gateway the new end of the bearer.
func (w *worker) arrive(u *ue, e *enodeb) {
	w.releaseIDs(u.enb, u.mmeID, u.enbID, s1ap.CauseSuccessfulHandover)
	w.unlink(u)
	w.link(u, e, u.targetID)
	u.target = nil
	u.tai, u.ecgi, u.tunnel = w.in.tai, w.in.ecgi, u.newTunnel
	u.session.Dedicated, u.newDedicated = u.newDedicated, nil
	w.timers.stop(u)
	u.phase = modifying
	w.call(u, callModify)
}

// handoverCancel handles a Handover Cancel from the source (TS 36.413 clause 8.4.5).
func (w *worker) handoverCancel(u *ue) {
	if u.phase == preparing || u.phase == executing {
		w.end(u, interrupted)
		w.cancelTarget(u)
		w.rest(u)
	}
	b := w.about(u, s1ap.Successful, s1ap.HandoverCancel, s1ap.Reject)
	w.finish(u.enb, b)
}

// cancelTarget releases the resources that the target of a handover has set up.
func (w *worker) cancelTarget(u *ue) {
	if u.target == nil {
		return
	}
	if u.phase == executing {
		w.releaseIDs(u.target, u.mmeID, u.targetID, s1ap.CauseHandoverCancelled)
	}
	u.target = nil
}

// handoverExpired ends a handover whose target did not answer in time.
func (w *worker) handoverExpired(u *ue) {
	before := u.phase
	w.end(u, timedOut)
	w.cancelTarget(u)
	w.rest(u)
	if before == preparing {
		w.failPreparation(u, s1ap.CauseUnknownTarget)
	}
}
