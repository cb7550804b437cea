package ue

import (
	"vitrine/wire/identity"
	"vitrine/wire/nas"
)

// identity returns the GUTI, or the IMSI if the UE has none.
func (u *UE) identity() nas.Identity {
	if u.HasGUTI {
		return nas.Identity{Kind: nas.KindGUTI, GUTI: u.GUTI}
	}
	return nas.Identity{Kind: nas.KindIMSI, Digits: u.IMSI}
}

// identify returns the answer to an Identity Request.
func (u *UE) identify(body []byte) (answer nas.IdentityResponse, err error) {
	var m nas.IdentityRequest
	if err := m.Parse(body); err != nil {
		return answer, err
	}
	switch m.Kind {
	case nas.KindIMEI, nas.KindIMEISV:
		answer.Identity = u.equipment(m.Kind)
	default: // other values stand for the IMSI (TS 24.008 clause 10.5.5.9)
		answer.Identity = nas.Identity{Kind: nas.KindIMSI, Digits: u.IMSI}
	}
	return answer, nil
}

// equipment returns the identity of the equipment: 14 digits, the last of the IMSI, and then the spare
// digit of an IMEI or the software version of an IMEISV (TS 23.003 clause 6.2).
func (u *UE) equipment(k nas.Kind) nas.Identity {
	const serial = 14
	length := serial + 1
	if k == nas.KindIMEISV {
		length = serial + 2
	}
	id := nas.Identity{Kind: k}
	of := u.IMSI.Bytes()
	for i := len(of) - serial; i < len(of)-serial+length; i++ {
		digit := byte(0)
		if i >= 0 && i < len(of) {
			digit = of[i] - '0'
		}
		id.Digits.Add(digit)
	}
	return id
}

// updated handles a Tracking Area Update Accept. The UE confirms a new GUTI (TS 24.301 clause 5.5.3.2.4).
func (u *UE) updated(b, body []byte) ([]byte, Event, error) {
	var m nas.UpdateAccept
	if err := m.Parse(body); err != nil {
		return b, None, err
	}
	if !m.HasGUTI {
		return b, Updated, nil
	}
	return u.confirm(b, m.GUTI, nas.UpdateCompleteType), Updated, nil
}

// reallocated handles a GUTI Reallocation Command (TS 24.301 clause 5.4.1.3).
func (u *UE) reallocated(b, body []byte) ([]byte, Event, error) {
	var m nas.ReallocationCommand
	if err := m.Parse(body); err != nil {
		return b, None, err
	}
	return u.confirm(b, m.GUTI, nas.ReallocationCompleteType), Asked, nil
}

// confirm stores a new GUTI and appends the message that confirms it.
func (u *UE) confirm(b []byte, g identity.GUTI, t nas.Type) []byte {
	u.GUTI, u.HasGUTI = g, true
	u.body = (&nas.Empty{Type: t}).Append(u.body[:0])
	return u.protect(b, nas.Ciphered, u.body)
}
