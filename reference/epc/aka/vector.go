// Package aka is the EPS authentication and key agreement (3GPP TS 33.401) for the
// reference EPC and for generators that attach to one. It has authentication
// vectors by Milenage (TS 35.206), the keys that derive from them, and the
// protection of NAS messages with EIA2, EEA0 and EEA2. It has no SNOW 3G, no ZUC
// and no EIA0.
//
// Milenage is github.com/wmnsk/milenage, and AES-CMAC is Tink's. Both algorithms
// are frozen, and the tests here check both libraries against the test sets of the
// specifications.
package aka

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/wmnsk/milenage"

	"vitrine/wire/identity"
)

// The errors of Answer and Resynchronise.
var (
	ErrMAC  = errors.New("aka: message authentication code of the network is wrong")     // TS 33.401 clause 6.1.1: MAC failure
	ErrAUTS = errors.New("aka: AUTS is not from the subscriber")                         // TS 33.102 clause 6.3.5
	ErrBit  = errors.New("aka: AMF has no separation bit, so the network is not an EPS") // TS 33.401 clause 6.1.1
)

// AMF is the authentication management field of an EPS: the separation bit alone
// (TS 33.102 annex H).
const AMF uint16 = 0x8000

// maxSQN is the largest sequence number; it has 48 bits.
const maxSQN = 1<<48 - 1

// A Secret is what a USIM and the HSS share.
type Secret struct {
	K, OPc [16]byte
}

// A Vector is an EPS authentication vector (TS 33.401 clause 6.1.2).
type Vector struct {
	RAND, AUTN [16]byte
	XRES       [8]byte
	KASME      [32]byte
}

// Vector makes the vector for a challenge. sqn has 48 bits, and the caller must
// never use one twice (TS 33.102 annex C). plmn is the MME's network.
func (s Secret) Vector(rand [16]byte, sqn uint64, plmn identity.PLMN) (v Vector, err error) {
	m := milenage.NewWithOPc(s.K[:], s.OPc[:], rand[:], sqn&maxSQN, AMF)
	if err := m.ComputeAll(); err != nil {
		return v, fmt.Errorf("aka: compute a vector: %w", err)
	}
	autn, err := m.GenerateAUTN()
	if err != nil {
		return v, fmt.Errorf("aka: compute AUTN: %w", err)
	}
	v.RAND = rand
	copy(v.AUTN[:], autn)
	copy(v.XRES[:], m.RES)
	v.KASME = kasme(m.CK, m.IK, plmn, v.AUTN[:6])
	return v, nil
}

// An Answer is the UE's result of an authentication.
type Answer struct {
	SQN   uint64 // the caller must check that it is new, and otherwise send AUTS
	RES   [8]byte
	KASME [32]byte
}

// Answer checks a challenge and answers it (TS 33.102 clause 6.3.3). It returns
// ErrMAC if the challenge is not from the subscriber's network, and ErrBit if AUTN
// is not for an EPS.
func (s Secret) Answer(rand, autn [16]byte, plmn identity.PLMN) (a Answer, err error) {
	amf := binary.BigEndian.Uint16(autn[6:])
	m := milenage.NewWithOPc(s.K[:], s.OPc[:], rand[:], 0, amf)
	res, ck, ik, ak, err := m.F2345()
	if err != nil {
		return a, fmt.Errorf("aka: answer a challenge: %w", err)
	}
	subtle.XORBytes(m.SQN, autn[:6], ak)
	mac, err := m.F1()
	if err != nil {
		return a, fmt.Errorf("aka: check a challenge: %w", err)
	}
	if subtle.ConstantTimeCompare(mac, autn[8:]) != 1 {
		return a, ErrMAC
	}
	if amf&AMF == 0 {
		return a, ErrBit
	}
	a.SQN = number(m.SQN)
	copy(a.RES[:], res)
	a.KASME = kasme(ck, ik, plmn, autn[:6])
	return a, nil
}

// AUTS returns the UE's answer to a challenge with an old sequence number. It
// holds the UE's own sequence number (TS 33.102 clause 6.3.3).
func (s Secret) AUTS(rand [16]byte, sqn uint64) (auts [14]byte, err error) {
	v, err := milenage.NewWithOPc(s.K[:], s.OPc[:], rand[:], sqn&maxSQN, 0).GenerateAUTS()
	if err != nil {
		return auts, fmt.Errorf("aka: compute AUTS: %w", err)
	}
	copy(auts[:], v)
	return auts, nil
}

// Resynchronise returns the UE's sequence number from an AUTS. It returns ErrAUTS
// unless the AUTS is the subscriber's for this challenge.
func (s Secret) Resynchronise(rand [16]byte, auts [14]byte) (sqn uint64, err error) {
	m := milenage.NewWithOPc(s.K[:], s.OPc[:], rand[:], 0, 0)
	aks, err := m.F5Star()
	if err != nil {
		return 0, fmt.Errorf("aka: read an AUTS: %w", err)
	}
	subtle.XORBytes(m.SQN, auts[:6], aks)
	mac, err := m.F1Star(m.SQN, m.AMF)
	if err != nil {
		return 0, fmt.Errorf("aka: check an AUTS: %w", err)
	}
	if subtle.ConstantTimeCompare(mac, auts[6:]) != 1 {
		return 0, ErrAUTS
	}
	return number(m.SQN), nil
}

// number returns the value of a sequence number's six octets.
func number(sqn []byte) uint64 {
	var b [8]byte
	copy(b[2:], sqn)
	return binary.BigEndian.Uint64(b[:])
}

// kasme derives the key that a UE and an MME share (TS 33.401 annex A.2). hidden
// is the concealed sequence number in AUTN.
func kasme(ck, ik []byte, plmn identity.PLMN, hidden []byte) [32]byte {
	return derive(append(append(make([]byte, 0, 32), ck...), ik...), 0x10, plmn[:], hidden)
}

// KeNB derives an eNodeB's first key. uplink is the NAS COUNT of the message that
// started the initial context setup (TS 33.401 annex A.3).
func KeNB(kasme [32]byte, uplink uint32) [32]byte {
	return derive(kasme[:], 0x11, binary.BigEndian.AppendUint32(nil, uplink))
}

// NextHop derives the next-hop key of a handover (TS 33.401 annex A.4). previous
// is the previous next-hop key, or KeNB for the first one.
func NextHop(kasme, previous [32]byte) [32]byte { return derive(kasme[:], 0x12, previous[:]) }

// derive is the key derivation function of TS 33.220 annex B.2. Its input is the
// octet fc, and then each parameter followed by its length.
func derive(key []byte, fc byte, parameters ...[]byte) (out [32]byte) {
	h := hmac.New(sha256.New, key)
	h.Write([]byte{fc})
	for _, p := range parameters {
		h.Write(p)
		h.Write([]byte{byte(len(p) >> 8), byte(len(p))})
	}
	h.Sum(out[:0])
	return out
}
