package nas

import "vitrine/wire/identity"

// An Empty is an EMM message with only a header: Detach Accept, Tracking Area
// Update Complete, GUTI Reallocation Complete or Authentication Reject (clauses
// 8.2.10, 8.2.27, 8.2.17, 8.2.6).
type Empty struct {
	Type Type
}

// Parse parses the body of a PDU.
func (m *Empty) Parse(body []byte) error {
	r, t := openEMM(body, DetachAcceptType, UpdateCompleteType, ReallocationCompleteType, AuthenticationRejectType)
	*m = Empty{Type: t}
	for iei, _, ok := r.element(); ok; iei, _, ok = r.element() {
		r.skip(iei)
	}
	return r.err
}

// Append appends the message.
func (m *Empty) Append(b []byte) []byte { return appendEMM(b, m.Type) }

// A ReallocationCommand is a GUTI Reallocation Command (clause 8.2.16).
type ReallocationCommand struct {
	GUTI identity.GUTI
	TAIs []byte // tracking area list (clause 9.9.3.33)
}

// Parse parses the body of a PDU.
func (m *ReallocationCommand) Parse(body []byte) error {
	r, _ := openEMM(body, ReallocationCommandType)
	id := r.identity()
	if r.err == nil && id.Kind != KindGUTI {
		r.fail(ErrValue)
	}
	*m = ReallocationCommand{GUTI: id.GUTI}
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		if iei == 0x54 {
			m.TAIs = v
			continue
		}
		r.skip(iei)
	}
	return r.err
}

// Append appends the message.
func (m *ReallocationCommand) Append(b []byte) []byte {
	id := Identity{Kind: KindGUTI, GUTI: m.GUTI}
	return appendTLV(id.appendLV(appendEMM(b, ReallocationCommandType)), 0x54, m.TAIs)
}
