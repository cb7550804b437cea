package s1ap

import (
	"vitrine/director/meter"
	"vitrine/director/overload"
	"vitrine/director/table"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

const bothIDs = hasMME | hasENB

// uplink handles a message from an eNodeB.
func (t *turn) uplink(e *enodeb, whole, data []byte) {
	c := &t.worker.counts
	c.received.Add(1)
	m := &t.message
	if m.Parse(data) != nil {
		t.malformed(e.association, meter.NoType, 0, s1ap.CauseTransferSyntax)
		return
	}
	if cause, ok := t.in.parse(m); !ok {
		t.malformed(e.association, meter.NoType, t.in.has&bothIDs, cause)
		return
	}
	switch {
	case m.Kind == s1ap.Initiating && t.in.has&erroneousFromENodeB(m.Procedure) != 0:
		t.malformed(e.association, meter.NoType, t.in.has&bothIDs, s1ap.CauseAbstractSyntax)
	case m.Procedure == s1ap.S1Setup && m.Kind == s1ap.Initiating:
		t.setUp(e, data)
	case e.state != up:
		c.unexpected.Add(1)
		t.indicate(e.association, t.in.has&bothIDs, s1ap.CauseIncompatible)
	case m.Kind == s1ap.Initiating:
		t.request(e, whole, data)
	default:
		t.outcome(e, whole)
	}
}

// erroneousFromENodeB returns the identifiers that a request from an eNodeB must not have (TS 36.413
// clause 10.3.6). The director does not check them against the UEs or the identity of the
// eNodeB, so an attacker could name other UEs, and an instance might act on that.
func erroneousFromENodeB(p s1ap.Procedure) present {
	switch p {
	case s1ap.InitialUEMessage, s1ap.PathSwitchRequest:
		return hasMME
	case s1ap.S1Setup, s1ap.Reset:
		return bothIDs
	case s1ap.ENBConfigurationUpdate:
		return bothIDs | hasENodeB
	}
	return 0
}

// request handles an initiating message.
func (t *turn) request(e *enodeb, whole, data []byte) {
	switch t.message.Procedure {
	case s1ap.InitialUEMessage:
		t.initial(e, whole)
	case s1ap.PathSwitchRequest:
		t.pathSwitch(e, whole)
	case s1ap.Reset:
		t.resetByENodeB(e, whole)
	case s1ap.ErrorIndication:
		t.complaint(e, whole)
	case s1ap.ENBConfigurationUpdate:
		t.reconfigure(e, whole, data)
	default:
		if t.in.has&bothIDs != 0 {
			t.about(e, whole)
			return
		}
		t.common(e, whole)
	}
}

// outcome handles an answer from an eNodeB.
func (t *turn) outcome(e *enodeb, whole []byte) {
	switch t.message.Procedure {
	case s1ap.HandoverResourceAllocation:
		t.arrive(e, whole)
	case s1ap.UEContextRelease:
		t.released(e, whole)
	default:
		if t.in.has&bothIDs != 0 {
			t.about(e, whole)
			return
		}
		t.worker.counts.absorbed.Add(1) // an answer to a Reset: the director has already answered the instance
	}
}

// initial steers the first message of a UE's connection (TS 36.413 clause 8.6.2.1).
func (t *turn) initial(e *enodeb, whole []byte) {
	in := &t.in
	if in.has&(hasENB|hasNAS) != hasENB|hasNAS {
		t.malformed(e.association, meter.NoType, in.has&bothIDs, s1ap.CauseAbstractSyntax)
		return
	}
	if u, ok := e.ues[in.enb]; ok {
		t.replaced(e, in.enb, u)
	}
	a, urgent := t.ask(), in.isUrgent()
	if !urgent && !t.withinQuota(e, a.kind) {
		return
	}
	r, ok := t.policy.classify(a.kind, in.reason)
	if !ok {
		t.worker.counts.unruled.Add(1)
		t.refuse(e, a.kind, meter.NoType, meter.Unruled)
		return
	}
	target := t.choose(e, r.ty, &a)
	switch {
	case target == nil:
		t.refuse(e, a.kind, r.ty, meter.NoInstance)
		return
	case !urgent && !t.policy.options[r.ty].Gate.Admit(t.now, overload.Begins):
		t.refuse(e, a.kind, r.ty, meter.Overloaded)
		return
	}
	u := ue{number: uint8(target.ID), awaits: none}
	if !t.put(e, in.enb, u) {
		t.worker.counts.full.Add(1)
		t.refuse(e, a.kind, r.ty, meter.NoRoom)
		return
	}
	t.began(e, in.enb, &u, a.kind)
	e.ues[in.enb] = u
	t.pass(e.links[u.number].association, whole)
}

// replaced ends a connection whose eNB UE S1AP ID the eNodeB has reused for another UE.
func (t *turn) replaced(e *enodeb, enb uint32, u ue) {
	if l := e.links[u.number]; !u.leaving && u.mme != 0 && l != nil {
		t.indicateIDs(l.association, bothIDs, u.mme, enb, s1ap.CauseUnknownENBUEID)
	}
	t.remove(e, enb, u, meter.Failed)
}

// withinQuota takes a token from the quota of the eNodeB's address. Without a token it refuses
// or drops the message.
func (t *turn) withinQuota(e *enodeb, k kind) bool {
	switch t.policy.Quota.Take(t.now, e.peer.Addr()) {
	case overload.Admitted:
		return true
	case overload.Refused:
		t.worker.counts.overQuota.Add(1)
		t.refuse(e, k, meter.NoType, meter.OverQuota)
	default:
		t.worker.counts.overQuota.Add(1)
		t.worker.meter.Drop(t.now, meter.NoType, meter.OverQuota, e.peer)
	}
	return false
}

// refuse answers the first message of a connection instead of an instance: with a NAS reject
// that allows a retry, and a UE Context Release Command. It uses an MME UE S1AP ID of the
// director itself (number 0).
func (t *turn) refuse(e *enodeb, k kind, ty table.Type, why meter.Cause) {
	t.worker.counts.refused.Add(1)
	t.worker.meter.Fail(ty, why)
	if k == pathSwitch {
		t.failSwitch(e, s1ap.CauseOverload)
		return
	}
	enb := t.in.enb
	e.refused = (e.refused + 1) & 0xffffff
	if m, ok := k.reject(); ok {
		t.body = m.Append(t.body[:0])
		b := s1ap.AppendHeader(t.out[:0], s1ap.Initiating, s1ap.DownlinkNASTransport, s1ap.Ignore)
		b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Reject, e.refused)
		b = s1ap.AppendENBUEID(b, s1ap.Reject, enb)
		t.out = s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, t.body)
		t.answer(e.association, frame.UE)
	}
	t.release(e.association, e.refused, enb, s1ap.CauseOverload)
}

