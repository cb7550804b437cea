package gtpc

import (
	"encoding/binary"
	"net/netip"

	"vitrine/wire/identity"
)

// An Interface is the interface type of an F-TEID (clause 8.22).
type Interface uint8

// The interfaces used to steer sessions.
const (
	S1UeNodeB Interface = 0
	S1USGW    Interface = 1
	S5USGW    Interface = 4
	S5UPGW    Interface = 5
	S5SGW     Interface = 6 // S5/S8, control plane, at the S-GW
	S5PGW     Interface = 7
	S11MME    Interface = 10
	S11SGW    Interface = 11 // also for S4
	S10MME    Interface = 12
	S3MME     Interface = 13
	S3SGSN    Interface = 14
	S4SGSN    Interface = 17
	S16SGSN   Interface = 18
)

// An Endpoint is an F-TEID: the address and TEID at which its owner receives
// messages (clause 8.22).
type Endpoint struct {
	Interface Interface
	TEID      uint32
	V4, V6    netip.Addr // an invalid address means not given
}

// Addr returns the address, preferring IPv4 if there are both.
func (f Endpoint) Addr() netip.Addr {
	if f.V4.IsValid() {
		return f.V4
	}
	return f.V6
}

// Has reports whether one of the addresses is a.
func (f Endpoint) Has(a netip.Addr) bool { return a.IsValid() && (f.V4 == a || f.V6 == a) }

// ParseFTEID parses the value of an F-TEID.
func ParseFTEID(v []byte) (f Endpoint, ok bool) {
	if len(v) < 5 {
		return f, false
	}
	f.Interface, f.TEID = Interface(v[0]&0x3f), binary.BigEndian.Uint32(v[1:])
	at := 5
	if v[0]&0x80 != 0 {
		if len(v) < at+4 {
			return f, false
		}
		f.V4 = netip.AddrFrom4([4]byte(v[at:]))
		at += 4
	}
	if v[0]&0x40 != 0 {
		if len(v) < at+16 {
			return f, false
		}
		f.V6 = netip.AddrFrom16([16]byte(v[at:]))
	}
	return f, true
}

// SetFTEID overwrites the TEID in the value of an F-TEID that ParseFTEID parsed.
func SetFTEID(v []byte, teid uint32) { binary.BigEndian.PutUint32(v[1:], teid) }

// ParseDigits parses the digits of an IMSI, an MSISDN or an MEI: TBCD (clause
// 8.3), the low half of an octet first, filled with 0xf. It rejects an empty value,
// more than 16 digits and halves that are not digits.
func ParseDigits(v []byte) (d identity.Digits, ok bool) {
	for i, b := range v {
		if !d.Add(b & 0x0f) {
			return identity.Digits{}, false
		}
		if b>>4 == 0x0f && i == len(v)-1 {
			break
		}
		if !d.Add(b >> 4) {
			return identity.Digits{}, false
		}
	}
	return d, len(v) > 0
}

// ParseCause parses the value of a Cause (clause 8.4).
func ParseCause(v []byte) (CauseValue, bool) {
	if len(v) < 2 {
		return 0, false
	}
	return CauseValue(v[0]), true
}

// A CauseValue is the result of a request (table 8.4-1).
type CauseValue uint8

// The causes used here.
const (
	LocalDetach          CauseValue = 2
	ReactivationAsked    CauseValue = 8
	RequestAccepted      CauseValue = 16
	AcceptedPartially    CauseValue = 17
	NewPDNTypePreferred  CauseValue = 18 // new PDN type due to network preference
	ContextNotFound      CauseValue = 64
	InvalidLength        CauseValue = 67
	ServiceNotSupported  CauseValue = 68
	MandatoryIncorrect   CauseValue = 69 // mandatory IE incorrect
	MandatoryMissing     CauseValue = 70 // mandatory IE missing
	SystemFailure        CauseValue = 72
	NoResourcesAvailable CauseValue = 73
	TFTSemantic          CauseValue = 74 // semantic error in the TFT operation
	TFTSyntactic         CauseValue = 75
	FiltersSemantic      CauseValue = 76 // semantic errors in packet filters
	FiltersSyntactic     CauseValue = 77
	UnknownAPN           CauseValue = 78 // missing or unknown APN
	PDNTypeNotSupported  CauseValue = 83 // preferred PDN type not supported
	AddressesOccupied    CauseValue = 84 // all dynamic addresses are occupied
	UENotResponding      CauseValue = 87
	UERefuses            CauseValue = 88
	ServiceDenied        CauseValue = 89
	UnableToPage         CauseValue = 90
	AuthenticationFailed CauseValue = 92 // user authentication failed
	RequestRejected      CauseValue = 94 // reason not specified
	PeerNotResponding    CauseValue = 100
	ConditionalMissing   CauseValue = 103 // conditional IE missing
	InvalidReply         CauseValue = 107 // invalid reply from remote peer
	EntityCongestion     CauseValue = 120 // GTP-C Entity Congestion
)

// Accepted reports whether the request was accepted, in whole or in part.
func (c CauseValue) Accepted() bool { return c >= 16 && c <= 63 }
