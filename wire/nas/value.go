package nas

import (
	"encoding/binary"
	"net/netip"
	"time"

	"vitrine/wire/identity"
)

// A Timer is the value of a GPRS timer (TS 24.008 clause 10.5.7.3): three bits of
// unit and five bits of count.
type Timer uint8

// Deactivated is the Timer that never runs.
const Deactivated Timer = 0xe0

// MakeTimer returns the longest Timer that does not exceed a duration: up to 31
// units of 2 s, of a minute or of six minutes.
func MakeTimer(d time.Duration) Timer {
	switch {
	case d < 0:
		return 0
	case d < 2*time.Minute:
		return Timer(min(d/(2*time.Second), 31))
	case d < 36*time.Minute:
		return 1<<5 | Timer(min(d/time.Minute, 31))
	}
	return 2<<5 | Timer(min(d/(6*time.Minute), 31))
}

// Duration returns how long the timer runs. It returns false if the timer is
// deactivated.
func (t Timer) Duration() (time.Duration, bool) {
	unit := time.Minute
	switch t >> 5 {
	case 0:
		unit = 2 * time.Second
	case 2:
		unit = 6 * time.Minute
	case 7:
		return 0, false
	}
	return unit * time.Duration(t&0x1f), true
}

// TAIs iterates over a tracking area list (clause 9.9.3.33). TAI belongs to the
// area that Next reached.
type TAIs struct {
	TAI identity.TAI
	Err error // ErrValue if Next stopped before the end

	rest  []byte // after the current area
	kind  byte   // of the current partial list
	left  int    // areas left in the current partial list
	total int
}

// MaxTAIs is the maximum number of areas of a list.
const MaxTAIs = 16

// ParseTAIs returns an iterator over the value of a tracking area list.
func ParseTAIs(v []byte) TAIs { return TAIs{rest: v} }

// Next moves to the next area and reports whether there is one.
func (t *TAIs) Next() bool {
	if t.left == 0 && (len(t.rest) == 0 || !t.open()) {
		return false
	}
	switch t.kind {
	case 0: // one PLMN, a TAC each
		if len(t.rest) < 2 {
			return t.fail()
		}
		t.TAI.TAC = binary.BigEndian.Uint16(t.rest)
		t.rest = t.rest[2:]
	case 1: // consecutive TACs
		t.TAI.TAC++
	default: // a TAI each
		tai, ok := identity.ParseTAI(t.rest[:min(len(t.rest), identity.TAISize)])
		if !ok {
			return t.fail()
		}
		t.TAI, t.rest = tai, t.rest[identity.TAISize:]
	}
	t.left--
	return true
}

// open begins the next partial list.
func (t *TAIs) open() bool {
	t.kind, t.left = t.rest[0]>>5&0x03, int(t.rest[0]&0x1f)+1
	t.total += t.left
	t.rest = t.rest[1:]
	if t.kind == 3 || t.total > MaxTAIs {
		return t.fail()
	}
	if t.kind == 2 {
		return true
	}
	if len(t.rest) < 3 {
		return t.fail()
	}
	t.TAI.PLMN, t.rest = identity.PLMN(t.rest), t.rest[3:]
	if t.kind == 1 {
		if len(t.rest) < 2 {
			return t.fail()
		}
		t.TAI.TAC, t.rest = binary.BigEndian.Uint16(t.rest)-1, t.rest[2:]
	}
	return true
}

func (t *TAIs) fail() bool {
	t.rest, t.left, t.Err = nil, 0, ErrValue
	return false
}

// AppendTAIs appends the value of a tracking area list, of 1 to 16 areas. Areas
// of one PLMN make a list of type 0, other areas a list of type 2.
func AppendTAIs(b []byte, tais ...identity.TAI) []byte {
	if len(tais) == 0 || len(tais) > MaxTAIs {
		panic("nas: a tracking area list has 1 to 16 areas")
	}
	kind := byte(0)
	for _, t := range tais {
		if t.PLMN != tais[0].PLMN {
			kind = 2
		}
	}
	b = append(b, kind<<5|byte(len(tais)-1))
	if kind == 0 {
		b = append(b, tais[0].PLMN[:]...)
	}
	for _, t := range tais {
		if kind == 0 {
			b = binary.BigEndian.AppendUint16(b, t.TAC)
		} else {
			b = t.Append(b)
		}
	}
	return b
}

// The PDN types (clauses 9.9.4.9 and 9.9.4.10).
const (
	PDNv4   uint8 = 1
	PDNv6   uint8 = 2
	PDNv4v6 uint8 = 3
)

// An Address is a PDN address (clause 9.9.4.9).
type Address struct {
	Type      uint8      // PDNv4, PDNv6 or PDNv4v6
	V4        netip.Addr // unless Type is PDNv6
	Interface [8]byte    // interface identifier of the link-local IPv6 address, unless Type is PDNv4
}

// ParseAddress parses the value of a PDN address.
func ParseAddress(v []byte) (a Address, ok bool) {
	if len(v) == 0 {
		return a, false
	}
	a.Type = v[0] & 0x07
	v = v[1:]
	if a.Type == PDNv6 || a.Type == PDNv4v6 {
		if len(v) < 8 {
			return Address{}, false
		}
		a.Interface, v = [8]byte(v), v[8:]
	}
	if a.Type == PDNv4 || a.Type == PDNv4v6 {
		if len(v) < 4 {
			return Address{}, false
		}
		a.V4 = netip.AddrFrom4([4]byte(v))
	}
	return a, a.Type >= PDNv4 && a.Type <= PDNv4v6
}

// Append appends the value of a PDN address.
func (a Address) Append(b []byte) []byte {
	b = append(b, a.Type)
	if a.Type != PDNv4 {
		b = append(b, a.Interface[:]...)
	}
	if a.Type != PDNv6 {
		v4 := a.V4.As4()
		b = append(b, v4[:]...)
	}
	return b
}

// AppendAPN appends the labels of an access point name, each with its length
// before it (clause 9.9.4.1, TS 23.003 clause 9).
func AppendAPN(b []byte, name string) []byte {
	at := len(b)
	b = append(b, 0)
	for i := range len(name) {
		if name[i] == '.' {
			at = len(b)
			b = append(b, 0)
			continue
		}
		b = append(b, name[i])
		b[at]++
	}
	return b
}

// AppendName appends the text of an access point name: its labels with dots
// between them. It returns false if a label is empty or exceeds the value.
func AppendName(b, apn []byte) ([]byte, bool) {
	for i := 0; i < len(apn); {
		n := int(apn[i])
		if n == 0 || n > len(apn)-i-1 {
			return b, false
		}
		if i > 0 {
			b = append(b, '.')
		}
		b = append(b, apn[i+1:i+1+n]...)
		i += 1 + n
	}
	return b, len(apn) > 0
}
