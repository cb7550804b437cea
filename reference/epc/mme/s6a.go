package mme

import (
	"context"
	"errors"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/diameter"
	"vitrine/wire/identity"
)

// s6a is the Subscribers interface over Diameter.
type s6a struct{ hss *diameter.MME }

// Vector sends an Authentication-Information-Request.
func (s s6a) Vector(ctx context.Context, imsi identity.Digits, serving identity.PLMN, failed *Resynchronisation) (aka.Vector, error) {
	v, err := s.hss.Authenticate(ctx, imsi.String(), serving, failed)
	return v, unknown(err)
}

// UpdateLocation sends an Update-Location-Request.
func (s s6a) UpdateLocation(ctx context.Context, imsi identity.Digits, serving identity.PLMN) (Subscription, error) {
	of, err := s.hss.UpdateLocation(ctx, imsi.String(), serving)
	if err != nil {
		return Subscription{}, unknown(err)
	}
	apn, ok := of.DefaultAPN()
	if !ok {
		return Subscription{}, errNoAPN
	}
	return Subscription{
		APN: apn.Name, QCI: apn.QoS.QCI, Priority: apn.QoS.Priority, Up: uint64(of.AMBR.Up), Down: uint64(of.AMBR.Down),
		APNUp: uint64(apn.AMBR.Up), APNDown: uint64(apn.AMBR.Down),
	}, nil
}

var errNoAPN = errors.New("mme: the subscription has no default APN")

// Purge sends a Purge-UE-Request.
func (s s6a) Purge(ctx context.Context, imsi identity.Digits) error {
	return s.hss.Purge(ctx, imsi.String())
}

// unknown joins ErrUnknown to the results that mean an unknown subscriber (TS 29.272
// clauses 7.4.3.1 and 7.4.3.2).
func unknown(err error) error {
	if errors.Is(err, diameter.UserUnknown) || errors.Is(err, diameter.UnknownEPSSubscription) {
		return errors.Join(ErrUnknown, err)
	}
	return err
}
