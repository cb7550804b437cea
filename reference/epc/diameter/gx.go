package diameter

import (
	"net/netip"

	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"
)

// The commands of Gx: Credit-Control (RFC 4006 clause 3), and Re-Auth, which the PCRF
// sends (RFC 6733 clause 8.3).
const (
	creditControl = 272
	reAuth        = 258
)

// The types of a request (RFC 4006 clause 8.3).
const (
	initialRequest     = 1
	updateRequest      = 2
	terminationRequest = 3
)

// The kinds of a subscription identity (RFC 4006 clause 8.47), the IP-CAN type of an
// EPS (TS 29.212 clause 5.3.27), and the termination cause for a session that the UE
// ended (RFC 6733 clause 8.15).
const (
	endUserE164       = 0
	endUserIMSI       = 1
	epsIPCAN          = 5
	diameterLogout    = 1
	maximumRules      = 16
	requestNumberInit = 0
)

// A GxRequest is a P-GW's initial request for a session.
type GxRequest struct {
	IMSI    string
	MSISDN  string // empty if it is not known
	APN     string
	Address netip.Addr // IPv4
	QoS     QoS        // of the default bearer
	AMBR    Rates
}

// A Policy is the PCRF's decision for a session.
type Policy struct {
	QoS   QoS // of the default bearer
	AMBR  Rates
	Rules []string // names of the predefined rules that apply
}

// avps returns the AVPs of an initial request (TS 29.212 clause 5.6.2).
func (r *GxRequest) avps() []*diam.AVP {
	address := r.Address.As4()
	all := []*diam.AVP{
		base(avp.CCRequestType, datatype.Enumerated(initialRequest)),
		base(avp.CCRequestNumber, number(requestNumberInit)),
		subscriptionID(endUserIMSI, r.IMSI),
	}
	if r.MSISDN != "" {
		all = append(all, subscriptionID(endUserE164, r.MSISDN))
	}
	return append(all,
		base(avp.FramedIPAddress, datatype.OctetString(address[:])),
		vendor(avp.IPCANType, datatype.Enumerated(epsIPCAN)),
		vendor(avp.RATType, datatype.Enumerated(EUTRAN)),
		base(avp.CalledStationID, datatype.UTF8String(r.APN)),
		vendor(avp.DefaultEPSBearerQoS, group(qosAVPs(r.QoS)...)),
		apnRates(r.AMBR),
	)
}

// terminationAVPs returns the AVPs of a session's last request. imsi may be empty.
func terminationAVPs(imsi string, requestNumber uint32) []*diam.AVP {
	all := []*diam.AVP{
		base(avp.CCRequestType, datatype.Enumerated(terminationRequest)),
		base(avp.CCRequestNumber, number(requestNumber)),
		base(avp.TerminationCause, datatype.Enumerated(diameterLogout)),
	}
	if imsi != "" {
		all = append(all, subscriptionID(endUserIMSI, imsi))
	}
	return all
}

func subscriptionID(kind int32, id string) *diam.AVP {
	return base(avp.SubscriptionID, group(
		base(avp.SubscriptionIDType, datatype.Enumerated(kind)), base(avp.SubscriptionIDData, datatype.UTF8String(id))))
}

// apnRates returns a QoS-Information with the rates of an APN (TS 29.212 clause
// 5.3.16).
func apnRates(r Rates) *diam.AVP {
	return vendor(avp.QoSInformation, group(
		vendor(avp.APNAggregateMaxBitrateUL, number(r.Up)), vendor(avp.APNAggregateMaxBitrateDL, number(r.Down))))
}

func parseAPNRates(s set) (r Rates) {
	g := s.group(avp.QoSInformation)
	r.Up, _ = g.number(avp.APNAggregateMaxBitrateUL)
	r.Down, _ = g.number(avp.APNAggregateMaxBitrateDL)
	return r
}

// parse reads an initial request. The error is a Result.
func (r *GxRequest) parse(s set) error {
	*r = GxRequest{AMBR: parseAPNRates(s)}
	for _, g := range s.groups(avp.SubscriptionID) {
		id, _ := g.text(avp.SubscriptionIDData)
		switch kind, _ := g.number(avp.SubscriptionIDType); kind {
		case endUserIMSI:
			r.IMSI = id
		case endUserE164:
			r.MSISDN = id
		}
	}
	if r.IMSI == "" {
		return wrong(s, avp.SubscriptionID)
	}
	var ok bool
	if r.APN, ok = s.text(avp.CalledStationID); !ok {
		return wrong(s, avp.CalledStationID)
	}
	if r.Address, ok = s.address(avp.FramedIPAddress); !ok {
		return wrong(s, avp.FramedIPAddress)
	}
	if r.QoS, ok = parseQoS(s.group(avp.DefaultEPSBearerQoS)); !ok {
		return wrong(s, avp.DefaultEPSBearerQoS)
	}
	return nil
}

// avps returns the AVPs of the answer to an initial request (TS 29.212 clause
// 5.6.3).
func (p *Policy) avps() []*diam.AVP {
	all := []*diam.AVP{vendor(avp.DefaultEPSBearerQoS, group(qosAVPs(p.QoS)...)), apnRates(p.AMBR)}
	for _, name := range p.Rules {
		all = append(all, vendor(avp.ChargingRuleInstall, group(vendor(avp.ChargingRuleName, datatype.OctetString(name)))))
	}
	return all
}

// parse reads the answer to an initial request.
func (p *Policy) parse(s set) error {
	*p = Policy{AMBR: parseAPNRates(s)}
	var ok bool
	if p.QoS, ok = parseQoS(s.group(avp.DefaultEPSBearerQoS)); !ok {
		return ErrAnswer
	}
	for _, g := range s.groups(avp.ChargingRuleInstall) {
		if name, ok := g.text(avp.ChargingRuleName); ok && len(p.Rules) < maximumRules {
			p.Rules = append(p.Rules, name)
		}
	}
	return nil
}
