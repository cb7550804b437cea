package ims

import (
	"encoding/xml"
	"fmt"
)

// Services holds a user's telephony settings: the simservs document of TS 24.623,
// with the services that Sprout's telephony server applies.
type Services struct {
	XMLName     xml.Name `xml:"http://uri.etsi.org/ngn/params/xml/simservs/xcap simservs"`
	Presenting  Service  `xml:"originating-identity-presentation"`
	Restricting Service  `xml:"originating-identity-presentation-restriction"`
	Waiting     Service  `xml:"communication-waiting"`
	Outgoing    Barring  `xml:"outgoing-communication-barring"`
	Incoming    Barring  `xml:"incoming-communication-barring"`
}

// A Service is switched on or off.
type Service struct {
	Active bool `xml:"active,attr"`
}

// A Barring rejects sessions if it is active and one of its rules does not allow
// them.
type Barring struct {
	Active bool   `xml:"active,attr"`
	Rules  []Rule `xml:"ruleset>rule"`
}

// A Rule of a ruleset (RFC 4745). Conditions are not supported: every rule
// applies to every session.
type Rule struct {
	ID    string `xml:"id,attr"`
	Allow bool   `xml:"actions>allow"`
}

// Bars reports whether the service rejects every session.
func (b Barring) Bars() bool {
	if !b.Active {
		return false
	}
	for _, r := range b.Rules {
		if !r.Allow {
			return true
		}
	}
	return false
}

// DefaultServices returns the settings of a user who never changed them: nothing
// is barred.
func DefaultServices() Services {
	return Services{
		Presenting: Service{Active: true},
		Outgoing:   Barring{Rules: []Rule{{ID: "rule0", Allow: true}}},
		Incoming:   Barring{Rules: []Rule{{ID: "rule0", Allow: true}}},
	}
}

// ParseServices parses a simservs document.
func ParseServices(document []byte) (Services, error) {
	var s Services
	if err := xml.Unmarshal(document, &s); err != nil {
		return s, fmt.Errorf("not a simservs document: %w", err)
	}
	return s, nil
}

// ServicesPath returns the URL path of a user's Services on Homer (RFC 4825
// section 6).
func ServicesPath(user string) string {
	return "/org.etsi.ngn.simservs/users/" + user + "/simservs.xml"
}
