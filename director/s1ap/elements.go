package s1ap

import (
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// present is a set of information elements.
type present uint16

const (
	hasMME present = 1 << iota
	hasENB
	hasSource
	hasNAS
	hasSTMSI
	hasCause
	hasReset
	hasENodeB
	hasAreas
	hasReason
)

// elements has the information elements that the director uses. Slices alias the message.
type elements struct {
	has              present
	count            int // number of all elements in the message
	mme, enb, source uint32
	nas              []byte
	stmsi            identity.STMSI
	cause            s1ap.Cause
	reset            []byte
	enodeb           s1ap.ENB
	areas            []byte
	reason           reason
}

// isUrgent reports whether a UE connects for an emergency call or has high priority. Congestion control
// does not apply to such UEs (TS 24.301 clause 5.3.9, TS 23.401 clause 4.3.7.4.2.1). The eNodeB says so.
func (e *elements) isUrgent() bool { return e.reason == emergency || e.reason == highPriority }

// parse reads the elements of a message. If it fails, it returns the cause to send. A repeated
// element is an error, because director and instance might use different copies. So is a long message
// that names no UE, because the director keeps some of those.
func (e *elements) parse(m *s1ap.Message) (cause s1ap.Cause, ok bool) {
	*e = elements{}
	it := m.Elements()
	for it.Next() {
		which, sound := e.element(it.ID, it.Value)
		if !sound || e.has&which != 0 {
			return s1ap.CauseAbstractSyntax, false
		}
		e.has |= which
		e.count++
	}
	switch {
	case it.Err != nil:
		return s1ap.CauseTransferSyntax, false
	case len(m.Octets) > shortMessage && e.has&bothIDs == 0:
		return s1ap.CauseAbstractSyntax, false
	}
	return s1ap.Cause{}, true
}

func (e *elements) element(id s1ap.ID, v []byte) (which present, ok bool) {
	switch id {
	case s1ap.MMEUEID:
		e.mme, ok = s1ap.ParseMMEUEID(v)
		return hasMME, ok
	case s1ap.ENBUEID:
		e.enb, ok = s1ap.ParseENBUEID(v)
		return hasENB, ok
	case s1ap.UEIDs:
		mme, enb, pair, sound := s1ap.ParseUEIDs(v)
		e.mme = mme
		if !pair { // e.enb may be that of an ENBUEID
			return hasMME, sound
		}
		e.enb = enb
		return hasMME | hasENB, sound
	case s1ap.SourceMMEUEID:
		e.source, ok = s1ap.ParseMMEUEID(v)
		return hasSource, ok
	case s1ap.NASPDU:
		e.nas, ok = s1ap.ParseNAS(v)
		return hasNAS, ok
	case s1ap.STMSI:
		e.stmsi, ok = s1ap.ParseSTMSI(v)
		return hasSTMSI, ok
	case s1ap.CauseID:
		e.cause, ok = s1ap.ParseCause(v)
		if !ok { // a cause of a later version of S1AP
			return 0, true
		}
		return hasCause, true
	case s1ap.ResetType:
		e.reset = v
		return hasReset, true
	case s1ap.GlobalENBID:
		e.enodeb, ok = s1ap.ParseENB(v)
		return hasENodeB, ok
	case s1ap.EstablishmentCause:
		v, sound := s1ap.ParseEnum(id, v)
		if e.reason = reason(v) + 1; !sound || int(e.reason) >= len(causes) { // a cause of a later version of S1AP
			e.reason = unknown
		}
		return hasReason, true
	case s1ap.SupportedTAs:
		e.areas = v
		return hasAreas, true
	}
	return 0, true
}

// unknownUE reports whether an Error Indication says that its sender does not know the connection.
func (e *elements) unknownUE() bool {
	return e.has&hasCause != 0 && (e.cause == s1ap.CauseUnknownENBUEID || e.cause == s1ap.CauseUnknownMMEUEID || e.cause == s1ap.CauseUnknownPair)
}

// serves reports whether a tracking area of the eNodeB is in the pool's PLMN, and whether the
// list of areas is well-formed.
func (p *Pool) serves(areas []byte) (served, sound bool) {
	it := s1ap.ParseAreas(areas)
	for it.Next() {
		for rest := it.PLMNs; len(rest) >= 3; rest = rest[3:] {
			served = served || identity.PLMN(rest[:3]) == p.PLMN
		}
	}
	return served, it.Err == nil
}

// rejection returns the cause of a NAS message that rejects a UE's first message. It only
// recognizes cleartext rejects, which UEs without keys get. It cannot recognize a ciphered
// reject.
func (t *turn) rejection(message []byte) (cause nas.Cause, ok bool) {
	if t.pdu.Parse(message) != nil || t.pdu.Security != nas.Plain {
		return 0, false
	}
	if t.rejected.Parse(t.pdu.Body) != nil {
		return 0, false
	}
	return t.rejected.Cause, true
}
