package mme

import (
	"crypto/subtle"

	"vitrine/reference/epc/aka"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// noKey is the key set identifier that means "no key is available" (TS 24.301
// clause 9.9.3.21).
const noKey = 7

// authenticate asks the HSS for a vector (TS 24.301 clause 5.4.2).
func (w *worker) authenticate(u *ue) {
	u.phase = vectoring
	w.call(u, callVector)
}

// challenge sends a challenge to the UE.
func (w *worker) challenge(u *ue, v *aka.Vector, err error) {
	if err != nil {
		w.failCall(u, err)
		return
	}
	u.vector = *v
	u.ksi = (u.ksi + 1) % noKey
	m := nas.AuthenticationRequest{KSI: u.ksi, RAND: u.vector.RAND[:], AUTN: u.vector.AUTN[:]}
	w.body = m.Append(w.body[:0])
	w.ask(u, challenged, nas.Plain, w.body)
}

// responded checks the answer to a challenge and sends the Security Mode Command.
func (w *worker) responded(u *ue, body []byte) {
	var m nas.AuthenticationResponse
	if m.Parse(body) != nil {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	w.timers.stop(u)
	if subtle.ConstantTimeCompare(m.RES, u.vector.XRES[:]) != 1 {
		w.rejectKeys(u)
		return
	}
	cipher := w.chosenCipher(u)
	protection, err := aka.NewProtection(u.vector.KASME, cipher, aka.AES)
	if err != nil { // never happens, because both algorithms are supported
		w.failCall(u, err)
		return
	}
	u.protection, u.cipher, u.kasme, u.vector = protection, cipher, u.vector.KASME, aka.Vector{}
	u.up, u.down = 0, 0
	var replayed [5]byte
	command := nas.SecurityModeCommand{
		Cipher: uint8(cipher), Integrity: uint8(aka.AES), KSI: u.ksi, Capability: u.appendCapability(replayed[:0]),
	}
	w.body = command.Append(w.body[:0])
	w.ask(u, securing, nas.ProtectedNewContext, w.body)
}

// rejectKeys ends the attach of a UE whose keys differ from the HSS's (TS 24.301
// clause 5.4.2.5).
func (w *worker) rejectKeys(u *ue) {
	w.body = (&nas.Empty{Type: nas.AuthenticationRejectType}).Append(w.body[:0])
	w.download(u, nas.Plain, w.body)
	w.end(u, unauthenticated)
	w.discard(u, s1ap.CauseAuthentication)
}

// keysRefused handles an Authentication Failure. If the UE reports a synch failure,
// the HSS makes a new vector, but only once per attach (TS 24.301 clause 5.4.2.6).
func (w *worker) keysRefused(u *ue, body []byte) {
	var m nas.Failure
	if m.Parse(body) != nil || m.Type != nas.AuthenticationFailureType {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	w.timers.stop(u)
	if m.Cause != nas.CauseSynch || m.AUTS == nil || u.resynced {
		w.rejectKeys(u)
		return
	}
	u.resynced = true
	w.mme.counts.resynchronised.Inc()
	u.phase = vectoring
	j := w.job(u, callVector)
	j.resync, j.failed = true, Resynchronisation{RAND: u.vector.RAND, AUTS: [14]byte(m.AUTS)}
	w.submit(j)
}

// securityDone handles a Security Mode Complete.
func (w *worker) securityDone(u *ue) {
	w.timers.stop(u)
	u.secured, u.keyCount = true, u.up-1
	w.safe(u)
}

// securityRefused handles a Security Mode Reject: the UE cannot attach.
func (w *worker) securityRefused(u *ue) {
	w.timers.stop(u)
	w.end(u, refused)
	w.discard(u, s1ap.CauseNormalRelease)
}

// identified handles an Identity Response.
func (w *worker) identified(u *ue, body []byte) {
	var m nas.IdentityResponse
	if m.Parse(body) != nil || m.Identity.Kind != nas.KindIMSI {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	w.timers.stop(u)
	u.imsi = m.Identity.Digits
	w.authenticate(u)
}