// tries bounds the further choices for a key whose instance the eNodeB does not reach.
const tries = 16

// choose returns the instance for the first message of a connection; nil: the eNodeB reaches
// none of the type. It skips an instance whose link is down, which it knows before the health
// check fails.
func (t *turn) choose(e *enodeb, ty table.Type, a *asker) *table.Target {
	key := e.keyFor(a, t.in.enb)
	if target, ok := t.steer(e, ty, a, key); ok && e.reaches(target) {
		return target
	}
	for n := range uint64(tries) {
		if i, ok := t.view.Table.Pick(ty, table.Mix(key+n), e.region, t.view.Health); ok && e.reaches(t.view.Table.Target(i)) {
			return t.view.Table.Target(i)
		}
	}
	return e.anyOf(ty)
}

// steer returns the instance of a UE: the instance that its S-TMSI names, if it belongs to the
// type and the type does not spread its UEs, or else the choice of the table for the key.
func (t *turn) steer(e *enodeb, ty table.Type, a *asker, key uint64) (*table.Target, bool) {
	options := &t.policy.options[ty]
	if owner := t.policy.find(t.view.Table, a.number); owner != nil && owner.Type == ty && !options.Spread {
		return t.worker.steering.Resume(t.now, ty, owner.ID, key, e.region, options.Sessions)
	}
	return t.worker.steering.Choose(t.now, ty, key, e.region)
}

