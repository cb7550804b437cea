package diameter

import (
	"errors"
	"fmt"
	"strconv"
)

// A Result is the result code of a failed request, as an error. The high half of
// a vendor-specific code is the vendor, because the base protocol's 5001 differs
// from 3GPP's (RFC 6733 clauses 7.1 and 7.6).
type Result uint64

// vendor3GPP is the vendor identity of 3GPP.
const vendor3GPP = 10415

// The results that the EPC uses (RFC 6733 clause 7.1, TS 29.272 clause 7.4).
const (
	Success            Result = 2001
	CommandUnsupported Result = 3001
	TooBusy            Result = 3004
	UnknownSession     Result = 5002
	InvalidAVPValue    Result = 5004
	MissingAVP         Result = 5005
	UnableToComply     Result = 5012

	UserUnknown                   Result = vendor3GPP<<32 | 5001
	UnknownEPSSubscription        Result = vendor3GPP<<32 | 5420
	RATNotAllowed                 Result = vendor3GPP<<32 | 5421
	AuthenticationDataUnavailable Result = vendor3GPP<<32 | 4181
)

// Code returns the code without its vendor.
func (r Result) Code() uint32 { return uint32(r) }

// Vendor returns the vendor of an experimental result; 0 for the base protocol.
func (r Result) Vendor() uint32 { return uint32(r >> 32) }

func (r Result) Error() string {
	if r.Vendor() != 0 {
		return fmt.Sprintf("diameter: experimental result %d of vendor %d", r.Code(), r.Vendor())
	}
	return fmt.Sprintf("diameter: result %d", r.Code())
}

// resultLabel returns the label of a result code in a counter. The peer chooses the code, so
// only ranges in use have labels of their own: RFC 6733 clause 7.1, RFC 4006 clause 9, TS
// 29.272 clause 7.4 and TS 29.212 clause 5.5. 0 stands for no answer.
func resultLabel(code uint32) string {
	within := func(first, last uint32) bool { return first <= code && code <= last }
	if code == 0 || within(1001, 1001) || within(2001, 2002) || within(3001, 3010) || within(4001, 4012) || within(4141, 4144) ||
		within(4181, 4182) || within(5001, 5031) || within(5140, 5149) || within(5420, 5423) {
		return strconv.Itoa(int(code))
	}
	return "other"
}

// The errors of requests without an answer.
var (
	ErrUnreachable = errors.New("diameter: no connection to the peer")
	ErrTimeout     = errors.New("diameter: the peer does not answer")
	ErrAnswer      = errors.New("diameter: a required AVP of the answer is missing or invalid")
)
