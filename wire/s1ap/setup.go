package s1ap

import "vitrine/wire/identity"

// Areas iterates over supported tracking areas (clause 9.1.8.4). TAC and PLMNs
// belong to the area that Next reached.
type Areas struct {
	TAC   uint16
	PLMNs []byte // broadcast PLMNs: three octets each
	Err   error  // ErrLength if Next stopped before the end

	r    reader
	left int
}

// ParseAreas returns an iterator over the value of SupportedTAs.
func ParseAreas(v []byte) Areas {
	a := Areas{r: reader{b: v}}
	a.left = int(a.r.octet()) + 1
	return a
}

// Next moves to the next area and reports whether there is one.
func (a *Areas) Next() bool {
	if a.left == 0 || a.Err != nil {
		return false
	}
	p := a.r.sequence(1)
	a.TAC = uint16(a.r.bits(16))
	n := int(a.r.bits(3)) + 1
	a.PLMNs = a.r.octets(3 * n)
	a.r.end(p)
	if a.r.bad || n > 6 {
		a.Err = ErrLength
		return false
	}
	a.left--
	return true
}

// AppendAreas appends the element SupportedTAs with one PLMN for each area, of 1
// to 256 areas.
func AppendAreas(b []byte, c Criticality, areas ...identity.TAI) []byte {
	start := len(b)
	w := writer{b: BeginList(b, SupportedTAs, c, len(areas))}
	for _, a := range areas {
		w.bits(0, 2)
		w.bits(uint32(a.TAC), 16)
		w.bits(0, 3)
		w.octets(a.PLMN[:]...)
	}
	return EndElement(w.b, start)
}

// AppendServed appends the element ServedGUMMEIs (clause 9.1.8.5) for one MME group of
// one PLMN, with 1 to 256 MME codes: one of an MME, several of a pool of MMEs.
func AppendServed(b []byte, c Criticality, p identity.PLMN, group uint16, codes ...byte) []byte {
	if len(codes) < 1 || len(codes) > 256 {
		panic("s1ap: a group has 1 to 256 MME codes")
	}
	start := len(b)
	w := writer{b: BeginElement(b, ServedGUMMEIs, c)}
	w.bits(0, 3+7) // one item; its preamble, and one PLMN
	w.octets(p[:]...)
	w.octets(0, 0, byte(group>>8), byte(group), byte(len(codes)-1))
	w.octets(codes...)
	return EndElement(w.b, start)
}

// AppendName appends the element ENBName or MMEName: 1 to 150 printable characters
// (clauses 9.1.8.4 and 9.1.8.5).
func AppendName(b []byte, id ID, c Criticality, name string) []byte {
	if len(name) < 1 || len(name) > 150 {
		panic("s1ap: a name has 1 to 150 characters")
	}
	start := len(b)
	w := writer{b: BeginElement(b, id, c)}
	w.bits(uint32(len(name)-1), 9)
	w.octets()
	w.b = append(w.b, name...)
	return EndElement(w.b, start)
}

// An enumeration has the bits and the number of root values, and whether it is
// extensible.
func (id ID) enumeration() (bits int, root uint8, extensible, ok bool) {
	switch id {
	case PagingDRX, DefaultPagingDRX: // v32, v64, v128, v256
		return 2, 4, true, true
	case EstablishmentCause: // emergency, high priority, mt access, mo signalling, mo data
		return 3, 5, true, true
	case HandoverType: // within LTE, LTE to UTRAN, LTE to GERAN, UTRAN to LTE, GERAN to LTE
		return 3, 5, true, true
	case TimeToWait: // 1, 2, 5, 10, 20, 60 s
		return 3, 6, true, true
	case CNDomain: // ps, cs
		return 1, 2, false, true
	}
	return 0, 0, false, false
}

// ParseEnum parses an enumeration: PagingDRX, DefaultPagingDRX,
// EstablishmentCause, HandoverType, TimeToWait or CNDomain. The value counts from
// zero, in the order of clause 9.2. It returns false for other elements.
func ParseEnum(id ID, v []byte) (uint8, bool) {
	bits, root, extensible, ok := id.enumeration()
	if !ok {
		return 0, false
	}
	r := reader{b: v}
	if !extensible {
		value := uint8(r.bits(bits))
		return value, !r.bad
	}
	value := r.enumerated(bits, root)
	return value, !r.bad
}

// AppendEnum appends an enumeration. It panics for other elements.
func AppendEnum(b []byte, id ID, c Criticality, value uint8) []byte {
	bits, root, extensible, ok := id.enumeration()
	if !ok {
		panic("s1ap: not an enumeration")
	}
	start := len(b)
	w := writer{b: BeginElement(b, id, c)}
	if extensible {
		w.enumerated(value, bits, root)
	} else {
		w.bits(uint32(value), bits)
	}
	return EndElement(w.b, start)
}
