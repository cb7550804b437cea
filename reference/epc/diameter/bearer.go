package diameter

import (
	"encoding/binary"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"

	wire "vitrine/wire/diameter"
)

// The AVPs of Gx that go-diameter's dictionary lacks (TS 29.212 clauses 5.3.54 to
// 5.3.57). go-diameter reads them as octets.
const (
	packetFilterContent     = 1059
	packetFilterInformation = 1061
	packetFilterOperation   = 1062
)

// The values of Packet-Filter-Operation (TS 29.212 clause 5.3.57), Event-Trigger
// (clause 5.3.7), Flow-Direction (clause 5.3.65) and Re-Auth-Request-Type (RFC 6733
// clause 8.12).
const (
	filterDeletion      = 0
	filterAddition      = 1
	resourceRequested   = 23 // RESOURCE_MODIFICATION_REQUEST
	bidirectional       = 3
	authorizeOnly       = 0
	maximumDescriptions = 16
)

// A Rule is a PCC rule that the PCRF defines (TS 29.212 clause 5.3.4). Its flows get a
// dedicated bearer. Rates are in bit/s.
type Rule struct {
	Name                         string
	QoS                          QoS
	MaxUp, MaxDown               uint32
	GuaranteedUp, GuaranteedDown uint32
	Flows                        []string // IPFilterRules
}

// A Change is a change to a session's rules.
type Change struct {
	Install []Rule
	Remove  []string // names
}

func (c *Change) avps() (all []*diam.AVP) {
	for _, name := range c.Remove {
		all = append(all, vendor(avp.ChargingRuleRemove, group(vendor(avp.ChargingRuleName, datatype.OctetString(name)))))
	}
	for i := range c.Install {
		all = append(all, vendor(avp.ChargingRuleInstall, group(vendor(avp.ChargingRuleDefinition, group(c.Install[i].avps()...)))))
	}
	return all
}

// parse reads a change. It omits predefined rules, because they create no bearer.
func (c *Change) parse(s set) error {
	*c = Change{}
	for _, g := range s.groups(avp.ChargingRuleRemove) {
		if name, ok := g.text(avp.ChargingRuleName); ok && len(c.Remove) < maximumRules {
			c.Remove = append(c.Remove, name)
		}
	}
	for _, g := range s.groups(avp.ChargingRuleInstall) {
		definition := g.group(avp.ChargingRuleDefinition)
		if definition == nil {
			continue
		}
		var r Rule
		if !r.parse(definition) || len(c.Install) == maximumRules {
			return ErrAnswer
		}
		c.Install = append(c.Install, r)
	}
	return nil
}

func (r *Rule) avps() []*diam.AVP {
	qos := append(qosAVPs(r.QoS), rateAVPs(r.MaxUp, r.MaxDown, r.GuaranteedUp, r.GuaranteedDown)...)
	all := []*diam.AVP{vendor(avp.ChargingRuleName, datatype.OctetString(r.Name)), vendor(avp.QoSInformation, group(qos...))}
	for _, flow := range r.Flows {
		all = append(all, optional(avp.FlowInformation, group(
			vendor(avp.FlowDescription, datatype.IPFilterRule(flow)), optional(avp.PacketFilterIdentifier, datatype.OctetString(r.Name)),
			optional(avp.FlowDirection, datatype.Enumerated(bidirectional)))))
	}
	return all
}

func (r *Rule) parse(s set) bool {
	*r = Rule{}
	var ok bool
	if r.Name, ok = s.text(avp.ChargingRuleName); !ok {
		return false
	}
	qos := s.group(avp.QoSInformation)
	if r.QoS, ok = parseQoS(qos); !ok {
		return false
	}
	r.MaxUp, r.MaxDown, r.GuaranteedUp, r.GuaranteedDown = parseRates(qos)
	for _, g := range s.groups(avp.FlowInformation) {
		if flow, ok := g.text(avp.FlowDescription); ok && len(r.Flows) < maximumDescriptions {
			r.Flows = append(r.Flows, flow)
		}
	}
	return true
}

