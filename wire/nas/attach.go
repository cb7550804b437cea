package nas

import "vitrine/wire/identity"

// An AttachRequest asks for registration (clause 8.2.4). Optional elements that
// have no field here are ignored, and are not appended.
type AttachRequest struct {
	Attach        uint8 // EPS attach type: 1 EPS, 2 combined, 6 emergency (clause 9.9.3.11)
	KSI           uint8 // key set identifier, 7 for no key (clause 9.9.3.21)
	Identity      Identity
	Capability    []byte // UE network capability: EEA in the first octet, EIA in the second (clause 9.9.3.34)
	ESM           []byte // an ESM message, mostly PDN Connectivity Request
	HasGUTI       bool
	GUTI          identity.GUTI // additional GUTI
	HasLastTAI    bool
	LastTAI       identity.TAI // last visited registered TAI
	DRX           []byte       // two octets (TS 24.008 clause 10.5.5.6)
	MSCapability  []byte       // MS network capability (TS 24.008 clause 10.5.5.12)
	VoiceDomain   []byte       // voice domain preference (TS 24.008 clause 10.5.5.28)
	OldGUTIMapped bool         // old GUTI type: mapped from a P-TMSI (TS 24.301 clause 9.9.3.45)
	HasGUTIType   bool         // OldGUTIMapped is valid
}

// Parse parses the body of a PDU.
func (m *AttachRequest) Parse(body []byte) error {
	*m = AttachRequest{}
	r, _ := openEMM(body, AttachRequestType)
	first := r.octet()
	m.Attach, m.KSI = first&0x07, first>>4
	m.Identity = r.identity()
	m.Capability = r.lv(2, 13)
	m.ESM = r.lve()
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0x50:
			m.GUTI, m.HasGUTI = optionalGUTI(v)
		case 0x52:
			m.LastTAI, m.HasLastTAI = identity.ParseTAI(v)
		case 0x5c:
			m.DRX = v
		case 0x31:
			m.MSCapability = v
		case 0x5d:
			m.VoiceDomain = v
		case 0xe0:
			m.HasGUTIType, m.OldGUTIMapped = true, v[0]&1 != 0
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *AttachRequest) Append(b []byte) []byte {
	b = append(appendEMM(b, AttachRequestType), m.KSI<<4|m.Attach&0x07)
	b = m.Identity.appendLV(b)
	b = appendLV(b, m.Capability)
	b = appendLVE(b, m.ESM)
	if m.HasGUTI {
		b = appendGUTI(b, m.GUTI)
	}
	if m.HasLastTAI {
		b = m.LastTAI.Append(append(b, 0x52))
	}
	b = appendTV(b, 0x5c, m.DRX)
	b = appendTLV(b, 0x31, m.MSCapability)
	b = appendTLV(b, 0x5d, m.VoiceDomain)
	return m.appendGUTIType(b)
}

func (m *AttachRequest) appendGUTIType(b []byte) []byte {
	switch {
	case !m.HasGUTIType:
		return b
	case m.OldGUTIMapped:
		return append(b, 0xe1)
	}
	return append(b, 0xe0)
}

// An AttachAccept is the network's acceptance of an attach (clause 8.2.1).
type AttachAccept struct {
	Result        uint8  // 1 EPS only, 2 combined (clause 9.9.3.10)
	T3412         Timer  // periodic tracking area update
	TAIs          []byte // tracking area list (clause 9.9.3.33)
	ESM           []byte // Activate Default EPS Bearer Context Request
	HasGUTI       bool
	GUTI          identity.GUTI
	Cause         Cause  // 0 for none
	T3402         []byte // one octet: a Timer
	T3423         []byte // one octet: a Timer
	Equivalents   []byte // equivalent PLMNs: three octets each
	Features      []byte // EPS network feature support (clause 9.9.3.12A)
	ExtendedT3412 []byte // GPRS timer 3 (TS 24.008 clause 10.5.7.4a)
}

// Parse parses the body of a PDU.
func (m *AttachAccept) Parse(body []byte) error {
	*m = AttachAccept{}
	r, _ := openEMM(body, AttachAcceptType)
	m.Result = r.octet() & 0x07
	m.T3412 = Timer(r.octet())
	m.TAIs = r.lv(6, 96)
	m.ESM = r.lve()
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0x50:
			m.GUTI, m.HasGUTI = optionalGUTI(v)
		case 0x53:
			m.Cause = Cause(v[0])
		case 0x17:
			m.T3402 = v
		case 0x59:
			m.T3423 = v
		case 0x4a:
			m.Equivalents = v
		case 0x64:
			m.Features = v
		case 0x5e:
			m.ExtendedT3412 = v
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *AttachAccept) Append(b []byte) []byte {
	b = append(appendEMM(b, AttachAcceptType), m.Result&0x07, byte(m.T3412))
	b = appendLV(b, m.TAIs)
	b = appendLVE(b, m.ESM)
	if m.HasGUTI {
		b = appendGUTI(b, m.GUTI)
	}
	b = m.Cause.appendTV(b)
	b = appendTV(b, 0x17, m.T3402)
	b = appendTV(b, 0x59, m.T3423)
	b = appendTLV(b, 0x4a, m.Equivalents)
	b = appendTLV(b, 0x64, m.Features)
	return appendTLV(b, 0x5e, m.ExtendedT3412)
}

// An AttachComplete is the UE's end of an attach (clause 8.2.2).
type AttachComplete struct {
	ESM []byte // Activate Default EPS Bearer Context Accept
}

// Parse parses the body of a PDU.
func (m *AttachComplete) Parse(body []byte) error {
	r, _ := openEMM(body, AttachCompleteType)
	*m = AttachComplete{ESM: r.lve()}
	return r.err
}

// Append appends the message.
func (m *AttachComplete) Append(b []byte) []byte {
	return appendLVE(appendEMM(b, AttachCompleteType), m.ESM)
}

// A Reject refuses an attach, a tracking area update or a service request
// (clauses 8.2.3, 8.2.28, 8.2.24).
type Reject struct {
	Type  Type // AttachRejectType, UpdateRejectType or ServiceRejectType
	Cause Cause
	ESM   []byte // Attach Reject only: PDN Connectivity Reject
	T3346 []byte // back-off: one octet, a Timer
}

// Parse parses the body of a PDU.
func (m *Reject) Parse(body []byte) error {
	r, t := openEMM(body, AttachRejectType, UpdateRejectType, ServiceRejectType)
	*m = Reject{Type: t, Cause: Cause(r.octet())}
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		switch iei {
		case 0x78:
			m.ESM = v
		case 0x5f:
			m.T3346 = v
		default:
			r.skip(iei)
		}
	}
	return r.err
}

// Append appends the message.
func (m *Reject) Append(b []byte) []byte {
	b = append(appendEMM(b, m.Type), byte(m.Cause))
	return appendTLV(appendTLVE(b, 0x78, m.ESM), 0x5f, m.T3346)
}
