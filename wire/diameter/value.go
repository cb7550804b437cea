package diameter

import "encoding/binary"

// A Result is the result of a request. The code is from Result-Code if the
// vendor is zero, else from Experimental-Result-Code (sections 7.1, 7.6 and
// 7.7).
type Result struct {
	Vendor Vendor
	Code   uint32
}

// Succeeded reports whether the request succeeded, or needs another round
// (sections 7.1.1 and 7.1.2). Vendors use the same classes (section 7.7).
func (r Result) Succeeded() bool { return r.Code >= 1000 && r.Code < 3000 }

// Result returns the result in an answer. It returns false if there is none.
func (m *Message) Result() (Result, bool) {
	for a := m.Each(); a.Next(); {
		if a.Vendor != 0 {
			continue
		}
		switch a.Code {
		case ResultCode:
			if len(a.Value) == 4 {
				return Result{Code: binary.BigEndian.Uint32(a.Value)}, true
			}
		case ExperimentalResult:
			vendors, codes := Group(a.Value), Group(a.Value)
			vendor, _ := vendors.number(VendorID)
			if code, ok := codes.number(ExperimentalResultCode); ok {
				return Result{Vendor: Vendor(vendor), Code: code}, true
			}
		}
	}
	return Result{}, false
}

// A RequestType says where a request is in a session of credit control (RFC
// 4006 section 8.3).
type RequestType uint32

// The types of credit control requests.
const (
	Initial     RequestType = 1
	Update      RequestType = 2
	Termination RequestType = 3
	Event       RequestType = 4
)

func (t RequestType) String() string {
	switch t {
	case Initial:
		return "initial"
	case Update:
		return "update"
	case Termination:
		return "termination"
	case Event:
		return "event"
	}
	return "unknown"
}

// A SubscriptionType says which identity a Subscription-Id has (RFC 4006 section
// 8.47).
type SubscriptionType uint32

// The types of subscription identities.
const (
	E164    SubscriptionType = 0 // MSISDN
	IMSI    SubscriptionType = 1
	SIPURI  SubscriptionType = 2
	NAI     SubscriptionType = 3
	Private SubscriptionType = 4
)
