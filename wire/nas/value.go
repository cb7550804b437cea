package nas

import (
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

// AppendTAIs appends the value of a tracking area list with one area: a list of type 0
// (clause 9.9.3.33).
func AppendTAIs(b []byte, t identity.TAI) []byte { return t.Append(append(b, 0)) }

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
