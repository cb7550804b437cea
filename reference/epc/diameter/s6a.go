package diameter

import (
	"github.com/fiorix/go-diameter/v4/diam"
	"github.com/fiorix/go-diameter/v4/diam/avp"
	"github.com/fiorix/go-diameter/v4/diam/datatype"

	"vitrine/reference/epc/aka"
	"vitrine/wire/identity"
)

// EUTRAN is the RAT type of an eNodeB (TS 29.212 clause 5.3.31).
const EUTRAN uint32 = 1004

// The commands of S6a (TS 29.272 clause 7.2.2).
const (
	updateLocation            = 316
	cancelLocation            = 317
	authenticationInformation = 318
	purgeUE                   = 321
)

// An AuthenticationRequest is an Authentication-Information-Request (clause 7.2.5).
type AuthenticationRequest struct {
	IMSI    string
	PLMN    identity.PLMN
	Vectors int     // requested number of vectors
	Resync  *Resync // nil: none
}

// resyncSize is the number of octets of a Re-Synchronization-Info: RAND and AUTS.
const resyncSize = 30

func (r *AuthenticationRequest) avps() []*diam.AVP {
	info := []*diam.AVP{
		vendor(avp.NumberOfRequestedVectors, number(r.Vectors)),
		vendor(avp.ImmediateResponsePreferred, number(0)),
	}
	if r.Resync != nil {
		info = append(info, vendor(avp.ResynchronizationInfo, datatype.OctetString(append(r.Resync.RAND[:], r.Resync.AUTS[:]...))))
	}
	return []*diam.AVP{
		base(avp.UserName, datatype.UTF8String(r.IMSI)),
		vendor(avp.RequestedEUTRANAuthenticationInfo, group(info...)),
		vendor(avp.VisitedPLMNID, datatype.OctetString(r.PLMN[:])),
	}
}

// parse reads the request. The error is a Result.
func (r *AuthenticationRequest) parse(s set) error {
	*r = AuthenticationRequest{}
	if err := subscriber(s, &r.IMSI); err != nil {
		return err
	}
	if !s.octets(avp.VisitedPLMNID, r.PLMN[:]) {
		return wrong(s, avp.VisitedPLMNID)
	}
	info := s.group(avp.RequestedEUTRANAuthenticationInfo)
	if info == nil {
		return wrong(s, avp.RequestedEUTRANAuthenticationInfo)
	}
	n, _ := info.number(avp.NumberOfRequestedVectors)
	r.Vectors = int(min(n, 1<<10))
	var both [resyncSize]byte
	if info.octets(avp.ResynchronizationInfo, both[:]) {
		r.Resync = &Resync{RAND: [16]byte(both[:16]), AUTS: [14]byte(both[16:])}
	} else if info.find(avp.ResynchronizationInfo) != nil {
		return InvalidAVPValue
	}
	return nil
}

// subscriber reads the User-Name, an IMSI. The error is a Result.
func subscriber(s set, into *string) error {
	imsi, ok := s.text(avp.UserName)
	if !ok {
		return MissingAVP
	}
	if d, ok := identity.MakeDigits(imsi); !ok || d.Len() > 15 {
		return UserUnknown
	}
	*into = imsi
	return nil
}

// wrong returns the result for an AVP that is missing or has an invalid value.
func wrong(s set, code uint32) Result {
	if s.find(code) == nil {
		return MissingAVP
	}
	return InvalidAVPValue
}

// vectorAVPs returns the Authentication-Info of an answer (clause 7.3.17).
func vectorAVPs(vectors []aka.Vector) []*diam.AVP {
	all := make([]*diam.AVP, len(vectors))
	for i, v := range vectors {
		all[i] = vendor(avp.EUTRANVector, group(
			vendor(avp.ItemNumber, number(i+1)),
			vendor(avp.RAND, datatype.OctetString(v.RAND[:])),
			vendor(avp.XRES, datatype.OctetString(v.XRES[:])),
			vendor(avp.AUTN, datatype.OctetString(v.AUTN[:])),
			vendor(avp.KASME, datatype.OctetString(v.KASME[:])),
		))
	}
	return []*diam.AVP{vendor(avp.AuthenticationInfo, group(all...))}
}

