package mme

import (
	"context"
	"errors"
	"time"

	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
	"vitrine/wire/s1ap/frame"
)

// distribute hands the messages of one read to the workers. It blocks while a worker's
// backlog is full.
func (m *MME) distribute(ctx context.Context, e *enodeb, frames []byte) {
	now := time.Now()
	if len(m.workers) == 1 {
		m.deliver(ctx, m.workers[0], e, now, frames)
		return
	}
	start, owner := 0, -1 // the messages from start on are for one worker
	for at := 0; ; {
		message, rest, err := frame.Cut(frames[at:])
		next := -1
		if err == nil && message != nil {
			next = ownerOf(message, len(m.workers))
		}
		if next != owner && owner >= 0 {
			m.deliver(ctx, m.workers[owner], e, now, frames[start:at])
			start = at
		}
		if next < 0 {
			return
		}
		owner, at = next, len(frames)-len(rest)
	}
}

func (m *MME) deliver(ctx context.Context, w *worker, e *enodeb, now time.Time, frames []byte) {
	b := m.free.Get().(*batch)
	b.enodeb, b.arrived, b.frames = e, now, append(b.frames[:0], frames...)
	select {
	case w.batches <- b:
	case <-ctx.Done():
	}
}

// ownerOf returns the number of the worker that a message is for: the one that has the UE,
// by its MME UE S1AP ID or its M-TMSI. For a new UE, the eNB UE S1AP ID selects the worker.
func ownerOf(message []byte, workers int) int {
	var m s1ap.Message
	if m.Parse(message) != nil || m.Procedure == s1ap.S1Setup {
		return 0
	}
	n := uint32(workers)
	fresh := uint32(0)
	for e := m.Elements(); e.Next(); {
		switch e.ID {
		case s1ap.MMEUEID, s1ap.SourceMMEUEID:
			id, _ := s1ap.ParseMMEUEID(e.Value)
			return int(id & 0xffffff % n)
		case s1ap.STMSI:
			s, _ := s1ap.ParseSTMSI(e.Value)
			return int(s.TMSI % n)
		case s1ap.NASPDU:
			pdu, _ := s1ap.ParseNAS(e.Value)
			var p nas.PDU
			if p.Parse(pdu) == nil {
				if guti, ok := gutiOf(&p); ok {
					return int(guti.TMSI % n)
				}
			}
		case s1ap.ENBUEID:
			fresh, _ = s1ap.ParseENBUEID(e.Value)
		}
	}
	return int(fresh % n)
}

// gutiOf returns the GUTI that an initial NAS message names.
func gutiOf(p *nas.PDU) (identity.GUTI, bool) {
	if p.Body == nil || p.Security.IsCiphered() {
		return identity.GUTI{}, false
	}
	h, err := nas.ParseHeader(p.Body)
	if err != nil {
		return identity.GUTI{}, false
	}
	var id nas.Identity
	switch h.Type {
	case nas.AttachRequestType:
		var m nas.AttachRequest
		err = m.Parse(p.Body)
		id = m.Identity
	case nas.UpdateRequestType:
		var m nas.UpdateRequest
		err = m.Parse(p.Body)
		id = m.GUTI
	case nas.DetachRequestType:
		var m nas.DetachRequest
		err = m.Parse(p.Body)
		id = m.Identity
	}
	return id.GUTI, err == nil && id.Kind == nas.KindGUTI
}

// handle handles one message, and logs it with the event that the message belongs to.
func (w *worker) handle(e *enodeb, message []byte) {
	w.event = 0
	w.mme.counts.received.Inc()
	w.process(e, message)
	w.logReceived(e, message)
}

// process handles a message that has just arrived or was parked. It sets the worker's
// event.
func (w *worker) process(e *enodeb, message []byte) {
	w.message = message
	m, in := &w.s1, &w.in
	if err := m.Parse(message); err != nil {
		w.mme.counts.malformedS1AP.Inc()
		w.indicate(e, 0, s1ap.CauseTransferSyntax)
		return
	}
	switch err := in.parse(m); {
	case errors.Is(err, errUnknown):
		w.mme.counts.unexpected.Inc()
		if m.Criticality == s1ap.Reject {
			w.indicate(e, 0, s1ap.CauseAbstractSyntax)
		}
		return
	case err != nil:
		w.mme.counts.malformedS1AP.Inc()
		cause := s1ap.CauseTransferSyntax
		if errors.Is(err, errElement) {
			cause = s1ap.CauseAbstractSyntax
		}
		w.indicate(e, in.has&(hasMME|hasENB), cause)
		return
	}
	switch {
	case m.Procedure == s1ap.S1Setup:
		w.event = w.mme.config.Messages.Begin()
		w.setUp(e)
	case m.Procedure == s1ap.ErrorIndication:
		w.errorIndicated(e)
	case !e.up.Load():
		w.mme.counts.unexpected.Inc()
		w.indicate(e, in.has&(hasMME|hasENB), s1ap.CauseIncompatible)
	case m.Procedure == s1ap.Reset:
		w.resetRequested(e)
	case m.Procedure == s1ap.InitialUEMessage:
		w.happen()
		w.initial(e)
	case m.Procedure == s1ap.PathSwitchRequest:
		w.happen()
		w.pathSwitch(e)
	case m.Procedure == s1ap.ENBConfigurationUpdate:
		w.happen()
		w.reconfigure(e)
	default:
		w.handleUE(e)
	}
}

