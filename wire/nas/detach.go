package nas

// A DetachRequest is a Detach Request of a UE (clause 8.2.11.1). The network's
// Detach Request is a NetworkDetach. Both have the same type and differ only by
// direction.
type DetachRequest struct {
	Detach    uint8 // 1 EPS, 2 IMSI, 3 combined (clause 9.9.3.7)
	SwitchOff bool  // no answer is expected
	KSI       uint8 // key set identifier
	Identity  Identity
}

const switchOff = 0x08

// Parse parses the body of a PDU that a UE sent.
func (m *DetachRequest) Parse(body []byte) error {
	r, _ := openEMM(body, DetachRequestType)
	first := r.octet()
	*m = DetachRequest{Detach: first & 0x07, SwitchOff: first&switchOff != 0, KSI: first >> 4}
	m.Identity = r.identity()
	return r.err
}

// Append appends the message.
func (m *DetachRequest) Append(b []byte) []byte {
	first := m.KSI<<4 | m.Detach&0x07
	if m.SwitchOff {
		first |= switchOff
	}
	return m.Identity.appendLV(append(appendEMM(b, DetachRequestType), first))
}

// A NetworkDetach is a Detach Request of the network (clause 8.2.11.2).
type NetworkDetach struct {
	Detach uint8 // 1 re-attach required, 2 not required, 3 IMSI detach (clause 9.9.3.7)
	Cause  Cause // 0 for none
}

// Parse parses the body of a PDU that an MME sent.
func (m *NetworkDetach) Parse(body []byte) error {
	r, _ := openEMM(body, DetachRequestType)
	*m = NetworkDetach{Detach: r.octet() & 0x07}
	for iei, v, ok := r.element(); ok; iei, v, ok = r.element() {
		if iei == 0x53 {
			m.Cause = Cause(v[0])
			continue
		}
		r.skip(iei)
	}
	return r.err
}

// Append appends the message.
func (m *NetworkDetach) Append(b []byte) []byte {
	return m.Cause.appendTV(append(appendEMM(b, DetachRequestType), m.Detach&0x07))
}
