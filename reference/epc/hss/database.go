package hss

import (
	"crypto/rand"
	"errors"
	"sync"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/diameter"
	"vitrine/reference/epc/subscriber"
)

// A database answers MMEs. It has a state for each subscriber that was
// authenticated or registered, so the number of states is at most the number of
// subscribers.
type database struct {
	subscribers *subscriber.Set
	// cancel makes an MME forget a subscriber that now has another MME.
	cancel func(mme, imsi string)

	mu     sync.Mutex
	states map[string]*state // by IMSI
	served int               // number of states with an MME
}

// A state is the variable data of a subscriber.
type state struct {
	sqn uint64 // the last sequence number
	mme string // Diameter identity of the subscriber's MME; empty: none
}

// sequenceStep is the step between sequence numbers. Their low five bits are the
// index of TS 33.102 annex C.1.1.1, which is always 0 here.
const sequenceStep = 1 << 5

// state returns the state of a known subscriber. The caller holds mu.
func (d *database) state(imsi string) *state {
	s := d.states[imsi]
	if s == nil {
		s = new(state)
		d.states[imsi] = s
	}
	return s
}

// Authenticate makes authentication vectors (TS 29.272 clause 5.2.3.1.3).
func (d *database) Authenticate(_ string, r diameter.AuthenticationRequest) ([]aka.Vector, error) {
	secret, ok := d.subscribers.Secret(r.IMSI)
	if !ok {
		return nil, diameter.UserUnknown
	}
	if r.Resync != nil {
		sqn, err := secret.Resynchronise(r.Resync.RAND, r.Resync.AUTS)
		if errors.Is(err, aka.ErrAUTS) {
			return nil, diameter.AuthenticationDataUnavailable
		} else if err != nil {
			return nil, err
		}
		d.mu.Lock()
		d.state(r.IMSI).sqn = sqn &^ (sequenceStep - 1)
		d.mu.Unlock()
	}
	vectors := make([]aka.Vector, min(max(r.Vectors, 1), maxVectors))
	for i := range vectors {
		var challenge [16]byte
		_, _ = rand.Read(challenge[:]) // never fails (crypto/rand)
		var err error
		if vectors[i], err = secret.Vector(challenge, d.nextSQN(r.IMSI), r.PLMN); err != nil {
			return nil, err
		}
	}
	return vectors, nil
}

// maxVectors is the most vectors in an answer. The HSS may return fewer than
// requested (TS 29.272 clause 7.3.14).
const maxVectors = 5

// nextSQN returns a sequence number that the subscriber has not used before.
func (d *database) nextSQN(imsi string) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.state(imsi)
	s.sqn += sequenceStep
	return s.sqn
}

// UpdateLocation registers the subscriber's MME, and cancels the location at the
// previous one (TS 29.272 clause 5.2.1.1.3).
func (d *database) UpdateLocation(mme string, r diameter.LocationRequest) (diameter.Subscription, error) {
	if _, ok := d.subscribers.Secret(r.IMSI); !ok {
		return diameter.Subscription{}, diameter.UserUnknown
	}
	if r.RAT != diameter.EUTRAN {
		return diameter.Subscription{}, diameter.RATNotAllowed
	}
	d.mu.Lock()
	s := d.state(r.IMSI)
	before := s.mme
	if before == "" {
		d.served++
	}
	s.mme = mme
	d.mu.Unlock()
	if before != "" && before != mme {
		d.cancel(before, r.IMSI)
	}
	return d.subscribers.Subscription(r.IMSI), nil
}

// Purge removes the registration of the subscriber's MME (TS 29.272 clause
// 5.2.1.3.3). It reports whether this MME was the one that served the subscriber.
func (d *database) Purge(mme, imsi string) (served bool, err error) {
	if _, ok := d.subscribers.Secret(imsi); !ok {
		return false, diameter.UserUnknown
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.state(imsi)
	if mme == "" || s.mme != mme {
		return false, nil
	}
	s.mme = ""
	d.served--
	return true, nil
}
