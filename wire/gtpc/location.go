package gtpc

import "vitrine/wire/identity"

// A Location holds the parts of a user location information (clause 8.21) that
// an EPS uses: tracking area and cell. Other areas are skipped.
type Location struct {
	TAI     identity.TAI
	ECGI    identity.ECGI
	HasTAI  bool
	HasECGI bool
}

// The flags of a user location information, in the order of its areas, and the
// sizes of the areas (clauses 8.21.1 to 8.21.6).
const (
	hasCGI = 1 << iota
	hasSAI
	hasRAI
	hasTAI
	hasECGI

	areaSize = 7 // of CGI, SAI and RAI
)

// ParseLocation parses the value of a ULI.
func ParseLocation(v []byte) (l Location, ok bool) {
	if len(v) == 0 {
		return l, false
	}
	flags, at := v[0], 1
	for _, flag := range [...]byte{hasCGI, hasSAI, hasRAI} {
		if flags&flag != 0 {
			at += areaSize
		}
	}
	if flags&hasTAI != 0 {
		if len(v) < at+identity.TAISize {
			return Location{}, false
		}
		l.TAI, l.HasTAI = identity.ParseTAI(v[at : at+identity.TAISize])
		at += identity.TAISize
	}
	if flags&hasECGI != 0 {
		if len(v) < at+identity.ECGISize {
			return Location{}, false
		}
		l.ECGI, l.HasECGI = identity.ParseECGI(v[at : at+identity.ECGISize])
		at += identity.ECGISize
	}
	return l, len(v) >= at
}

// AppendLocation appends a ULI.
func AppendLocation(b []byte, l Location) []byte {
	start := len(b)
	var flags byte
	if l.HasTAI {
		flags |= hasTAI
	}
	if l.HasECGI {
		flags |= hasECGI
	}
	b = append(BeginGroup(b, ULI, 0), flags)
	if l.HasTAI {
		b = l.TAI.Append(b)
	}
	if l.HasECGI {
		b = l.ECGI.Append(b)
	}
	return EndGroup(b, start)
}

// Flags are the first four octets of an Indication (clause 8.12): the highest bit
// is the highest of the first octet.
type Flags uint32

// Some flags of an Indication.
const (
	DualAddress   Flags = 1 << 31 // DAF: dual address bearer
	Operation     Flags = 1 << 27 // OI: the S-GW passes a Delete Session on to the P-GW
	ScopeOfSGW    Flags = 1 << 24 // SGWCI: the S-GW changes
	ChangeReports Flags = 1 << 20 // CRSI
)

// ParseFlags parses the value of an Indication: at least two octets. Further
// octets are optional. Octets after the fourth are ignored.
func ParseFlags(v []byte) (f Flags, ok bool) {
	if len(v) < 2 {
		return 0, false
	}
	for i := range 4 {
		f <<= 8
		if i < len(v) {
			f |= Flags(v[i])
		}
	}
	return f, true
}

// AppendFlags appends an Indication of four octets.
func AppendFlags(b []byte, f Flags) []byte {
	return AppendElement(b, Indication, 0, byte(f>>24), byte(f>>16), byte(f>>8), byte(f))
}

// A Restart is a restart counter (clause 8.5).
type Restart struct {
	Given   bool
	Counter uint8
}
