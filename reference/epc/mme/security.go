package mme

import (
	"vitrine/reference/epc/aka"
	"vitrine/wire/nas"
)

// Bits of a UE network capability (TS 24.301 clause 9.9.3.34).
const (
	capabilityEEA2 = 0x20 // in the first octet
	capabilityEIA2 = 0x20 // in the second octet
)

// verify checks the integrity of the present NAS message with the context's keys,
// and deciphers the message in place. A replayed message fails, because its sequence
// number is read as part of the next cycle of the COUNT (TS 24.301 clause 4.4.3.2).
func (w *worker) verify(u *ue) bool {
	p := &w.pdu
	if u.verified { // verified before the message was parked
		u.verified = false
		return true
	}
	if u.protection == nil || p.Security == nas.Plain {
		return false
	}
	cycle := uint32(1 << 8)
	if p.Security == nas.ServiceRequestHeader {
		cycle = 1 << 5
	}
	count := u.up&^(cycle-1) | uint32(p.Sequence)
	if count < u.up {
		count += cycle
	}
	mac, err := u.protection.MAC(count, aka.Uplink, p.Covered())
	if err != nil {
		return false
	}
	if p.Security == nas.ServiceRequestHeader {
		if uint16(mac) != p.ShortMAC {
			return false
		}
	} else if mac != p.MAC {
		return false
	}
	u.up = count + 1
	if p.Security.IsCiphered() {
		u.protection.Cipher(count, aka.Uplink, p.Body)
	}
	return true
}

// protect returns a NAS message with a security header, in the worker's buffer pack.
// body must not be in that buffer.
func (w *worker) protect(u *ue, s nas.Security, body []byte) []byte {
	if s == nas.Plain {
		return body
	}
	b := nas.AppendFrame(w.pack[:0], s, uint8(u.down))
	b = append(b, body...)
	if s.IsCiphered() {
		u.protection.Cipher(u.down, aka.Downlink, nas.FrameBody(b, 0))
	}
	mac, err := u.protection.MAC(u.down, aka.Downlink, nas.FrameCovered(b, 0))
	if err != nil { // never happens, because the key has the right size
		w.mme.config.Log.Error("a NAS message was not protected", "error", err)
	}
	nas.SetMAC(b, 0, mac)
	u.down++
	w.pack = b
	return b
}

// chosenCipher returns the ciphering algorithm to use with a UE.
func (w *worker) chosenCipher(u *ue) aka.Algorithm {
	if w.mme.config.Cipher == aka.AES && u.capability[0]&capabilityEEA2 != 0 {
		return aka.AES
	}
	return aka.Null
}

// appendCapability appends the UE security capability to replay to the UE: the EPS
// algorithms of its network capability, and the UMTS and GPRS algorithms if it has any. A UE
// with GPRS algorithms alone gets zeros for UMTS (TS 24.301 clause 9.9.3.36).
func (u *ue) appendCapability(b []byte) []byte {
	b = append(b, u.capability[0], u.capability[1])
	switch {
	case u.capLength >= 4:
		b = append(b, u.capability[2], u.capability[3]&0x7f) // without the bit for UCS2
	case u.gea != 0:
		b = append(b, 0, 0)
	}
	if u.gea != 0 {
		b = append(b, u.gea)
	}
	return b
}

// gprsAlgorithms returns the GPRS encryption algorithms of an MS network capability, as a UE
// security capability has them: GEA1 is bit 8 of the first octet, GEA2 to GEA7 are bits 7 to 2
// of the second (TS 24.008 clause 10.5.5.12, TS 24.301 clause 9.9.3.36).
func gprsAlgorithms(capability []byte) uint8 {
	if len(capability) < 2 {
		return 0
	}
	return capability[0]>>7<<6 | capability[1]>>1&0x3f
}

// algorithms returns the security capabilities for an eNodeB: 16 bits each, without
// the bits of EEA0 and EIA0 (TS 36.413 clause 9.2.1.40).
func (u *ue) algorithms() (ciphering, integrity uint16) {
	return uint16(u.capability[0]&0x7f) << 9, uint16(u.capability[1]&0x7f) << 9
}

// startChain derives the first key of a handover chain (TS 33.401 annexes A.3 and
// A.4) and returns it as the eNodeB's key.
func (u *ue) startChain() [32]byte {
	key := aka.KeNB(u.kasme, u.keyCount)
	u.nextHop, u.chain = key, 0
	return key
}

// advanceChain derives the next-hop key for a handover.
func (u *ue) advanceChain() {
	u.nextHop = aka.NextHop(u.kasme, u.nextHop)
	u.chain = (u.chain + 1) & 7
}