// keyFor returns the steering key of a UE. Without an identity, the key is made from the eNodeB
// and the eNB UE S1AP ID.
func (e *enodeb) keyFor(a *asker, enb uint32) uint64 {
	if a.identity == "" {
		return table.Mix(e.key ^ uint64(enb))
	}
	return a.key
}

// about forwards a message about a connection to its instance. The message must have both UE
// IDs, and the connection must belong to this eNodeB.
func (t *turn) about(e *enodeb, whole []byte) {
	in := &t.in
	u, ok := e.ues[in.enb]
	if in.has&bothIDs != bothIDs || !ok || !u.is(in.mme) {
		t.disown(e, t.unknownOf(e))
		return
	}
	l := e.links[u.number]
	switch {
	case t.message.Procedure == s1ap.HandoverPreparation && t.message.Kind == s1ap.Initiating:
		t.ended(e, in.enb, &u, meter.Failed)
		t.began(e, in.enb, &u, handover)
		e.ues[in.enb] = u
	case t.message.Procedure == s1ap.HandoverNotification:
		t.server.holders.set(u.mme, place{e, in.enb})
		t.worker.meter.Sent(l.target)
	default:
		t.worker.meter.Sent(l.target)
	}
	t.pass(l.association, whole)
}

// disown answers a message about a connection that the eNodeB does not have.
func (t *turn) disown(e *enodeb, cause s1ap.Cause) {
	t.worker.counts.unknown.Add(1)
	t.worker.meter.Fail(meter.NoType, meter.Unroutable)
	t.indicate(e.association, t.in.has&bothIDs, cause)
}

// released forwards a UE Context Release Complete and ends the connection, or the handover that
// the eNodeB has not answered. It is the last message of a connection, so an unknown one is
// ignored (TS 36.413 clause 10.6).
func (t *turn) released(e *enodeb, whole []byte) {
	in := &t.in
	u, ok := e.ues[in.enb]
	l := e.links[numberOf(in.mme)]
	switch {
	case in.has&bothIDs == bothIDs && ok && u.is(in.mme):
		t.pass(e.links[u.number].association, whole)
		t.remove(e, in.enb, u, meter.Failed)
	case in.has&bothIDs == bothIDs && !ok && l != nil && e.awaited(in.mme) != nil:
		*e.awaited(in.mme) = arrival{}
		t.pass(l.association, whole)
	default:
		t.worker.counts.absorbed.Add(1)
	}
}

// arrive handles the answer of the target eNodeB of a handover: a Handover Request Acknowledge
// or a Handover Failure (TS 36.413 clause 8.4.2). It refuses an answer without a Handover
// Request.
func (t *turn) arrive(e *enodeb, whole []byte) {
	in := &t.in
	slot := e.awaited(in.mme)
	if in.has&hasMME == 0 || slot == nil {
		t.disown(e, s1ap.CauseUnknownMMEUEID)
		return
	}
	*slot = arrival{}
	l := e.links[numberOf(in.mme)]
	if l == nil || l.state != up { // the instance is lost, and with it the handover
		t.stray(e)
		return
	}
	if t.message.Kind == s1ap.Successful {
		if in.has&hasENB == 0 {
			t.malformed(e.association, meter.NoType, in.has&bothIDs, s1ap.CauseAbstractSyntax)
			return
		}
		if u, ok := e.ues[in.enb]; ok {
			t.replaced(e, in.enb, u)
		}
		if !t.put(e, in.enb, ue{mme: in.mme, number: l.number, awaits: none}) {
			t.failHandover(e, l)
			return
		}
		*slot = arrival{mme: in.mme, enb: in.enb, answered: true}
	}
	t.worker.meter.Sent(l.target)
	t.pass(l.association, whole)
}

