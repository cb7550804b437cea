package mme

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// setUpContext sends an Initial Context Setup Request (TS 36.413 clause 8.3.1) with
// the UE's bearers, and with a NAS message unless pdu is nil.
func (w *worker) setUpContext(u *ue, pdu []byte) {
	s := &u.subscription
	b := w.about(u, s1ap.Initiating, s1ap.InitialContextSetup, s1ap.Reject)
	b = s1ap.AppendBitRates(b, s1ap.Reject, s.Down, s.Up)
	b = u.appendBearers(b, s1ap.ToBeSetupContext, s1ap.ToBeSetupItemContext, pdu)
	ciphering, integrity := u.algorithms()
	b = s1ap.AppendCapabilities(b, s1ap.Reject, ciphering, integrity)
	key := u.startChain()
	b = s1ap.AppendElement(b, s1ap.SecurityKey, s1ap.Reject, key[:])
	if len(u.radio) > 0 {
		b = s1ap.AppendNAS(b, s1ap.RadioCapability, s1ap.Ignore, u.radio)
	}
	w.finish(u.enb, b)
}

func (u *ue) qos() s1ap.QoS {
	return s1ap.QoS{QCI: u.subscription.QCI, Priority: u.subscription.Priority, Preemptable: true}
}

// contextSetUp handles the answer to an Initial Context Setup Request.
func (w *worker) contextSetUp(u *ue, accepted bool) {
	if u.gone || u.phase != accepting && u.phase != serving || u.phase == accepting && u.gotSetup {
		w.mme.counts.unexpected.Inc()
		return
	}
	tunnel, ok := tunnelOf(w.in.list, s1ap.SetupItemContext, u.session.Bearer)
	if !accepted || !ok {
		w.timers.stop(u)
		w.end(u, radioFailed)
		if u.attached {
			u.cause = s1ap.CauseNormalRelease
			w.releaseBearers(u)
			return
		}
		w.discard(u, s1ap.CauseNormalRelease)
		return
	}
	u.tunnel, u.session.Dedicated = tunnel, u.admitted(w.in.list, s1ap.SetupItemContext)
	if u.phase == accepting {
		u.gotSetup = true
		w.complete(u)
		return
	}
	w.timers.stop(u)
	u.phase = modifying
	w.call(u, callModify)
}

// tunnelOf returns the tunnel of a bearer in a list of E-RABs. It returns false if
// the list lacks the bearer.
func tunnelOf(list []byte, item s1ap.ID, bearer uint8) (s1ap.Tunnel, bool) {
	for it := s1ap.List(list); it.Next(); {
		if it.ID != item {
			continue
		}
		if e, ok := s1ap.ParseERAB(item, it.Value); ok && e.ID == bearer {
			return e.Tunnel, true
		}
	}
	return s1ap.Tunnel{}, false
}

// listed returns the identities in a list of E-RABs as bits.
func listed(list []byte, item s1ap.ID) (bearers uint16) {
	for it := s1ap.List(list); it.Next(); {
		if e, ok := s1ap.ParseERAB(item, it.Value); ok && it.ID == item {
			bearers |= 1 << e.ID
		}
	}
	return bearers
}

// appendReleased appends the list of E-RABs that an eNodeB shall release, unless there are none.
func appendReleased(b []byte, bearers uint16) []byte {
	if bearers == 0 {
		return b
	}
	start := len(b)
	b = s1ap.BeginList(b, s1ap.ToBeReleased, s1ap.Ignore, bits.OnesCount16(bearers))
	for id := range uint8(16) {
		if bearers>>id&1 != 0 {
			b = s1ap.AppendERAB(b, s1ap.ERABItem, s1ap.Ignore, s1ap.ERAB{ID: id, Cause: s1ap.CauseUnknownERAB})
		}
	}
	return s1ap.EndElement(b, start)
}

// bearersLost handles an E-RAB Release Indication (TS 36.413 clause 8.2.3.2.2): the eNodeB has
// released dedicated bearers, and the UE knows. An eNodeB that loses the default bearer
// requests the release of the connection instead.
func (w *worker) bearersLost(u *ue) {
	w.happen()
	if w.later(u, u.enb) {
		return
	}
	gone := u.dedicated() & listed(w.in.list, s1ap.ERABItem)
	if !u.ready() || gone == 0 {
		w.mme.counts.unexpected.Inc()
		return
	}
	u.event = w.event
	w.begin(u, deactivation)
	w.lose(u, gone)
}

// lose removes dedicated bearers of a connected UE, given as bits, that UE and eNodeB have
// removed already. It tells the gateway.
func (w *worker) lose(u *ue, gone uint16) {
	all := slices.Clone(u.session.Dedicated)
	for i := range all {
		if gone>>all[i].ID&1 != 0 {
			all[i].Downlink = s1ap.Tunnel{} // the call reports it as removed
		}
	}
	u.session.Dedicated = all
	u.phase = modifying
	w.call(u, callModify)
	u.drop(gone)
}

// absent returns the UE's dedicated bearers that an EPS bearer context status lacks, as bits.
// Without a status there are none.
func (u *ue) absent(status []byte) uint16 {
	if len(status) < 2 {
		return 0
	}
	return u.dedicated() &^ binary.LittleEndian.Uint16(status)
}

// modified continues the UE's procedure after the gateway's answer to a change of
// the eNodeB's tunnel ends.
func (w *worker) modified(u *ue, err error) {
	if err == nil && len(u.session.Dedicated) > 0 {
		u.prune()
	}
	if u.phase == switching {
		w.switched(u, err)
		return
	}
	if u.enb == nil { // the association was lost meanwhile; resume runs next
		w.end(u, outcomeOf(err))
		return
	}
	switch {
	case err == nil:
		w.rest(u)
		w.end(u, succeeded)
	case u.kind == attach, isLost(err): // the UE has no session, or no bearer of its attach
		w.mme.config.Log.Debug("the gateway did not accept the eNodeB's end of a bearer", "error", err)
		w.end(u, networkFailure)
		w.networkDetach(u)
	default:
		w.mme.config.Log.Debug("the gateway did not accept the eNodeB's end of a bearer", "error", err)
		w.end(u, outcomeOf(err))
		u.cause = s1ap.CauseNormalRelease
		w.releaseBearers(u)
	}
}

func outcomeOf(err error) outcome {
	if err != nil {
		return networkFailure
	}
	return succeeded
}

// networkDetach detaches a UE and asks it to attach again (TS 24.301 clause
// 5.5.2.3).
func (w *worker) networkDetach(u *ue) {
	w.body = (&nas.NetworkDetach{Detach: 1}).Append(w.body[:0])
	w.download(u, nas.Ciphered, w.body)
	w.discard(u, s1ap.CauseDetach)
}
