package pfcp

import (
	"encoding/binary"
	"net/netip"
)

// An Endpoint is an F-SEID: a session's identifier at the node that assigned it,
// and that node's addresses (clause 8.2.37).
type Endpoint struct {
	SEID   uint64
	V4, V6 netip.Addr // an invalid address means not given
}

// ParseFSEID parses the value of an F-SEID.
func ParseFSEID(v []byte) (f Endpoint, ok bool) {
	const flagV6, flagV4 = 0x01, 0x02
	if len(v) < 9 {
		return f, false
	}
	flags := v[0]
	f.SEID, v = binary.BigEndian.Uint64(v[1:]), v[9:]
	if flags&flagV4 != 0 {
		if len(v) < 4 {
			return Endpoint{}, false
		}
		f.V4, v = netip.AddrFrom4([4]byte(v)), v[4:]
	}
	if flags&flagV6 != 0 {
		if len(v) < 16 {
			return Endpoint{}, false
		}
		f.V6 = netip.AddrFrom16([16]byte(v))
	}
	return f, true
}

// A CauseValue is the result of a request (table 8.2.1-1).
type CauseValue uint8

// The causes used here.
const (
	Accepted          CauseValue = 1
	MoreReports       CauseValue = 2
	PartiallyAccepted CauseValue = 3
	Rejected          CauseValue = 64
	SessionNotFound   CauseValue = 65
	NoAssociation     CauseValue = 72
	Congestion        CauseValue = 74
	NoResources       CauseValue = 75
)

// Accepted reports whether the request was accepted, in whole or in part.
func (c CauseValue) Accepted() bool { return c >= 1 && c <= 63 }

// ParseCause parses the value of a Cause (clause 8.2.1).
func ParseCause(v []byte) (CauseValue, bool) {
	if len(v) < 1 {
		return 0, false
	}
	return CauseValue(v[0]), true
}