// parseVector returns the first vector of an answer.
func parseVector(s set) (v aka.Vector, err error) {
	g := s.group(avp.AuthenticationInfo).group(avp.EUTRANVector)
	if !g.octets(avp.RAND, v.RAND[:]) || !g.octets(avp.XRES, v.XRES[:]) || !g.octets(avp.AUTN, v.AUTN[:]) || !g.octets(avp.KASME, v.KASME[:]) {
		return aka.Vector{}, ErrAnswer
	}
	return v, nil
}

// A LocationRequest is an Update-Location-Request (clause 7.2.3).
type LocationRequest struct {
	IMSI string
	PLMN identity.PLMN
	RAT  uint32
}

// ulrFlags are the flags of an MME: S6a/S6d indicator, and initial attach (clause
// 7.3.7).
const ulrFlags = 1<<1 | 1<<5

// ulaSeparation is the flag of an HSS that stores MME and SGSN separately (clause
// 7.3.8).
const ulaSeparation = 1

func (r *LocationRequest) avps() []*diam.AVP {
	return []*diam.AVP{
		base(avp.UserName, datatype.UTF8String(r.IMSI)),
		vendor(avp.RATType, datatype.Enumerated(r.RAT)),
		vendor(avp.ULRFlags, number(ulrFlags)),
		vendor(avp.VisitedPLMNID, datatype.OctetString(r.PLMN[:])),
	}
}

// parse reads the request. The error is a Result.
func (r *LocationRequest) parse(s set) error {
	*r = LocationRequest{}
	if err := subscriber(s, &r.IMSI); err != nil {
		return err
	}
	if !s.octets(avp.VisitedPLMNID, r.PLMN[:]) {
		return wrong(s, avp.VisitedPLMNID)
	}
	var ok bool
	if r.RAT, ok = s.number(avp.RATType); !ok {
		return wrong(s, avp.RATType)
	}
	return nil
}

// Subscription status and access (clauses 7.3.29 and 7.3.21), and the indicator
// that the profile has all APNs (clause 7.3.33).
const (
	serviceGranted = 0
	onlyPacket     = 2
	allAPNs        = 0
)

// avps returns the AVPs of an Update-Location-Answer.
func (s *Subscription) avps() []*diam.AVP {
	profile := []*diam.AVP{
		vendor(avp.ContextIdentifier, number(s.Default)),
		vendor(avp.AllAPNConfigurationsIncludedIndicator, datatype.Enumerated(allAPNs)),
	}
	for i := range s.APNs {
		a := &s.APNs[i]
		profile = append(profile, vendor(avp.APNConfiguration, group(
			vendor(avp.ContextIdentifier, number(a.Context)),
			vendor(avp.PDNType, datatype.Enumerated(a.PDN-1)), // 0 is IPv4 (clause 7.3.62)
			base(avp.ServiceSelection, datatype.UTF8String(a.Name)),
			vendor(avp.EPSSubscribedQoSProfile, group(qosAVPs(a.QoS)...)),
			ambrAVP(a.AMBR),
		)))
	}
	return []*diam.AVP{
		vendor(avp.ULAFlags, number(ulaSeparation)),
		vendor(avp.SubscriptionData, group(
			vendor(avp.SubscriberStatus, datatype.Enumerated(serviceGranted)),
			vendor(avp.MSISDN, datatype.OctetString(identity.AppendTBCD(nil, s.MSISDN))),
			vendor(avp.NetworkAccessMode, datatype.Enumerated(onlyPacket)),
			ambrAVP(s.AMBR),
			vendor(avp.APNConfigurationProfile, group(profile...)),
		)),
	}
}

