package gtpc

import "net/netip"

// The PDN types (clause 8.34).
const (
	PDNv4   uint8 = 1
	PDNv6   uint8 = 2
	PDNv4v6 uint8 = 3
)

// An Address is a PDN address allocation (clause 8.14). In a request, all
// fields but Type are zero, because the P-GW chooses the address.
type Address struct {
	Type uint8 // PDNv4, PDNv6 or PDNv4v6; 0 if the address is not given
	V4   netip.Addr
	V6   netip.Addr // prefix and interface identifier
	Bits uint8      // length of the IPv6 prefix
}

// ParseAddress parses the value of a PAA.
func ParseAddress(v []byte) (a Address, ok bool) {
	if len(v) == 0 {
		return a, false
	}
	a.Type = v[0] & 0x07
	v = v[1:]
	if a.Type == PDNv6 || a.Type == PDNv4v6 {
		if len(v) < 17 || v[0] > 128 {
			return Address{}, false
		}
		a.Bits, a.V6 = v[0], netip.AddrFrom16([16]byte(v[1:]))
		v = v[17:]
	}
	switch a.Type {
	case PDNv4, PDNv4v6:
		if len(v) < 4 {
			return Address{}, false
		}
		a.V4 = netip.AddrFrom4([4]byte(v))
	case PDNv6:
	default:
		return Address{}, false
	}
	return a, true
}

// AppendAddress appends a PAA. An address that is not valid is written as zeros.
func AppendAddress(b []byte, a Address) []byte {
	start := len(b)
	b = append(BeginGroup(b, PAA, 0), a.Type)
	if a.Type == PDNv6 || a.Type == PDNv4v6 {
		var v6 [16]byte
		if a.V6.IsValid() {
			v6 = a.V6.As16()
		}
		b = append(append(b, a.Bits), v6[:]...)
	}
	if a.Type == PDNv4 || a.Type == PDNv4v6 {
		var v4 [4]byte
		if a.V4.Is4() {
			v4 = a.V4.As4()
		}
		b = append(b, v4[:]...)
	}
	return EndGroup(b, start)
}
