package diameter

import "encoding/binary"

// find returns the value of the first IETF AVP with a code; nil: none.
func (m *Message) find(c Code) []byte {
	if a := m.Each(); a.Find(0, c) {
		return a.Value
	}
	return nil
}

// SessionID returns the Session-Id, nil for none (section 8.8).
func (m *Message) SessionID() []byte { return m.find(SessionID) }

// OriginHost returns the identity of the node that made the message, nil for none
// (section 6.3).
func (m *Message) OriginHost() []byte { return m.find(OriginHost) }

// DestinationHost returns the identity of the node that a request is for, nil for
// none (section 6.5).
func (m *Message) DestinationHost() []byte { return m.find(DestinationHost) }

// UserName returns the User-Name, nil for none: the IMSI on S6a (TS 29.272 clause
// 7.3), the private identity on Cx (TS 29.229 clause 6.3).
func (m *Message) UserName() []byte { return m.find(UserName) }

// PublicIdentity returns the first public identity, nil for none. It is in the
// message itself (Cx) or inside User-Identity (Sh).
func (m *Message) PublicIdentity() []byte {
	for a := m.Each(); a.Next(); {
		if a.Vendor != ThreeGPP {
			continue
		}
		switch a.Code {
		case PublicIdentity:
			return a.Value
		case UserIdentity:
			if inner := Group(a.Value); inner.Find(ThreeGPP, PublicIdentity) {
				return inner.Value
			}
		}
	}
	return nil
}

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

// RequestType returns the CC-Request-Type. It returns false if there is none.
func (m *Message) RequestType() (RequestType, bool) {
	a := m.Each()
	v, ok := a.number(CCRequestType)
	return RequestType(v), ok
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

// Subscription returns the first subscription identity of a type, nil for none.
func (m *Message) Subscription(of SubscriptionType) []byte {
	for a := m.Each(); a.Find(0, SubscriptionID); {
		types, data := Group(a.Value), Group(a.Value)
		if t, ok := types.number(SubscriptionIDType); ok && SubscriptionType(t) == of && data.Find(0, SubscriptionIDData) {
			return data.Value
		}
	}
	return nil
}
