package s1ap

import "vitrine/wire/identity"

// AppendCapabilities appends the element SecurityCapabilities: one bit for each
// algorithm, with EEA1 and EIA1 in the highest bit (clause 9.2.1.40).
func AppendCapabilities(b []byte, c Criticality, ciphering, integrity uint16) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, SecurityCapabilities, c)}
	w.bits(0, 2)
	w.bits(uint32(ciphering), 17)
	w.bits(uint32(integrity), 17)
	return EndElement(w.b, start)
}

// ParseKey parses a SecurityKey: KeNB (clause 9.2.1.41).
func ParseKey(v []byte) (key [32]byte, ok bool) {
	if len(v) != len(key) {
		return key, false
	}
	return [32]byte(v), true
}

// ParseNextHop parses a SecurityContext: the next hop chaining counter, 0 to 7, and
// the next hop key (clause 9.2.1.26).
func ParseNextHop(v []byte) (counter uint8, key [32]byte, ok bool) {
	r := reader{b: v}
	p := r.sequence(1)
	counter = uint8(r.bits(3))
	copy(key[:], r.octets(len(key)))
	r.end(p)
	return counter, key, !r.bad
}

// AppendNextHop appends the element SecurityContext.
func AppendNextHop(b []byte, c Criticality, counter uint8, key [32]byte) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, SecurityContext, c)}
	w.bits(uint32(counter&7), 5)
	w.octets(key[:]...)
	return EndElement(w.b, start)
}

// ParseTarget parses a TargetID that is an eNodeB (clause 9.2.1.6). It returns
// false for targets of other systems.
func ParseTarget(v []byte) (e ENB, t identity.TAI, ok bool) {
	r := reader{b: v}
	if r.bits(3) != 0 { // the extension bit, and three alternatives
		return e, t, false
	}
	p := r.sequence(1)
	e, t = r.enb(), r.tai()
	r.end(p)
	return e, t, !r.bad
}

// AppendTarget appends the element TargetID for an eNodeB.
func AppendTarget(b []byte, c Criticality, e ENB, t identity.TAI) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, TargetID, c)}
	w.bits(0, 5)
	w.enb(e)
	w.tai(t)
	return EndElement(w.b, start)
}

// ParsePaged parses a UEPagingID: an S-TMSI, or the octets of an IMSI (clause
// 9.2.3.13).
func ParsePaged(v []byte) (s identity.STMSI, imsi []byte, ok bool) {
	r := reader{b: v}
	if r.bit() { // an alternative of the extension, which no version defines
		return s, nil, false
	}
	if !r.bit() {
		s = r.stmsi()
		return s, nil, !r.bad
	}
	n := int(r.bits(3)) + 3
	imsi = r.octets(n)
	return s, imsi, !r.bad && n <= 8
}

// AppendPaged appends the element UEPagingID with an S-TMSI.
func AppendPaged(b []byte, c Criticality, s identity.STMSI) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, UEPagingID, c)}
	w.bits(0, 2)
	w.stmsi(s)
	return EndElement(w.b, start)
}

// AppendIndex appends the element IdentityIndex: the IMSI modulo 1024 (clause 9.2.3.10).
func AppendIndex(b []byte, c Criticality, index uint16) []byte {
	start := len(b)
	w := writer{b: BeginElement(b, IdentityIndex, c)}
	w.bits(uint32(index), 10)
	return EndElement(w.b, start)
}
