package mme

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"vitrine/reference/epc/aka"
	"vitrine/wire/identity"
	"vitrine/wire/s1ap"
)

// A kept is a UE context as JSON in the store. It has what another MME needs to serve the
// attached UE, without a connection.
type kept struct {
	IMSI string `json:"imsi"`
	// The S-TMSI. The M-TMSI is also the MME's TEID on S11, so it must be unique among
	// all MMEs that share the store.
	Code  uint8  `json:"code"`
	TMSI  uint32 `json:"tmsi"`
	Owner uint8  `json:"owner"` // the instance that served the UE last
	Due   int64  `json:"due"`   // Unix milliseconds by the host's clock, which may jump: when a silent UE is detached

	Leaving bool `json:"leaving,omitempty"` // the owner is detaching the UE

	// The security context (TS 33.401 clause 7.2.6). Down is higher than the last used
	// COUNT; see reserve.
	KASME      []byte `json:"kasme"`
	Cipher     uint8  `json:"cipher"`
	KSI        uint8  `json:"ksi"`
	Up         uint32 `json:"up"`
	Down       uint32 `json:"down"`
	Capability []byte `json:"capability"`
	GEA        uint8  `json:"gea,omitempty"`
	Radio      []byte `json:"radio,omitempty"`

	TAI          identity.TAI  `json:"tai"`
	ECGI         identity.ECGI `json:"ecgi"`
	Subscription Subscription  `json:"subscription"`
	Session      Session       `json:"session"`
}

// reserve is the number of downlink NAS COUNTs that a record skips while the UE is
// connected, so that an MME that takes over the UE uses no COUNT twice. It is less than a
// cycle of the sequence number, so that the UE can follow (TS 24.301 clause 4.4.3.1).
const reserve = 64

// maxDrift is how far a NAS COUNT may move before the record is written again. It is less
// than the cycle of a Service Request's sequence number, which is 32 (TS 24.301 clause
// 9.9.3.19).
const maxDrift = 16

// leaveWithin is the time that an MME has to detach a UE. After that, the record's timer
// makes another MME finish the detach.
const leaveWithin = 10 * time.Second

var errKept = errors.New("mme: the record of a UE is malformed")

// parseKept parses a record.
func parseKept(value []byte) (*kept, error) {
	var k kept
	if err := json.Unmarshal(value, &k); err != nil {
		return nil, fmt.Errorf("%w: %w", errKept, err)
	}
	_, ok := identity.MakeDigits(k.IMSI)
	if !ok || k.IMSI == "" || len(k.KASME) != 32 || len(k.Capability) < 2 || len(k.Capability) > len(ue{}.capability) || len(k.Radio) > maxRadio ||
		k.KSI >= noKey || !hasAddress(k.Session.Uplink) || !areSound(k.Session.Dedicated) || k.Cipher != uint8(aka.Null) && k.Cipher != uint8(aka.AES) {
		return nil, errKept
	}
	return &k, nil
}

// areSound reports whether the dedicated bearers of a record are valid for an eNodeB.
func areSound(bearers []DedicatedBearer) bool {
	seen := uint16(0)
	for _, b := range bearers {
		bit := uint16(1) << (b.ID & 0x0f)
		if b.ID <= defaultBearer || b.ID > lastBearer || seen&bit != 0 || !hasAddress(b.Uplink) {
			return false
		}
		seen |= bit
	}
	return true
}

// hasAddress reports whether S1AP can carry the addresses of a tunnel: there is at least
// one, and V4 is not an IPv6 address.
func hasAddress(t s1ap.Tunnel) bool { return t.V4.Is4() || !t.V4.IsValid() && t.V6.Is6() }

func (k *kept) stmsi() identity.STMSI { return identity.STMSI{Code: k.Code, TMSI: k.TMSI} }

// due returns when a silent UE is detached, or a zero time if there is no record.
func (k *kept) due() time.Time {
	if k == nil {
		return time.Time{}
	}
	return time.UnixMilli(k.Due)
}

// snapshot returns the record of a context. skip is the number of downlink NAS COUNTs
// that the record skips; see reserve.
func (w *worker) snapshot(u *ue, skip uint32) *kept {
	return &kept{
		IMSI: u.imsi.String(), Code: u.stmsi.Code, TMSI: u.stmsi.TMSI, Owner: w.mme.config.Instance,
		Due:   time.Now().Add(w.mme.config.Timers.Reachable).UnixMilli(),
		KASME: append([]byte(nil), u.kasme[:]...), Cipher: uint8(u.cipher), KSI: u.ksi, Up: u.up, Down: u.down + skip,
		Capability: append([]byte(nil), u.capability[:u.capLength]...), GEA: u.gea, Radio: append([]byte(nil), u.radio...),
		TAI: u.tai, ECGI: u.ecgi, Subscription: u.subscription, Session: u.session,
	}
}

// restore fills a context from a record with a tag.
func (w *worker) restore(u *ue, k *kept, tag string) error {
	protection, err := aka.NewProtection([32]byte(k.KASME), aka.Algorithm(k.Cipher), aka.AES)
	if err != nil {
		return err
	}
	u.protection, u.cipher, u.ksi, u.up, u.down = protection, aka.Algorithm(k.Cipher), k.KSI, k.Up, k.Down
	u.kasme = [32]byte(k.KASME)
	u.imsi, _ = identity.MakeDigits(k.IMSI) // parseKept has checked it
	u.capLength, u.gea = uint8(copy(u.capability[:], k.Capability)), k.GEA
	u.radio = append(u.radio[:0], k.Radio...)
	u.tai, u.ecgi = k.TAI, k.ECGI
	u.subscription, u.subscribed = k.Subscription, true
	u.session, u.hasSession = k.Session, true
	u.attached = true
	u.keep(k, tag)
	u.moved = k.Owner != w.mme.config.Instance
	return nil
}

// keep notes which record of the context the store has.
func (u *ue) keep(k *kept, tag string) {
	u.stored, u.tag, u.due, u.keptUp, u.keptDown = true, tag, k.due(), k.Up, k.Down
}