// handleUE handles a message about a UE that has a connection.
func (w *worker) handleUE(e *enodeb) {
	m, in := &w.s1, &w.in
	u := w.byID[in.mme]
	switch {
	case u == nil && m.Procedure == s1ap.UEContextRelease:
		return // for a connection that was released without a context, as by turnAway
	case u == nil:
		w.mme.counts.unexpected.Inc()
		w.indicate(e, in.has&(hasMME|hasENB), s1ap.CauseUnknownMMEUEID)
		return
	}
	w.event = u.event
	switch {
	case u.target == e && w.handleTarget(u, e):
		return
	case u.enb != e || in.has&hasENB != 0 && u.enbID != in.enb:
		if m.Procedure == s1ap.UEContextRelease {
			w.event = 0 // the message may belong to an earlier event, which only the eNodeB knows
			return      // the source of a handover, or a replaced connection, was released
		}
		w.mme.counts.unexpected.Inc()
		w.indicate(e, in.has&(hasMME|hasENB), s1ap.CauseUnknownPair)
		return
	}
	if in.has&hasTAI != 0 {
		u.tai = in.tai
	}
	if in.has&hasECGI != 0 {
		u.ecgi = in.ecgi
	}
	switch m.Procedure {
	case s1ap.UplinkNASTransport:
		w.uplink(u)
	case s1ap.InitialContextSetup:
		w.contextSetUp(u, m.Kind == s1ap.Successful)
	case s1ap.UEContextReleaseRequest:
		w.releaseRequest(u)
	case s1ap.UEContextRelease:
		w.released(u)
	case s1ap.UECapabilityIndication:
		u.keepCapability(in.radio)
	case s1ap.HandoverPreparation:
		w.handoverRequired(u)
	case s1ap.HandoverCancel:
		w.handoverCancel(u)
	case s1ap.ENBStatusTransfer:
		w.statusTransfer(u)
	case s1ap.ERABSetup:
		w.bearerSetUp(u)
	case s1ap.ERABRelease:
		w.bearerReleased(u, false)
	case s1ap.ERABReleaseIndication:
		w.bearersLost(u)
	case s1ap.NASNonDelivery: // the NAS timers retransmit what is needed
	default:
		w.mme.counts.unexpected.Inc()
	}
}

// maxRadio is the longest UE radio capability that is stored, in octets. Without a stored one, the eNodeB
// asks the UE.
const maxRadio = 1024

// keepCapability stores the UE's radio capability for the next Initial Context Setup. nil deletes it.
func (u *ue) keepCapability(radio []byte) {
	u.radio = u.radio[:0]
	if len(radio) <= maxRadio {
		u.radio = append(u.radio, radio...)
	}
}

// indicate sends an Error Indication (TS 36.413 clause 8.7.2). ids are the identifiers of
// the present message to include.
func (w *worker) indicate(e *enodeb, ids present, cause s1ap.Cause) {
	w.mme.counts.errorsSent.Inc()
	b := s1ap.AppendHeader(w.out[:0], s1ap.Initiating, s1ap.ErrorIndication, s1ap.Ignore)
	if ids&hasMME != 0 {
		b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, s1ap.Ignore, w.in.mme)
	}
	if ids&hasENB != 0 {
		b = s1ap.AppendENBUEID(b, s1ap.Ignore, w.in.enb)
	}
	w.finishCommon(e, s1ap.AppendCause(b, s1ap.Ignore, cause))
}

// about begins a message about a UE in the worker's buffer.
func (w *worker) about(u *ue, k s1ap.Kind, p s1ap.Procedure, c s1ap.Criticality) []byte {
	return w.aboutIDs(k, p, c, u.mmeID, u.enbID)
}

func (w *worker) aboutIDs(k s1ap.Kind, p s1ap.Procedure, c s1ap.Criticality, mmeID, enbID uint32) []byte {
	element := s1ap.Reject
	if k != s1ap.Initiating {
		element = s1ap.Ignore
	}
	b := s1ap.AppendHeader(w.out[:0], k, p, c)
	b = s1ap.AppendMMEUEID(b, s1ap.MMEUEID, element, mmeID)
	return s1ap.AppendENBUEID(b, element, enbID)
}

// finish ends a message that about began, and sends it.
func (w *worker) finish(e *enodeb, b []byte) {
	w.out = s1ap.End(b, 0)
	w.send(e, frame.UE, w.out)
}

// finishCommon is like finish, for a message about no UE.
func (w *worker) finishCommon(e *enodeb, b []byte) {
	w.out = s1ap.End(b, 0)
	w.send(e, frame.Common, w.out)
}

// download sends a NAS message to a UE.
func (w *worker) download(u *ue, s nas.Security, body []byte) {
	pdu := w.protect(u, s, body)
	b := w.about(u, s1ap.Initiating, s1ap.DownlinkNASTransport, s1ap.Ignore)
	w.finish(u.enb, s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Reject, pdu))
}

// ask sends a NAS message to a UE and sends it again until the UE answers.
func (w *worker) ask(u *ue, p phase, s nas.Security, body []byte) {
	u.phase, u.tries = p, retransmissions
	u.last, u.lastAs = append(u.last[:0], body...), s
	w.timers.set(u, w.now+w.mme.config.Timers.NAS)
	w.download(u, s, body)
}

// retransmissions is the number of times that a NAS message is sent again. The fifth expiry
// of the timer ends the procedure (TS 24.301 clause 10.2).
const retransmissions = 4
