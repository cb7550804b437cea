// Package epctest has an MME's neighbours for tests: an HSS and a gateway in the
// same process. They compute and store what real ones do, but use no protocol.
package epctest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	"vitrine/reference/epc/aka"
	"vitrine/reference/epc/mme"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// An HSS knows all IMSIs of one network. aka.SecretOf derives their keys.
type HSS struct {
	Home identity.PLMN
	APN  string // default APN

	mu      sync.Mutex
	sqn     map[identity.Digits]uint64
	located map[identity.Digits]bool
}

// NewHSS returns an HSS.
func NewHSS(home identity.PLMN) *HSS {
	return &HSS{Home: home, APN: "internet", sqn: map[identity.Digits]uint64{}, located: map[identity.Digits]bool{}}
}

// knows reports whether the IMSI belongs to the HSS's network.
func (h *HSS) knows(imsi identity.Digits) bool {
	d := imsi.Bytes()
	if len(d) != 15 {
		return false
	}
	short, _ := identity.MakePLMN(string(d[:3]), string(d[3:5]))
	long, _ := identity.MakePLMN(string(d[:3]), string(d[3:6]))
	return h.Home == short || h.Home == long
}

// Vector returns a vector for a challenge.
func (h *HSS) Vector(_ context.Context, imsi identity.Digits, serving identity.PLMN, failed *mme.Resynchronisation) (aka.Vector, error) {
	if !h.knows(imsi) {
		return aka.Vector{}, mme.ErrUnknown
	}
	secret := aka.SecretOf(imsi.String())
	h.mu.Lock()
	if failed != nil {
		sqn, err := secret.Resynchronise(failed.RAND, failed.AUTS)
		if err != nil {
			h.mu.Unlock()
			return aka.Vector{}, err
		}
		h.sqn[imsi] = sqn
	}
	h.sqn[imsi]++
	sqn := h.sqn[imsi]
	h.mu.Unlock()
	var challenge [16]byte
	_, _ = rand.Read(challenge[:]) // never fails (crypto/rand)
	return secret.Vector(challenge, sqn, serving)
}

// UpdateLocation returns the subscription, which is the same for all subscribers.
func (h *HSS) UpdateLocation(_ context.Context, imsi identity.Digits, _ identity.PLMN) (mme.Subscription, error) {
	if !h.knows(imsi) {
		return mme.Subscription{}, mme.ErrUnknown
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.located[imsi] = true
	const up, down = 50_000_000, 100_000_000
	return mme.Subscription{APN: h.APN, QCI: 9, Priority: 8, Up: up, Down: down, APNUp: up, APNDown: down}, nil
}

// Purge removes the subscriber's location.
func (h *HSS) Purge(_ context.Context, imsi identity.Digits) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.located[imsi] {
		return fmt.Errorf("epctest: %v is purged, but located nowhere", imsi)
	}
	delete(h.located, imsi)
	return nil
}

// SetSQN sets the sequence number of a subscriber's last challenge.
func (h *HSS) SetSQN(imsi identity.Digits, sqn uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sqn[imsi] = sqn
}

// Located returns the number of subscribers that have a location.
func (h *HSS) Located() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.located)
}

// A Bearer is the default bearer of a session.
type Bearer struct {
	IMSI   identity.Digits
	ENodeB s1ap.Tunnel // has no address while the UE is idle
}

// A Gateway is an S-GW with a P-GW.
type Gateway struct {
	mu       sync.Mutex
	last     uint32
	sessions map[uint32]Bearer
}

// NewGateway returns a gateway.
func NewGateway() *Gateway { return &Gateway{sessions: map[uint32]Bearer{}} }

var errSession = errors.New("epctest: the gateway has no such session")

var errBearers = errors.New("epctest: the gateway has no dedicated bearers")

// CreateSession creates a session.
func (g *Gateway) CreateSession(_ context.Context, r mme.SessionRequest) (mme.Session, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	g.sessions[g.last] = Bearer{IMSI: r.IMSI}
	n := g.last
	return mme.Session{
		Control: n, Bearer: r.Bearer,
		Uplink:  s1ap.Tunnel{V4: netip.AddrFrom4([4]byte{127, 0, 0, 3}), TEID: n},
		Address: netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}),
	}, nil
}

// ModifyBearer stores the eNodeB's end of a session's bearer, if there is an eNodeB.
func (g *Gateway) ModifyBearer(_ context.Context, s mme.Session, enodeb s1ap.Tunnel) error {
	return g.change(s, func(b *Bearer) {
		if enodeb != (s1ap.Tunnel{}) {
			b.ENodeB = enodeb
		}
	})
}

// ReleaseAccessBearers removes the eNodeB's end of a session's bearer.
func (g *Gateway) ReleaseAccessBearers(_ context.Context, s mme.Session) error {
	return g.change(s, func(b *Bearer) { b.ENodeB = s1ap.Tunnel{} })
}

func (g *Gateway) change(s mme.Session, change func(*Bearer)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, ok := g.sessions[s.Control]
	if !ok {
		return errSession
	}
	change(&b)
	g.sessions[s.Control] = b
	return nil
}

// RequestBearer refuses every request: tests of the MME create bearers
// themselves.
func (g *Gateway) RequestBearer(context.Context, mme.Session, mme.ResourceRequest) error {
	return errBearers
}

// DeleteSession removes a session.
func (g *Gateway) DeleteSession(_ context.Context, s mme.Session) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.sessions[s.Control]; !ok {
		return errSession
	}
	delete(g.sessions, s.Control)
	return nil
}

// Sessions returns the bearers of a subscriber's sessions.
func (g *Gateway) Sessions(imsi identity.Digits) (of []Bearer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, b := range g.sessions {
		if b.IMSI == imsi {
			of = append(of, b)
		}
	}
	return of
}

// Len returns the number of sessions.
func (g *Gateway) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.sessions)
}
