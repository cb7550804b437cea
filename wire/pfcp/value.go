package pfcp

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// A Node is the identity of a node: an address or a name (clause 8.2.38).
type Node struct {
	Addr netip.Addr // invalid for a name
	Name []byte     // a view: labels with their lengths, as in DNS (TS 23.003 clause 19.2); nil for an address
}

// ParseNodeID parses the value of a Node ID.
func ParseNodeID(v []byte) (n Node, ok bool) {
	if len(v) < 1 {
		return n, false
	}
	kind, v := v[0]&0x0f, v[1:]
	switch {
	case kind == 0 && len(v) >= 4:
		n.Addr = netip.AddrFrom4([4]byte(v))
	case kind == 1 && len(v) >= 16:
		n.Addr = netip.AddrFrom16([16]byte(v))
	case kind == 2 && len(v) > 0:
		n.Name = v
	default:
		return n, false
	}
	return n, true
}

// AppendName appends the node's name with dots between labels. It stops at a
// label that is longer than the space left.
func (n Node) AppendName(b []byte) []byte {
	for rest := n.Name; len(rest) > 1 && int(rest[0]) < len(rest) && rest[0] != 0; rest = rest[1+int(rest[0]):] {
		if len(rest) < len(n.Name) {
			b = append(b, '.')
		}
		b = append(b, rest[1:1+int(rest[0])]...)
	}
	return b
}

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

// ntpEpoch is 1 January 1900 in Unix time, in seconds.
const ntpEpoch = -2208988800

// ParseRecovery parses the value of a Recovery Time Stamp: when the node
// started, in seconds (clause 8.2.65). NTP seconds wrap on 7 February 2036. So
// if their first bit is 0, ParseRecovery returns a time after that date (RFC
// 5905 section 6).
func ParseRecovery(v []byte) (time.Time, bool) {
	if len(v) < 4 {
		return time.Time{}, false
	}
	seconds := int64(binary.BigEndian.Uint32(v))
	if seconds < 1<<31 {
		seconds += 1 << 32
	}
	return time.Unix(ntpEpoch+seconds, 0), true
}

// ParseRuleID parses the identifier of a rule: the value of a PDR ID, FAR ID,
// URR ID or QER ID (clauses 8.2.36, 8.2.74, 8.2.54 and 8.2.75). In the last
// three, the first bit is set if the rule is predefined in the user plane. It
// returns false for other elements.
func ParseRuleID(t Element, v []byte) (uint32, bool) {
	switch {
	case t == PDRID && len(v) >= 2:
		return uint32(binary.BigEndian.Uint16(v)), true
	case (t == FARID || t == URRID || t == QERID) && len(v) >= 4:
		return binary.BigEndian.Uint32(v), true
	}
	return 0, false
}