// rateAVPs returns the rates of a QoS-Information; it omits rates of 0.
func rateAVPs(maxUp, maxDown, guaranteedUp, guaranteedDown uint32) (all []*diam.AVP) {
	for _, rate := range [...]struct{ code, rate uint32 }{
		{avp.MaxRequestedBandwidthUL, maxUp}, {avp.MaxRequestedBandwidthDL, maxDown},
		{avp.GuaranteedBitrateUL, guaranteedUp}, {avp.GuaranteedBitrateDL, guaranteedDown},
	} {
		if rate.rate != 0 {
			all = append(all, vendor(rate.code, number(rate.rate)))
		}
	}
	return all
}

func parseRates(s set) (maxUp, maxDown, guaranteedUp, guaranteedDown uint32) {
	maxUp, _ = s.number(avp.MaxRequestedBandwidthUL)
	maxDown, _ = s.number(avp.MaxRequestedBandwidthDL)
	guaranteedUp, _ = s.number(avp.GuaranteedBitrateUL)
	guaranteedDown, _ = s.number(avp.GuaranteedBitrateDL)
	return maxUp, maxDown, guaranteedUp, guaranteedDown
}

// optional returns an AVP of 3GPP that a receiver need not understand.
func optional(code uint32, data datatype.Type) *diam.AVP {
	return diam.NewAVP(code, avp.Vbit, vendor3GPP, data)
}

// A ResourceRequest is a UE's request for the resources of a flow, or for the release
// of a rule's resources (TS 29.212 clause 4.5.1). Rates are in bit/s.
type ResourceRequest struct {
	IMSI             string
	Release          string // name of the rule to release; empty: resources are requested
	Flow             string // IPFilterRule
	QCI              uint8
	UpRate, DownRate uint32 // guaranteed; 0: none
}

func (r *ResourceRequest) avps(requestNumber uint32) []*diam.AVP {
	operation, filter := uint32(filterAddition), optional(packetFilterContent, datatype.IPFilterRule(r.Flow))
	if r.Release != "" {
		operation, filter = filterDeletion, optional(avp.PacketFilterIdentifier, datatype.OctetString(r.Release))
	}
	all := []*diam.AVP{
		base(avp.CCRequestType, datatype.Enumerated(updateRequest)),
		base(avp.CCRequestNumber, number(requestNumber)),
		subscriptionID(endUserIMSI, r.IMSI),
		vendor(avp.EventTrigger, datatype.Enumerated(resourceRequested)),
		optional(packetFilterOperation, datatype.Enumerated(operation)),
		optional(packetFilterInformation, group(filter)),
	}
	if r.QCI != 0 {
		qos := []*diam.AVP{vendor(avp.QoSClassIdentifier, datatype.Enumerated(r.QCI))}
		all = append(all, vendor(avp.QoSInformation, group(append(qos, rateAVPs(0, 0, r.UpRate, r.DownRate)...)...)))
	}
	return all
}

// parse reads the request. The error is a Result.
func (r *ResourceRequest) parse(s set) error {
	*r = ResourceRequest{}
	for _, g := range s.groups(avp.SubscriptionID) {
		if kind, _ := g.number(avp.SubscriptionIDType); kind == endUserIMSI {
			r.IMSI, _ = g.text(avp.SubscriptionIDData)
		}
	}
	operation, ok := s.unknown(packetFilterOperation)
	if !ok || len(operation) != 4 {
		return MissingAVP
	}
	information, ok := s.unknown(packetFilterInformation)
	if !ok {
		return MissingAVP
	}
	switch binary.BigEndian.Uint32(operation) {
	case filterAddition:
		content := wire.Group(information)
		if !content.Find(wire.ThreeGPP, packetFilterContent) {
			return MissingAVP
		}
		r.Flow = string(content.Value)
	case filterDeletion:
		identifier := wire.Group(information)
		if !identifier.Find(wire.ThreeGPP, avp.PacketFilterIdentifier) || len(identifier.Value) == 0 {
			return MissingAVP
		}
		r.Release = string(identifier.Value)
	default:
		return InvalidAVPValue
	}
	qos := s.group(avp.QoSInformation)
	qci, _ := qos.number(avp.QoSClassIdentifier)
	if qci > 255 {
		return InvalidAVPValue
	}
	r.QCI = uint8(qci)
	_, _, r.UpRate, r.DownRate = parseRates(qos)
	return nil
}

// unknown returns the octets of an AVP that go-diameter's dictionary lacks.
func (s set) unknown(code uint32) ([]byte, bool) {
	a := s.find(code)
	if a == nil {
		return nil, false
	}
	return a.Data.Serialize(), true
}
