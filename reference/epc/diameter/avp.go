package diameter

import (
	"net"
	"net/netip"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"
)

// The applications (TS 29.272 clause 7.1.8, TS 29.212 clause 5.1).
const (
	s6aApplication = 16777251
	gxApplication  = 16777238
)

// base returns a mandatory AVP of the base protocol.
func base(code uint32, data datatype.Type) *diam.AVP { return diam.NewAVP(code, avp.Mbit, 0, data) }

// vendor returns a mandatory AVP of 3GPP.
func vendor(code uint32, data datatype.Type) *diam.AVP {
	return diam.NewAVP(code, avp.Mbit|avp.Vbit, vendor3GPP, data)
}

// number returns the data of an unsigned AVP.
func number[T ~uint8 | ~uint32 | ~int](v T) datatype.Unsigned32 { return datatype.Unsigned32(v) }

// group returns the data of a grouped AVP.
func group(members ...*diam.AVP) *diam.GroupedAVP { return &diam.GroupedAVP{AVP: members} }

// A set is the AVPs of a message or of a group.
type set []*diam.AVP

// find returns the first AVP with a code; nil if there is none. The codes used here
// are unique among the vendors 0 and 3GPP.
func (s set) find(code uint32) *diam.AVP {
	for _, a := range s {
		if a.Code == code {
			return a
		}
	}
	return nil
}

// text returns the value of a string, an identity or octets. It returns false if
// the AVP is missing or of another type.
func (s set) text(code uint32) (string, bool) {
	a := s.find(code)
	if a == nil {
		return "", false
	}
	switch v := a.Data.(type) {
	case datatype.UTF8String:
		return string(v), true
	case datatype.OctetString:
		return string(v), true
	case datatype.DiameterIdentity:
		return string(v), true
	case datatype.IPFilterRule:
		return string(v), true
	}
	return "", false
}

// number returns the value of an integer. It returns false if the AVP is missing
// or of another type.
func (s set) number(code uint32) (uint32, bool) {
	a := s.find(code)
	if a == nil {
		return 0, false
	}
	switch v := a.Data.(type) {
	case datatype.Unsigned32:
		return uint32(v), true
	case datatype.Integer32:
		return uint32(v), true
	case datatype.Enumerated:
		return uint32(v), true
	}
	return 0, false
}

// group returns the members of a group. It returns nil if the AVP is missing or of
// another type.
func (s set) group(code uint32) set {
	if a := s.find(code); a != nil {
		if g, ok := a.Data.(*diam.GroupedAVP); ok {
			return g.AVP
		}
	}
	return nil
}

// groups returns the members of all groups with a code.
func (s set) groups(code uint32) (all []set) {
	for _, a := range s {
		if a.Code != code {
			continue
		}
		if g, ok := a.Data.(*diam.GroupedAVP); ok {
			all = append(all, g.AVP)
		}
	}
	return all
}

// octets copies the value of octets of exactly that length. It returns false if
// the AVP has another length or is missing.
func (s set) octets(code uint32, into []byte) bool {
	v, ok := s.text(code)
	if !ok || len(v) != len(into) {
		return false
	}
	copy(into, v)
	return true
}

// address returns an IPv4 address of four octets.
func (s set) address(code uint32) (netip.Addr, bool) {
	a := s.find(code)
	if a == nil {
		return netip.Addr{}, false
	}
	switch v := a.Data.(type) {
	case datatype.IPv4:
		addr, ok := netip.AddrFromSlice(net.IP(v).To4())
		return addr, ok
	case datatype.OctetString:
		if len(v) == 4 {
			return netip.AddrFrom4([4]byte([]byte(v))), true
		}
	}
	return netip.Addr{}, false
}

// result returns the result of an answer: nil for success.
func (s set) result() error {
	if code, ok := s.number(avp.ResultCode); ok {
		if code/1000 == 2 { // RFC 6733 clause 7.1.2
			return nil
		}
		return Result(code)
	}
	experimental := s.group(avp.ExperimentalResult)
	code, ok := experimental.number(avp.ExperimentalResultCode)
	if !ok {
		return ErrAnswer
	}
	if code/1000 == 2 {
		return nil
	}
	by, _ := experimental.number(avp.VendorID)
	return Result(uint64(by)<<32 | uint64(code))
}

// appendResult adds a result to an answer. The answer of a protocol error has the E bit
// (RFC 6733 clause 7.1.3).
func appendResult(m *diam.Message, r Result) {
	if r.Vendor() == 0 {
		if r.Code()/1000 == 3 {
			m.Header.CommandFlags |= diam.ErrorFlag
		}
		m.AddAVP(base(avp.ResultCode, number(r.Code())))
		return
	}
	m.AddAVP(base(avp.ExperimentalResult, group(
		base(avp.VendorID, number(r.Vendor())), base(avp.ExperimentalResultCode, number(r.Code())))))
}
