package diameter

import "encoding/binary"

// An AVPFlags holds the flags of an AVP (section 4.1).
type AVPFlags uint8

// The flags of AVPs.
const (
	VendorSpecific AVPFlags = 0x80 // the AVP has a Vendor-Id field
	Mandatory      AVPFlags = 0x40
	Protected      AVPFlags = 0x20 // reserved by RFC 6733 for end-to-end security
)

// A Vendor is an SMI network management private enterprise code. Zero is the IETF.
type Vendor uint32

// ThreeGPP is the vendor of the AVPs of 3GPP.
const ThreeGPP Vendor = 10415

// A Code is the code of an AVP. It is unique within a vendor.
type Code uint32

// The named AVPs of the IETF. The iterator yields all others too, by number.
const (
	UserName               Code = 1 // IMSI on S6a, private identity on Cx
	HostIPAddress          Code = 257
	AuthApplicationID      Code = 258
	SessionID              Code = 263
	OriginHost             Code = 264
	VendorID               Code = 266
	ResultCode             Code = 268
	DestinationRealm       Code = 283
	RouteRecord            Code = 282
	DestinationHost        Code = 293
	OriginRealm            Code = 296
	ExperimentalResult     Code = 297
	ExperimentalResultCode Code = 298
	CCRequestNumber        Code = 415
	CCRequestType          Code = 416
	SubscriptionID         Code = 443
	SubscriptionIDData     Code = 444
	SubscriptionIDType     Code = 450
)

// The named AVPs of 3GPP.
const (
	PublicIdentity Code = 601 // TS 29.229 clause 6.3.2
	UserIdentity   Code = 700 // grouped; TS 29.329 clause 6.3.1
)

const (
	avpHeader    = 8
	vendorHeader = 12
)

// AVPs iterates over the AVPs of a message, or inside a grouped AVP, in order.
// Code, Flags, Vendor and Value belong to the AVP that Next reached.
type AVPs struct {
	Code   Code
	Flags  AVPFlags
	Vendor Vendor // zero without the flag VendorSpecific
	Value  []byte // a view, without padding
	Err    error  // ErrAVP if Next stopped before the end

	rest []byte
}

// Each returns an iterator over the message's AVPs.
func (m *Message) Each() AVPs { return AVPs{rest: m.AVPs} }

// Group returns an iterator over the AVPs inside a grouped AVP.
func Group(value []byte) AVPs { return AVPs{rest: value} }

// Next moves to the next AVP and reports whether there is one. The padding of the
// last AVP of a group may be missing, because some senders omit it.
func (a *AVPs) Next() bool {
	if len(a.rest) == 0 {
		return false
	}
	if len(a.rest) < avpHeader {
		return a.stop()
	}
	word := binary.BigEndian.Uint32(a.rest[4:])
	flags, length := AVPFlags(word>>24), int(word&0xffffff)
	start, vendor := avpHeader, Vendor(0)
	if flags&VendorSpecific != 0 {
		start = vendorHeader
	}
	if length < start || length > len(a.rest) {
		return a.stop()
	}
	if flags&VendorSpecific != 0 {
		vendor = Vendor(binary.BigEndian.Uint32(a.rest[avpHeader:]))
	}
	a.Code, a.Flags, a.Vendor = Code(binary.BigEndian.Uint32(a.rest)), flags, vendor
	a.Value = a.rest[start:length:length]
	a.rest = a.rest[min((length+3)&^3, len(a.rest)):]
	return true
}

func (a *AVPs) stop() bool {
	a.rest, a.Err = nil, ErrAVP
	return false
}

// Find moves to the next AVP of a vendor and code. It returns false if there is
// none, or if an earlier AVP is malformed.
func (a *AVPs) Find(v Vendor, c Code) bool {
	for a.Next() {
		if a.Code == c && a.Vendor == v {
			return true
		}
	}
	return false
}

// number returns the value of the next AVP with a code. The AVP must have the
// type Unsigned32 or Enumerated (sections 4.2 and 4.3.1).
func (a *AVPs) number(c Code) (uint32, bool) {
	if !a.Find(0, c) || len(a.Value) != 4 {
		return 0, false
	}
	return binary.BigEndian.Uint32(a.Value), true
}
