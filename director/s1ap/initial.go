package s1ap

import (
	"vitrine/director/table"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
)

// An asker has the facts about a UE in its Initial UE Message.
type asker struct {
	kind kind
	// number is the number of the UE's instance, from its S-TMSI or GUTI; 0: unknown.
	number uint8
	// key is the steering key of the UE, from its S-TMSI, GUTI, IMSI or IMEI.
	key      uint64
	identity string // kind of identity that key is made from, for Explain; empty: no identity
}

// ask reads the asker of an Initial UE Message. The S-TMSI comes from the eNodeB (TS 36.413
// clause 9.1.7.1), other identities from NAS. An S-TMSI does not name its pool, but an eNodeB
// that has only this pool sends no S-TMSI of another one. A GUTI names its pool.
func (t *turn) ask() (a asker) {
	in := &t.in
	pool := &t.policy.Pool
	var id nas.Identity
	a.kind, id = t.initialNAS(in.nas)
	switch {
	case in.has&hasSTMSI != 0:
		a.number, a.key, a.identity = in.stmsi.Code, keyOfSTMSI(in.stmsi), "S-TMSI"
	case id.Kind == nas.KindGUTI:
		a.key, a.identity = keyOfSTMSI(id.GUTI.STMSI()), "GUTI"
		if id.GUTI.PLMN == pool.PLMN && id.GUTI.Group == pool.Group {
			a.number = id.GUTI.Code
		}
	case id.Digits.Len() > 0:
		a.key, a.identity = table.Key(id.Digits.Bytes()), "IMSI"
		if id.Kind != nas.KindIMSI {
			a.identity = "IMEI"
		}
	}
	return a
}

// initialNAS returns the kind of an initial NAS message, and the identity in it. Initial NAS
// messages are not ciphered (TS 24.301 clause 4.4.5).
func (t *turn) initialNAS(message []byte) (kind, nas.Identity) {
	p := &t.pdu
	if p.Parse(message) != nil {
		return other, nas.Identity{}
	}
	if p.Security == nas.ServiceRequestHeader {
		return service, nas.Identity{}
	}
	h, err := nas.ParseHeader(p.Body)
	if err != nil || h.Discriminator != nas.EMM {
		return other, nas.Identity{}
	}
	switch h.Type {
	case nas.AttachRequestType:
		if t.attach.Parse(p.Body) == nil {
			return attach, t.attach.Identity
		}
		return attach, nas.Identity{}
	case nas.DetachRequestType:
		if t.detach.Parse(p.Body) == nil {
			return detach, t.detach.Identity
		}
		return detach, nas.Identity{}
	case nas.UpdateRequestType:
		if t.update.Parse(p.Body) == nil {
			return update, t.update.GUTI
		}
		return update, nas.Identity{}
	case nas.ExtendedServiceRequestType:
		return extendedService, nas.Identity{}
	}
	return other, nas.Identity{}
}

// keyOfSTMSI returns the steering key of an S-TMSI.
func keyOfSTMSI(s identity.STMSI) uint64 {
	b := [5]byte{s.Code, byte(s.TMSI >> 24), byte(s.TMSI >> 16), byte(s.TMSI >> 8), byte(s.TMSI)}
	return table.Key(b[:])
}

// reject returns the NAS reject for a kind of message; ok is false if NAS has none. The cause
// is congestion without T3346, so that the UE tries again soon (TS 24.301 clauses 5.5.1.2.5,
// 5.5.3.2.5 and 5.6.1.5).
func (k kind) reject() (m nas.Reject, ok bool) {
	m = nas.Reject{Cause: nas.CauseCongestion}
	switch k {
	case attach:
		m.Type = nas.AttachRejectType
	case update:
		m.Type = nas.UpdateRejectType
	case service, extendedService:
		m.Type = nas.ServiceRejectType
	default:
		return m, false
	}
	return m, true
}
