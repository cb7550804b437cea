package message

import "vitrine/wire/nas"

// nasMessages are what a reading parses NAS messages into.
type nasMessages struct {
	attach     nas.AttachRequest
	accept     nas.AttachAccept
	update     nas.UpdateRequest
	updated    nas.UpdateAccept
	reallocate nas.ReallocationCommand
	identity   nas.IdentityResponse
	detach     nas.DetachRequest
}

// A nasName is a type of a NAS message. Zero is none.
type nasName uint16

// Messages whose type cannot be read.
const (
	serviceRequest nasName = 0x100
	ciphered       nasName = 0x101
)

func (n nasName) String() string {
	switch n {
	case 0:
		return ""
	case serviceRequest:
		return "Service Request"
	case ciphered:
		return "ciphered"
	}
	return capitals(nas.Type(n).String())
}

// nas adds the identifiers in a NAS message, and returns its name. It also reads a
// message with a header for ciphering if its body is plain, as with EEA0: the body begins with
// a header of EMM or ESM and a known type of that protocol. About one in 170 ciphered bodies
// begins so by chance.
func (r *reading) nas(s *slot, octets []byte) nasName {
	pdu := &r.decoders.pdu
	if err := pdu.Parse(octets); err != nil {
		r.counts.bad(S1AP, reason(err))
		return 0
	}
	if pdu.Security == nas.ServiceRequestHeader {
		return serviceRequest
	}
	h, err := nas.ParseHeader(pdu.Body)
	if pdu.Security.IsCiphered() && (err != nil || !h.IsKnown()) {
		return ciphered
	}
	if err != nil {
		return 0
	}
	r.nasIdentities(s, pdu.Body, h.Type)
	return nasName(h.Type)
}

// nasIdentities adds the identities in a plain message. A malformed message has none.
func (r *reading) nasIdentities(s *slot, body []byte, t nas.Type) {
	d := &r.decoders.nas
	switch t {
	case nas.AttachRequestType:
		if d.attach.Parse(body) == nil {
			s.mobile(&d.attach.Identity)
			if d.attach.HasGUTI {
				s.guti(d.attach.GUTI.STMSI())
			}
		}
	case nas.AttachAcceptType:
		if d.accept.Parse(body) == nil && d.accept.HasGUTI {
			s.guti(d.accept.GUTI.STMSI())
		}
	case nas.UpdateRequestType:
		if d.update.Parse(body) == nil {
			s.mobile(&d.update.GUTI)
			if d.update.HasNewGUTI {
				s.guti(d.update.NewGUTI.STMSI())
			}
		}
	case nas.UpdateAcceptType:
		if d.updated.Parse(body) == nil && d.updated.HasGUTI {
			s.guti(d.updated.GUTI.STMSI())
		}
	case nas.ReallocationCommandType:
		if d.reallocate.Parse(body) == nil {
			s.guti(d.reallocate.GUTI.STMSI())
		}
	case nas.IdentityResponseType:
		if d.identity.Parse(body) == nil {
			s.mobile(&d.identity.Identity)
		}
	case nas.DetachRequestType:
		if d.detach.Parse(body) == nil {
			s.mobile(&d.detach.Identity)
		}
	case nas.AttachRejectType, nas.UpdateRejectType, nas.ServiceRejectType, nas.AuthenticationRejectType, nas.ConnectivityRejectType:
		s.m.Failed = true
	}
}

// mobile adds a mobile identity.
func (s *slot) mobile(id *nas.Identity) {
	switch id.Kind {
	case nas.KindIMSI:
		s.digits(IMSI, id.Digits)
	case nas.KindGUTI:
		s.guti(id.GUTI.STMSI())
	}
}
