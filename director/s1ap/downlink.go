package s1ap

import (
	"bytes"

	"vitrine/director/meter"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// downlink handles a message of an instance.
func (t *turn) downlink(l *link, whole, data []byte) {
	t.worker.counts.received.Add(1)
	m := &t.message
	if m.Parse(data) != nil {
		t.malformed(l.association, l.target.Type, 0, s1ap.CauseTransferSyntax)
		return
	}
	if cause, ok := t.in.parse(m); !ok {
		t.malformed(l.association, l.target.Type, t.in.has&bothIDs, cause)
		return
	}
	switch {
	case m.Kind == s1ap.Initiating && t.in.has&erroneousFromInstance(m.Procedure) != 0:
		t.malformed(l.association, l.target.Type, t.in.has&bothIDs, s1ap.CauseAbstractSyntax)
	case m.Procedure == s1ap.S1Setup:
		t.accepted(l)
	case l.state != up || l.enodeb.state != up && m.Procedure != s1ap.OverloadStart && m.Procedure != s1ap.OverloadStop:
		t.worker.counts.strayed.Add(1) // an eNodeB expects no message before its S1 Setup Response
		t.worker.meter.Drop(t.now, l.target.Type, meter.Unroutable, l.peer)
	case m.Kind == s1ap.Initiating:
		t.command(l, whole)
	default:
		t.answered(l, whole)
	}
}

// erroneousFromInstance returns the identifiers that a request from an instance must not have (TS 36.413
// clause 10.3.6). The director does not check them against the connections, so an instance
// could name a UE of another one, and an eNodeB might act on that.
func erroneousFromInstance(p s1ap.Procedure) present {
	switch p {
	case s1ap.HandoverResourceAllocation: // the eNodeB gives the UE an eNB UE S1AP ID in its answer
		return hasENB
	case s1ap.OverloadStart, s1ap.OverloadStop:
		return bothIDs
	}
	return 0
}

// accepted handles an instance's answer to S1 Setup.
func (t *turn) accepted(l *link) {
	if l.state != settingUp {
		return
	}
	if t.message.Kind != s1ap.Successful {
		t.server.config.Log.Warn("an instance refuses an eNodeB", "instance", l.target.Name, "enodeb", l.enodeb.peer)
		l.abort() // connect then calls lost
		return
	}
	e := l.enodeb
	if !bytes.Equal(l.setup, e.setup) { // an eNB Configuration Update came meanwhile
		l.abort() // run connects again, with the new configuration
		return
	}
	l.state, l.settled = up, true
	t.relinked(e)
}

// command handles an initiating message of an instance.
func (t *turn) command(l *link, whole []byte) {
	e := l.enodeb
	switch t.message.Procedure {
	case s1ap.HandoverResourceAllocation:
		t.expect(l, whole)
	case s1ap.UEContextRelease:
		t.leave(l, whole)
	case s1ap.Reset:
		t.resetByInstance(l)
	case s1ap.OverloadStart:
		t.overload(l, bytes.Clone(whole))
	case s1ap.OverloadStop:
		t.overload(l, nil)
	case s1ap.MMEConfigurationUpdate: // eNodeBs see only the director's configuration of the pool
		t.out = s1ap.AppendHeader(t.out[:0], s1ap.Successful, s1ap.MMEConfigurationUpdate, s1ap.Reject)
		t.answer(l.association, frame.Common)
	case s1ap.ErrorIndication:
		u, ok := e.ues[t.in.enb]
		if t.in.has&hasENB == 0 || !ok || u.number != l.number {
			t.worker.counts.absorbed.Add(1)
			return
		}
		t.pass(e.association, whole)
		// Both peers end a connection that one does not know (TS 36.413 clause 10.6). With another MME UE
		// S1AP ID, the message is about an earlier connection.
		if t.in.unknownUE() && (t.in.has&hasMME == 0 || u.is(t.in.mme)) {
			t.remove(e, t.in.enb, u, meter.Failed)
		}
	default:
		if t.in.has&bothIDs == 0 { // such as Paging
			t.pass(e.association, whole)
			return
		}
		t.down(l, whole)
	}
}

// answered handles an instance's answer to an earlier message.
func (t *turn) answered(l *link, whole []byte) {
	switch t.message.Procedure {
	case s1ap.Reset, s1ap.ENBConfigurationUpdate: // the director has already answered the eNodeB
		t.worker.counts.absorbed.Add(1)
	default:
		if t.in.has&bothIDs == 0 {
			t.worker.counts.absorbed.Add(1)
			return
		}
		t.down(l, whole)
	}
}

// down forwards a message about a connection to the eNodeB.
func (t *turn) down(l *link, whole []byte) {
	e, enb := l.enodeb, t.in.enb
	u, ok := t.known(l)
	if !ok {
		return
	}
	t.pass(e.association, whole)
	m := &t.message
	switch {
	case m.Procedure == s1ap.PathSwitchRequest && m.Kind == s1ap.Unsuccessful:
		t.ended(e, enb, &u, meter.Declined)
		t.remove(e, enb, u, meter.Declined)
		return
	case m.Procedure == s1ap.PathSwitchRequest:
		t.moved(place{e, enb}, &u)
		t.ended(e, enb, &u, meter.Succeeded)
	case m.Procedure == s1ap.HandoverPreparation && m.Kind == s1ap.Successful,
		m.Procedure == s1ap.InitialContextSetup:
		t.ended(e, enb, &u, meter.Succeeded)
	case m.Procedure == s1ap.HandoverPreparation:
		t.ended(e, enb, &u, meter.Declined)
	case m.Procedure == s1ap.DownlinkNASTransport && u.awaits != none:
		switch cause, rejected := t.rejection(t.in.nas); {
		case rejected && cause == nas.CauseCongestion:
			t.ended(e, enb, &u, meter.Busy)
		case rejected:
			t.ended(e, enb, &u, meter.Declined)
		}
	}
	e.ues[enb] = u
}

// known returns the connection that an instance's message is about, or answers with an Error
// Indication. The first message of the instance assigns the MME UE S1AP ID, which must carry
// the instance's number.
func (t *turn) known(l *link) (u ue, ok bool) {
	in, e := &t.in, l.enodeb
	u, ok = e.ues[in.enb]
	switch {
	case in.has&bothIDs != bothIDs:
		t.wrong(l, s1ap.CauseAbstractSyntax)
		return u, false
	case !ok || u.number != l.number:
		t.wrong(l, s1ap.CauseUnknownENBUEID)
		return u, false
	case numberOf(in.mme) != l.number:
		t.misnumbered(l)
		return u, false
	case u.mme != 0 && u.mme != in.mme:
		t.wrong(l, s1ap.CauseUnknownPair)
		return u, false
	}
	if u.mme == 0 {
		u.mme = in.mme
		e.ues[in.enb] = u
		// The UE moves only when the instance grants a path switch: any eNodeB may request one.
		if u.awaits != pathSwitch {
			t.hold(place{e, in.enb}, u.mme)
		}
	}
	return u, true
}

// hold records the place of a UE, and ends its connection at another place.
func (t *turn) hold(here place, mme uint32) {
	if was := t.server.holders.set(mme, here); was.enodeb != nil && was != here {
		t.evicted = append(t.evicted, eviction{was, mme})
	}
}

// moved records the new place of a UE after an X2 handover, and ends its connection at the old eNodeB. The
// instance may have given the UE another MME UE S1AP ID (TS 36.413 clause 8.4.4.2).
func (t *turn) moved(here place, u *ue) {
	t.hold(here, u.mme)
	if was, ok := t.server.holders.find(u.source); ok && was != here {
		t.evicted = append(t.evicted, eviction{was, u.source})
	}
	u.source = 0
}

// wrong answers an instance's message that names no connection of the eNodeB.
func (t *turn) wrong(l *link, cause s1ap.Cause) {
	t.worker.counts.unknown.Add(1)
	t.indicate(l.association, t.in.has&bothIDs, cause)
}

// misnumbered answers an instance's message whose MME UE S1AP ID does not carry the instance's number. It logs
// the first one of a link, because no UE can attach through an instance that numbers its UEs in another way.
func (t *turn) misnumbered(l *link) {
	t.server.misnumbered.Add(1)
	t.worker.meter.Fail(l.target.Type, meter.Unroutable)
	if !l.misnumbers {
		l.misnumbers = true
		t.server.config.Log.Warn("an instance gives MME UE S1AP IDs without its number", "instance", l.target.Name, "number", l.number, "mme_ue_s1ap_id", t.in.mme, "enodeb", l.enodeb.peer)
	}
	t.indicate(l.association, t.in.has&bothIDs, s1ap.CauseUnknownMMEUEID)
}

// expect forwards a Handover Request to the target of a handover (TS 36.413 clause 8.4.2).
func (t *turn) expect(l *link, whole []byte) {
	if t.in.has&hasMME == 0 || numberOf(t.in.mme) != l.number {
		t.misnumbered(l)
		return
	}
	l.enodeb.expect(t.in.mme)
	t.pass(l.enodeb.association, whole)
}

// leave forwards a UE Context Release Command (TS 36.413 clause 8.3.3). The command may have
// only the MME UE S1AP ID, as it must if the target of a handover has not answered yet.
func (t *turn) leave(l *link, whole []byte) {
	in, e := &t.in, l.enodeb
	if in.has&bothIDs == hasMME {
		enb, ok := t.connectionOf(e, in.mme)
		switch {
		case ok:
			in.enb, in.has = enb, in.has|hasENB
		case numberOf(in.mme) == l.number && e.awaited(in.mme) != nil:
			t.pass(e.association, whole)
			return
		default:
			t.wrong(l, s1ap.CauseUnknownENBUEID)
			return
		}
	}
	u, ok := t.known(l)
	if !ok {
		return
	}
	switch u.awaits {
	case detach, update:
		t.ended(e, in.enb, &u, meter.Succeeded)
	default:
		t.ended(e, in.enb, &u, meter.Declined)
	}
	u.leaving = true
	e.ues[in.enb] = u
	t.pass(e.association, whole)
}

// overload handles Overload Start and Overload Stop. start is the frame of Overload Start.
func (t *turn) overload(l *link, start []byte) {
	e := l.enodeb
	was, repeated := e.overload, bytes.Equal(start, l.overload)
	l.overload = start
	if repeated || !l.isActive() {
		start = nil
	}
	if t.reportOverload(e, start); bytes.Equal(e.overload, was) {
		t.worker.counts.absorbed.Add(1)
	}
}

// reportOverload tells the eNodeB when all active instances are overloaded, and when one no longer
// is. An overloaded eNodeB holds back the UEs of all instances. latest is the frame of an Overload Start
// with which an active instance has just begun or changed its overload, or nil. It replaces the one that the
// eNodeB has (TS 36.413 clause 8.7.6.2).
func (t *turn) reportOverload(e *enodeb, latest []byte) {
	if e.state != up {
		return
	}
	room, start := false, e.overload
	for _, l := range e.links {
		if l == nil || l.state != up || !l.isActive() {
			continue
		}
		room = room || l.overload == nil
		if start == nil {
			start = l.overload
		}
	}
	if latest != nil {
		start = latest
	}
	switch {
	case room && e.overload != nil:
		e.overload = nil
		t.out = s1ap.AppendHeader(t.out[:0], s1ap.Initiating, s1ap.OverloadStop, s1ap.Ignore)
		t.answer(e.association, frame.Common)
	case !room && !bytes.Equal(start, e.overload):
		e.overload = start
		t.pass(e.association, start)
	}
}
