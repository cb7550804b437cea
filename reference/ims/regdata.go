package ims

import "encoding/xml"

// Types of a PUT of reg-data to Homestead: the Server-Assignment-Type of TS
// 29.229 section 6.3.15 in Clearwater's spelling.
const (
	RequestReg          = "reg"           // registration or re-registration
	RequestDeregUser    = "dereg-user"    // the user deregistered
	RequestDeregTimeout = "dereg-timeout" // the registration expired
	RequestCall         = "call"          // a session of a user in any state; only reads
)

// Registration states of a public identity, as Homestead reports them.
const (
	StateRegistered    = "REGISTERED"
	StateNotRegistered = "NOT_REGISTERED"
)

// A RegRequest is the body of a PUT to /impu/IDENTITY/reg-data.
type RegRequest struct {
	Type   string `json:"reqtype"`
	Server string `json:"server_name"` // the assigned S-CSCF
}

// An AuthVector is the answer to a GET of /impi/IDENTITY/av.
type AuthVector struct {
	Digest struct {
		HA1   string `json:"ha1"`
		Realm string `json:"realm"`
		QoP   string `json:"qop"`
	} `json:"digest"`
}

// RegData is the answer to a GET or PUT of reg-data: the state of the
// registration and the user's profile (TS 29.228 annex E, cut to what Sprout
// uses).
type RegData struct {
	XMLName      xml.Name     `xml:"ClearwaterRegData"`
	State        string       `xml:"RegistrationState"`
	Server       string       `xml:"ServerName,omitempty"`
	Subscription Subscription `xml:"IMSSubscription"`
	Charging     Charging     `xml:"ChargingAddresses"`
}

// A Subscription is a user's private identity and the service profile of its
// implicit registration set.
type Subscription struct {
	PrivateID string  `xml:"PrivateID"`
	Profile   Profile `xml:"ServiceProfile"`
}

// A Profile lists the public identities that register together, the default
// first, and the initial filter criteria that apply to them.
type Profile struct {
	Identities []Identity  `xml:"PublicIdentity"`
	Criteria   []Criterion `xml:"InitialFilterCriteria"`
}

// An Identity is one public identity of a Profile.
type Identity struct {
	URI    string `xml:"Identity"`
	Barred bool   `xml:"BarringIndication"`
}

// A Criterion sends requests that its trigger matches to an application server.
type Criterion struct {
	Priority int               `xml:"Priority"`
	Trigger  Trigger           `xml:"TriggerPoint"`
	Server   ApplicationServer `xml:"ApplicationServer"`
}

// A Trigger holds service point triggers. With ConditionTypeCNF, the triggers of
// one Group are joined with OR and the groups with AND; without it, the reverse
// (TS 29.228 annex C).
type Trigger struct {
	CNF   bool  `xml:"ConditionTypeCNF"`
	Spots []SPT `xml:"SPT"`
}

// An SPT matches a request's method or, if Method is empty, its session case.
type SPT struct {
	Negated     bool   `xml:"ConditionNegated"`
	Group       int    `xml:"Group"`
	Method      string `xml:"Method,omitempty"`
	SessionCase *int   `xml:"SessionCase,omitempty"` // 0 originating, 1 terminating
}

// An ApplicationServer is the destination of requests that match a Criterion.
type ApplicationServer struct {
	Name    string `xml:"ServerName"`
	Default int    `xml:"DefaultHandling"` // 0: continue the session if the server does not answer
}

// Charging names the charging functions of a user.
type Charging struct {
	CCF []string `xml:"CCF"`
}

// TelephonyServer is the application server inside Sprout: the multimedia
// telephony services of TS 24.173, whose settings are stored in Homer.
const TelephonyServer = "sip:mmtel." + Domain
