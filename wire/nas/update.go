package nas

import "vitrine/wire/identity"

// An UpdateRequest is a Tracking Area Update Request (clause 8.2.29). Optional
// elements that have no field here are ignored, and are not appended.
type UpdateRequest struct {
	Update     uint8 // 0 TA, 1 combined TA/LA, 3 periodic (clause 9.9.3.14)
	Active     bool  // the active flag: bearers are wanted
	KSI        uint8
	GUTI       Identity // old GUTI
	HasNewGUTI bool
	NewGUTI    identity.GUTI // additional GUTI
	Capability []byte        // UE network capability
	HasLastTAI bool
	LastTAI    identity.TAI // last visited registered TAI
	DRX        []byte       // two octets
	NewRadio   bool         // UE radio capability information update needed (clause 9.9.3.35)
	Bearers    []byte       // EPS bearer context status: two octets (clause 9.9.2.1)
}

const active = 0x08

// Parse parses the body of a PDU.
func (m *UpdateRequest) Parse(body []byte) error {
	*m = UpdateRequest{}
	r, _ := openEMM(body, UpdateRequestType)
	first := r.octet()
	m.Update, m.Active, m.KSI = first&0x07, first&active != 0, first>>4
	m.GUTI = r.identity()
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0x50:
			m.NewGUTI, m.HasNewGUTI = optionalGUTI(v)
		case 0x58:
			m.Capability = v
		case 0x52:
			m.LastTAI, m.HasLastTAI = identity.ParseTAI(v)
		case 0x5c:
			m.DRX = v
		case 0xa0:
			m.NewRadio = v[0]&1 != 0
		case 0x57:
			m.Bearers = v
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *UpdateRequest) Append(b []byte) []byte {
	first := m.KSI<<4 | m.Update&0x07
	if m.Active {
		first |= active
	}
	b = m.GUTI.appendLV(append(appendEMM(b, UpdateRequestType), first))
	if m.HasNewGUTI {
		b = appendGUTI(b, m.NewGUTI)
	}
	b = appendTLV(b, 0x58, m.Capability)
	if m.HasLastTAI {
		b = m.LastTAI.Append(append(b, 0x52))
	}
	b = appendTV(b, 0x5c, m.DRX)
	if m.NewRadio {
		b = append(b, 0xa1)
	}
	return appendTLV(b, 0x57, m.Bearers)
}

// An UpdateAccept is a Tracking Area Update Accept (clause 8.2.26).
type UpdateAccept struct {
	Result   uint8  // 0 TA updated, 1 combined (clause 9.9.3.13)
	T3412    []byte // one octet: a Timer
	HasGUTI  bool
	GUTI     identity.GUTI
	TAIs     []byte // tracking area list (clause 9.9.3.33)
	Bearers  []byte // EPS bearer context status: two octets
	Cause    Cause  // 0 for none
	T3402    []byte // one octet: a Timer
	T3423    []byte // one octet: a Timer
	Features []byte // EPS network feature support
}

// Parse parses the body of a PDU.
func (m *UpdateAccept) Parse(body []byte) error {
	*m = UpdateAccept{}
	r, _ := openEMM(body, UpdateAcceptType)
	m.Result = r.octet() & 0x07
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0x5a:
			m.T3412 = v
		case 0x50:
			m.GUTI, m.HasGUTI = optionalGUTI(v)
		case 0x54:
			m.TAIs = v
		case 0x57:
			m.Bearers = v
		case 0x53:
			m.Cause = Cause(v[0])
		case 0x17:
			m.T3402 = v
		case 0x59:
			m.T3423 = v
		case 0x64:
			m.Features = v
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *UpdateAccept) Append(b []byte) []byte {
	b = append(appendEMM(b, UpdateAcceptType), m.Result&0x07)
	b = appendTV(b, 0x5a, m.T3412)
	if m.HasGUTI {
		b = appendGUTI(b, m.GUTI)
	}
	b = appendTLV(b, 0x54, m.TAIs)
	b = appendTLV(b, 0x57, m.Bearers)
	b = m.Cause.appendTV(b)
	b = appendTV(b, 0x17, m.T3402)
	b = appendTV(b, 0x59, m.T3423)
	return appendTLV(b, 0x64, m.Features)
}