// parse reads the AVPs of an Update-Location-Answer.
func (s *Subscription) parse(from set) error {
	*s = Subscription{}
	data := from.group(avp.SubscriptionData)
	profile := data.group(avp.APNConfigurationProfile)
	var ok bool
	if s.Default, ok = profile.number(avp.ContextIdentifier); !ok {
		return ErrAnswer
	}
	if number, ok := data.text(avp.MSISDN); ok {
		s.MSISDN = digits(number)
	}
	s.AMBR = parseAMBR(data)
	for _, g := range profile.groups(avp.APNConfiguration) {
		var a APN
		var kind uint32
		a.Context, _ = g.number(avp.ContextIdentifier)
		if kind, ok = g.number(avp.PDNType); !ok || kind > 3 {
			return ErrAnswer
		}
		a.PDN = uint8(min(kind+1, 3)) // 3 means IPv4 or IPv6, and the UE chooses
		if a.Name, ok = g.text(avp.ServiceSelection); !ok {
			return ErrAnswer
		}
		if a.QoS, ok = parseQoS(g.group(avp.EPSSubscribedQoSProfile)); !ok {
			return ErrAnswer
		}
		a.AMBR = parseAMBR(g)
		s.APNs = append(s.APNs, a)
	}
	return nil
}

// ambrAVP returns an AMBR (clause 7.3.41).
func ambrAVP(r Rates) *diam.AVP {
	return vendor(avp.AMBR, group(
		vendor(avp.MaxRequestedBandwidthUL, number(r.Up)), vendor(avp.MaxRequestedBandwidthDL, number(r.Down))))
}

func parseAMBR(s set) (r Rates) {
	g := s.group(avp.AMBR)
	r.Up, _ = g.number(avp.MaxRequestedBandwidthUL)
	r.Down, _ = g.number(avp.MaxRequestedBandwidthDL)
	return r
}

// qosAVPs returns QCI and allocation and retention priority. These are the members
// of an EPS-Subscribed-QoS-Profile and of a Default-EPS-Bearer-QoS. In the
// preemption AVPs, 0 means enabled (TS 29.212 clauses 5.3.46 and 5.3.47).
func qosAVPs(q QoS) []*diam.AVP {
	flag := func(enabled bool) datatype.Enumerated {
		if enabled {
			return 0
		}
		return 1
	}
	return []*diam.AVP{
		vendor(avp.QoSClassIdentifier, datatype.Enumerated(q.QCI)),
		vendor(avp.AllocationRetentionPriority, group(
			vendor(avp.PriorityLevel, number(q.Priority)),
			vendor(avp.PreemptionCapability, flag(q.MayPreempt)),
			vendor(avp.PreemptionVulnerability, flag(q.Preemptable)),
		)),
	}
}

func parseQoS(s set) (q QoS, ok bool) {
	qci, ok := s.number(avp.QoSClassIdentifier)
	if !ok || qci == 0 || qci > 255 {
		return QoS{}, false
	}
	arp := s.group(avp.AllocationRetentionPriority)
	priority, ok := arp.number(avp.PriorityLevel)
	if !ok || priority == 0 || priority > 15 {
		return QoS{}, false
	}
	capability, ok := arp.number(avp.PreemptionCapability)
	q.MayPreempt = ok && capability == 0
	vulnerability, ok := arp.number(avp.PreemptionVulnerability)
	q.Preemptable = !ok || vulnerability == 0 // both AVPs have a default
	q.QCI, q.Priority = uint8(qci), uint8(priority)
	return q, true
}

// digits decodes TBCD, up to the first half that is not a digit.
func digits(octets string) string {
	var b []byte
	for i := range len(octets) {
		for _, half := range [2]byte{octets[i] & 0x0f, octets[i] >> 4} {
			if half > 9 {
				return string(b)
			}
			b = append(b, '0'+half)
		}
	}
	return string(b)
}
