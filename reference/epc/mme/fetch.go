package mme

import (
	"errors"
	"time"

	"vitrine/internal/truth"
	"vitrine/reference/keep"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// With a store, an MME has contexts only for UEs that are connected or being paged. The
// first message of a connection is parked while the MME reads the UE's context from the
// store, verifies the message, and claims the record by a write. Then the MME handles
// the message as it does without a store.

// A parked is a message that waits for its UE.
type parked struct {
	enodeb *enodeb // nil: no message waits
	octets []byte
	began  time.Time
	event  truth.Event
	again  bool // the context was read a second time, because the record had changed

	verified bool // the message's integrity was verified, and it is deciphered
}

// fetch gets the context for the present message, unless the message names none. It
// returns true if the message was parked or refused.
func (w *worker) fetch(e *enodeb) bool {
	s, ok := w.named()
	if !ok {
		return false
	}
	u := w.byTMSI[s]
	switch {
	case u == nil:
		if u = w.emptyContext(s); u == nil {
			w.turnDown(e)
			return true
		}
		u.event = w.event
		w.park(u, e)
		w.load(u)
	case u.phase == fetching:
		w.turnDown(e)
	case !u.free() || !w.verify(u): // dispatch refuses the message
		return false
	default:
		u.verified = true
		w.leaveConnection(u)
		u.event = w.event
		w.park(u, e)
		w.claim(u)
	}
	return true
}

// named returns the S-TMSI in the present message, if it belongs to this MME group.
func (w *worker) named() (identity.STMSI, bool) {
	if w.pdu.Security == nas.ServiceRequestHeader {
		return w.in.stmsi, w.in.has&hasSTMSI != 0
	}
	g, ok := gutiOf(&w.pdu)
	of := w.mme.config.GUMMEI
	return g.STMSI(), ok && g.PLMN == of.PLMN && g.Group == of.Group
}

// emptyContext returns an empty context for one that load will read. It returns nil if
// there are too many contexts or the store does not answer.
func (w *worker) emptyContext(s identity.STMSI) *ue {
	if !w.mme.config.Store.Ready() {
		return nil
	}
	u := w.newUE()
	if u != nil {
		u.stmsi, u.hasTMSI = s, true
		w.byTMSI[s] = u
	}
	return u
}

// park stores the present message until its UE's context is there.
func (w *worker) park(u *ue, e *enodeb) {
	u.parked = parked{enodeb: e, octets: append(u.parked.octets[:0], w.message...), began: w.arrived, event: w.event}
}

// load reads a context.
func (w *worker) load(u *ue) {
	u.phase = fetching
	j := w.job(u, callLoad)
	j.stmsi = u.stmsi
	w.submit(j)
}

// claim writes the record of a UE that begins a transaction, so that no other MME can.
func (w *worker) claim(u *ue) {
	u.phase = fetching
	w.save(u, callClaim, reserve)
}

// save writes the record of a context. skip is the number of downlink NAS COUNTs that
// the record skips; see reserve.
func (w *worker) save(u *ue, what call, skip uint32) {
	j := w.job(u, what)
	j.kept = w.snapshot(u, skip)
	w.submit(j)
}

// loaded continues after a read of a context, whether the store has a record or not.
func (w *worker) loaded(u *ue, j *job) {
	err := j.err
	if err == nil && j.kept != nil {
		err = w.restore(u, j.kept, j.tag)
	}
	switch {
	case err != nil:
		w.mme.config.Log.Debug("the context of a UE was not read", "error", err)
		w.handleParked(u, unavailable)
	case j.kept == nil:
		w.handleParked(u, absent)
	case u.parked.enodeb == nil:
		w.hold(u)
		u.phase = registered
		w.summoned(u)
	default:
		w.hold(u)
		w.unpark(u)
		if !w.verify(u) {
			w.handleParked(u, absent)
			return
		}
		u.verified, u.tai, u.ecgi = true, w.in.tai, w.in.ecgi
		w.claim(u)
	}
}

// A found is the result of the search for a parked message's context.
type found uint8

const (
	claimed     found = iota
	absent            // there is no record, or the message is not from its UE
	unavailable       // the store does not answer
)

// unpark makes the UE's parked message the present one.
func (w *worker) unpark(u *ue) {
	w.waited = append(w.waited[:0], u.parked.octets...)
	w.message, w.arrived = w.waited, u.parked.began
	// The message was parsed before it was parked.
	_ = w.s1.Parse(w.message)
	_ = w.in.parse(&w.s1)
	_ = w.pdu.Parse(w.in.nas)
}

// handleParked handles the UE's parked message. Afterwards it evicts the context, unless
// the context was claimed and the message has put it to use.
func (w *worker) handleParked(u *ue, f found) {
	e, serial := u.parked.enodeb, u.serial
	if e != nil {
		w.unpark(u)
	}
	u.parked.enodeb, u.parked.again = nil, false
	if f == claimed {
		u.phase = registered
	} else {
		w.evict(u)
	}
	switch {
	case e == nil || e.perWork[w.number].lost: // nobody waits for an answer
	case f == unavailable:
		w.turnDown(e)
	default:
		w.dispatch(e)
	}
	if f != claimed || u.serial != serial || u.gone {
		return
	}
	u.moved = false
	if !u.busy && u.enb == nil {
		w.evict(u)
	}
}

// saved continues after a write of a record, successful or not.
func (w *worker) saved(u *ue, j *job) {
	if j.err == nil {
		u.keep(j.kept, j.tag)
	}
	changed := errors.Is(j.err, keep.ErrChanged)
	switch {
	case u.phase == fetching && j.err == nil:
		w.handleParked(u, claimed)
	case u.phase == fetching && changed && !u.parked.again: // another MME has the UE, or had it
		w.fetchAgain(u)
	case u.phase == fetching:
		w.handleParked(u, unavailable)
	case changed: // another MME has the UE
		w.evict(u)
	case u.phase == idling: // even if the store does not answer: the last claim's record is good enough
		w.call(u, callRelease)
	}
}

// refresh writes the record of a connected UE again if a NAS COUNT has moved more than
// maxDrift.
func (w *worker) refresh(u *ue) {
	if u.stored && !u.busy && (u.up > u.keptUp+maxDrift || u.down+reserve > u.keptDown+maxDrift) {
		w.save(u, callKeep, reserve)
	}
}

// fetchAgain reads the context of a parked message a second time.
func (w *worker) fetchAgain(u *ue) {
	w.unpark(u) // for turnDown, if there is no room
	was, s := u.parked, u.stmsi
	was.octets = append([]byte(nil), was.octets...)
	w.evict(u)
	if u = w.emptyContext(s); u == nil {
		w.turnDown(was.enodeb)
		return
	}
	was.again = true
	u.parked = was
	w.load(u)
}

// evict removes a context from this MME only. The UE's record, session and location
// stay, because they belong to another MME or the UE is idle.
func (w *worker) evict(u *ue) {
	u.stored, u.hasSession, u.subscribed = false, false, false
	w.discard(u, s1ap.CauseNormalRelease)
}

// turnDown refuses the present initial message, because its UE's context cannot be used
// now. A Detach Request has no reject message, so the UE sends it again (TS 24.301
// clause 5.5.2.2.6).
func (w *worker) turnDown(e *enodeb) {
	if e == nil || e.perWork[w.number].lost {
		return
	}
	w.mme.counts.turnedDown.Inc()
	if w.pdu.Security == nas.ServiceRequestHeader {
		w.refuse(e, service, congested, nas.Reject{Type: nas.ServiceRejectType, Cause: nas.CauseCongestion})
		return
	}
	h, _ := nas.ParseHeader(w.pdu.Body) // gutiOf has parsed it
	switch h.Type {
	case nas.AttachRequestType:
		w.congestion(e)
	case nas.UpdateRequestType:
		w.refuse(e, update, congested, nas.Reject{Type: nas.UpdateRejectType, Cause: nas.CauseCongestion})
	default:
		w.mme.counts.procedures[detach][congested].Inc()
		w.releaseIDs(e, w.newID(), w.in.enb, s1ap.CauseNormalRelease)
	}
}

// summon gets the context of a UE that is to be paged or changed, or whose record's
// timer has expired.
func (w *worker) summon(h order) {
	u := w.byTMSI[h.stmsi]
	if u == nil {
		if u = w.emptyContext(h.stmsi); u != nil {
			u.imsi, u.summons, u.change = h.imsi, h.page, h.change
			w.load(u)
		} else if h.change != nil {
			h.change.done <- changed{err: errNoContext}
		}
		return
	}
	switch {
	case h.change != nil:
		w.want(u, h.change)
	case h.page:
		w.page(u)
	case u.enb != nil && u.ready(): // the UE was connected all the time: renew the record
		w.save(u, callKeep, reserve)
	}
}

// summoned continues an order once the UE's context was read. It changes the UE's
// bearers, pages the UE, or detaches it if it was silent for too long.
func (w *worker) summoned(u *ue) {
	switch {
	case u.change != nil:
		w.pursue(u)
	case u.summons:
		w.page(u)
	case w.mme.config.Store.Now().Before(u.due): // the UE was heard in the meantime
		w.evict(u)
	default:
		w.renew(u)
		w.detachSilently(u)
	}
}