// failHandover fails a handover because of a limit on connections.
func (t *turn) failHandover(e *enodeb, l *link) {
	t.worker.counts.full.Add(1)
	t.worker.meter.Fail(l.target.Type, meter.NoRoom)
	mme, enb := t.in.mme, t.in.enb
	b := s1ap.AppendHeader(t.out[:0], s1ap.Unsuccessful, s1ap.HandoverResourceAllocation, s1ap.Reject)
	b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Ignore, mme)
	t.out = s1ap.AppendCause(b, s1ap.Ignore, s1ap.CauseOverload)
	t.answer(l.association, frame.UE)
	t.release(e.association, mme, enb, s1ap.CauseOverload)
}

// pathSwitch forwards a Path Switch Request, which completes an X2 handover (TS 36.413 clause
// 8.4.4), to the instance that assigned the source MME UE S1AP ID. The instance decides whether
// to grant it.
func (t *turn) pathSwitch(e *enodeb, whole []byte) {
	in := &t.in
	if in.has&(hasENB|hasSource) != hasENB|hasSource {
		t.malformed(e.association, meter.NoType, in.has&bothIDs, s1ap.CauseAbstractSyntax)
		return
	}
	if u, ok := e.ues[in.enb]; ok {
		t.replaced(e, in.enb, u)
	}
	if !t.withinQuota(e, pathSwitch) {
		return
	}
	l := e.links[numberOf(in.source)]
	if l == nil || l.state != up {
		t.worker.counts.unknown.Add(1)
		t.worker.meter.Fail(meter.NoType, meter.Unroutable)
		t.failSwitch(e, s1ap.CauseUnknownMMEUEID)
		return
	}
	u := ue{source: in.source, number: l.number, awaits: none}
	if !t.put(e, in.enb, u) {
		t.worker.counts.full.Add(1)
		t.refuse(e, pathSwitch, l.target.Type, meter.NoRoom)
		return
	}
	t.began(e, in.enb, &u, pathSwitch)
	e.ues[in.enb] = u
	t.pass(l.association, whole)
}

func (t *turn) failSwitch(e *enodeb, cause s1ap.Cause) {
	b := s1ap.AppendHeader(t.out[:0], s1ap.Unsuccessful, s1ap.PathSwitchRequest, s1ap.Reject)
	b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Ignore, t.in.source)
	b = s1ap.AppendENBUEID(b, s1ap.Ignore, t.in.enb)
	t.out = s1ap.AppendCause(b, s1ap.Ignore, cause)
	t.answer(e.association, frame.UE)
}

// complaint forwards an Error Indication about a connection to its instance. If its cause is an
// unknown UE ID, the connection ends.
func (t *turn) complaint(e *enodeb, whole []byte) {
	in := &t.in
	enb, u, ok := t.connectionAt(e, &s1ap.Connection{MME: in.mme, ENB: in.enb, HasMME: in.has&hasMME != 0, HasENB: in.has&hasENB != 0})
	if !ok {
		t.worker.counts.absorbed.Add(1)
		return
	}
	t.pass(e.links[u.number].association, whole)
	if in.unknownUE() {
		t.remove(e, enb, u, meter.Failed)
	}
}

// common forwards a message without UE IDs, such as an eNB Configuration Transfer, to one
// instance. It chooses the same instance for all such messages of an eNodeB.
func (t *turn) common(e *enodeb, whole []byte) {
	n := len(e.links)
	for i := range n {
		if l := e.links[(int(e.key%uint64(n))+i)%n]; l != nil && l.state == up {
			t.pass(l.association, whole)
			return
		}
	}
	t.stray(e)
}

// stray counts a message of an eNodeB that has no destination and gets no answer.
func (t *turn) stray(e *enodeb) {
	t.worker.counts.strayed.Add(1)
	t.worker.meter.Drop(t.now, meter.NoType, meter.NoInstance, e.peer)
}
