package message

import (
	"encoding/binary"
	"net/netip"

	"vitrine/wire/diameter"
)

// AVPs that package diameter does not name.
const (
	framedIP   diameter.Code = 8   // RFC 7155 section 4.4.10.5.1
	framedIPv6 diameter.Code = 97  // RFC 7155 section 4.4.10.5.6
	msisdnAVP  diameter.Code = 701 // TS 29.329 clause 6.3.2
)

// diameterMessages reads the messages that fill data, as in an SCTP user message.
func (r *reading) diameterMessages(o *origin, data []byte) {
	for len(data) > 0 {
		n, err := r.decoders.diameter.Parse(data)
		if err != nil {
			r.counts.bad(Diameter, reason(err))
			return
		}
		r.diameter(o, &r.decoders.diameter)
		data = data[n:]
	}
}

// diameter delivers a parsed message.
func (r *reading) diameter(o *origin, m *diameter.Message) {
	s := r.slot(o, Diameter)
	s.m.Bytes = len(m.Octets)
	s.part, s.m.Kind = only, Answer
	code, client := uint64(m.Command), o.dst
	if m.IsRequest() {
		s.part, s.m.Kind = opens, Request
		code, client = code|1<<24, o.src
	}
	s.key = join(join(o.link, hashEnd(client)), uint64(m.HopByHop)) // both ends send requests, and each chooses its numbers
	s.number(HopByHop, o.link, uint64(m.HopByHop))
	s.number(EndToEnd, uint64(m.Command)<<8, uint64(m.EndToEnd)) // not scoped by Origin-Host, which differs in answers
	var kind diameter.RequestType
	var result diameter.Result
	avps := m.Each()
	for avps.Next() {
		switch {
		case avps.Vendor != 0:
			s.threeGPP(&avps)
		case avps.Code == diameter.CCRequestType && len(avps.Value) == 4:
			kind = diameter.RequestType(binary.BigEndian.Uint32(avps.Value))
		case avps.Code == diameter.ResultCode && len(avps.Value) == 4:
			result.Code = binary.BigEndian.Uint32(avps.Value)
		case avps.Code == diameter.ExperimentalResult:
			result, _ = m.Result()
		default:
			s.avp(&avps, m)
		}
	}
	if avps.Err != nil {
		r.counts.bad(Diameter, reason(avps.Err))
	}
	if kind >= diameter.Initial && kind <= diameter.Event {
		code |= uint64(kind) << 25
	}
	s.m.Name = r.words.number(Diameter, code, func() string {
		if kind >= diameter.Initial && kind <= diameter.Event {
			return m.Name() + " (" + kind.String() + ")"
		}
		return m.Name()
	})
	if s.m.Kind == Answer && result.Code != 0 && (!result.Succeeded() || result.Code < 2000) {
		s.m.Failed, s.m.Cause = !result.Succeeded(), r.code(Diameter, int(result.Code))
	}
	r.commit(s)
}

// avp adds the identifiers in an AVP of the IETF.
func (s *slot) avp(a *diameter.AVPs, m *diameter.Message) {
	switch a.Code {
	case diameter.SessionID:
		if id := s.add(SessionID, 0, a.Value); id != nil {
			// Charging and policy sessions last; other sessions have one exchange.
			id.Lasting = m.Application == diameter.Gx || m.Application == diameter.Rx || m.Application == diameter.CreditCharging
		}
	case diameter.UserName:
		if isDigits(a.Value) && len(a.Value) >= 6 {
			s.add(IMSI, 0, a.Value)
		} else {
			s.person(IMPI, a.Value)
		}
	case diameter.SubscriptionID:
		s.subscription(a.Value)
	case framedIP:
		if addr, ok := netip.AddrFromSlice(a.Value); ok && addr.Is4() {
			s.address(addr)
		}
	case framedIPv6:
		if len(a.Value) >= 2 && len(a.Value) <= 18 { // reserved octet, prefix length, prefix
			var b [16]byte
			copy(b[:], a.Value[2:])
			s.address(netip.AddrFrom16(b))
		}
	}
}

// subscription adds the identity of a Subscription-Id (RFC 4006 section 8.46).
func (s *slot) subscription(value []byte) {
	kind, data := diameter.SubscriptionType(1<<31), []byte(nil)
	for a := diameter.Group(value); a.Next(); {
		switch {
		case a.Vendor != 0:
		case a.Code == diameter.SubscriptionIDType && len(a.Value) == 4:
			kind = diameter.SubscriptionType(binary.BigEndian.Uint32(a.Value))
		case a.Code == diameter.SubscriptionIDData:
			data = a.Value
		}
	}
	switch kind {
	case diameter.E164:
		s.add(MSISDN, 0, data)
	case diameter.IMSI:
		s.add(IMSI, 0, data)
	case diameter.SIPURI:
		s.public(data)
	case diameter.NAI, diameter.Private:
		s.person(IMPI, data)
	}
}

// threeGPP adds the identifiers in an AVP of 3GPP.
func (s *slot) threeGPP(a *diameter.AVPs) {
	if a.Vendor != diameter.ThreeGPP {
		return
	}
	switch a.Code {
	case diameter.PublicIdentity:
		s.public(a.Value)
	case diameter.UserIdentity:
		for inner := diameter.Group(a.Value); inner.Next(); {
			if inner.Vendor == diameter.ThreeGPP && inner.Code != diameter.UserIdentity {
				s.threeGPP(&inner)
			}
		}
	case msisdnAVP:
		s.tbcd(MSISDN, a.Value)
	}
}
