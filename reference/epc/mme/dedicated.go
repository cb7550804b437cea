package mme

import (
	"errors"
	"slices"
	"time"

	"vitrine/internal/truth"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// A DedicatedBearer is a dedicated bearer of a UE. Rates are in bit/s.
type DedicatedBearer struct {
	ID       uint8 // identity: 6 to 15
	QoS      s1ap.QoS
	Uplink   s1ap.Tunnel // S-GW's end of the S1-U tunnel
	Downlink s1ap.Tunnel `json:"-"` // the eNodeB's end, while the UE is connected
}

// The errors of changes to a UE's dedicated bearers.
var (
	errNoContext = errors.New("mme: no such UE or bearer")
	errChanging  = errors.New("mme: the UE's bearers are being changed")
	errIdentity  = errors.New("mme: all bearer identities of the UE are taken")
	errPaged     = errors.New("mme: the UE does not answer paging")
	errSilent    = errors.New("mme: the UE or its eNodeB does not answer")
	errRadio     = errors.New("mme: the eNodeB has no radio resources")
	errRefused   = errors.New("mme: the UE refuses the bearer")
)

// changeTime limits a change. It is shorter than the S-GW's wait for the answer, which is
// T3-RESPONSE times N3-REQUESTS = 9 s. It is not longer than the NAS timers T3485 and
// T3495 (8 s, TS 24.301 table 10.3.1), so the MME never retransmits the NAS request.
const changeTime = 8 * time.Second

// A change is a change to a UE's dedicated bearers that the network asks for.
type change struct {
	bearer DedicatedBearer // the bearer to create, with Uplink and QoS
	tft    []byte          // its traffic flow template
	remove uint8           // identity of the bearer to remove; 0: none
	pti    uint8           // of the UE's request; 0: there is none
	until  time.Time
	begun  bool
	event  truth.Event  // what asks for it
	done   chan changed // has room for one
}

// changed is the result of a change.
type changed struct {
	bearer DedicatedBearer
	err    error
}

// want begins a change, or stores it until the UE is ready. An idle UE is paged.
func (w *worker) want(u *ue, c *change) {
	if u.change != nil {
		c.done <- changed{err: errChanging}
		return
	}
	u.change = c
	w.pursue(u)
}

// pursue begins the UE's stored change, if the UE is ready. With a store, it evicts the
// context of an idle UE that waits for nothing any more.
func (w *worker) pursue(u *ue) {
	c := u.change
	switch {
	case c == nil || c.begun || !u.ready():
	case w.mme.start.Add(w.now).After(c.until): // the S-GW has given up
		w.endChange(u, errSilent)
	case c.remove != 0 && !u.has(c.remove):
		w.endChange(u, errNoContext)
	case u.enb != nil && c.remove != 0:
		w.deactivate(u, c)
	case u.enb != nil:
		w.activate(u, c)
	case c.remove != 0 && w.mme.config.Store == nil: // the UE learns of it when it connects (TS 23.401 clause 5.4.4.1)
		u.drop(1 << c.remove)
		w.endChange(u, nil)
	default:
		w.page(u)
	}
	if w.mme.config.Store != nil && u.change == nil && u.ready() && u.enb == nil && !u.paged() {
		w.evict(u)
	}
}

// endChange reports the result of the UE's change to its caller.
func (w *worker) endChange(u *ue, err error) {
	c := u.change
	u.change = nil
	c.done <- changed{c.bearer, err}
}

// has reports whether the UE has a dedicated bearer.
func (u *ue) has(id uint8) bool {
	return slices.ContainsFunc(u.session.Dedicated, func(b DedicatedBearer) bool { return b.ID == id })
}

// dedicated returns the identities of the UE's dedicated bearers as bits, in the order of an
// EPS bearer context status (TS 24.301 clause 9.9.2.1).
func (u *ue) dedicated() (bearers uint16) {
	for i := range u.session.Dedicated {
		bearers |= 1 << u.session.Dedicated[i].ID
	}
	return bearers
}

// drop removes the dedicated bearers whose bits are set. It makes a new slice, because a
// running call may read the old one.
func (u *ue) drop(bearers uint16) {
	if bearers&u.dedicated() == 0 {
		return
	}
	u.session.Dedicated = slices.DeleteFunc(slices.Clone(u.session.Dedicated), func(b DedicatedBearer) bool { return bearers>>b.ID&1 != 0 })
}

// lastBearer is the highest identity of an EPS bearer (TS 24.007 clause 11.2.3.1.5).
const lastBearer = 15

// freeBearer returns an identity for a dedicated bearer; 0 if all are taken.
func (u *ue) freeBearer() uint8 {
	for id := uint8(defaultBearer + 1); id <= lastBearer; id++ {
		if !u.has(id) {
			return id
		}
	}
	return 0
}

// start begins the exchange of a change with the UE and its eNodeB.
func (w *worker) start(u *ue, c *change, p procedure, next phase) {
	if !u.running || u.kind != p { // otherwise the procedure began with the UE's request
		w.begin(u, p)
	}
	c.begun, u.phase, u.gotSetup, u.gotAccept = true, next, false, false
	u.event, w.event = c.event, c.event
	w.timers.set(u, c.until.Sub(w.mme.start))
}

// activate asks UE and eNodeB to set up a dedicated bearer (TS 23.401 clause 5.4.1 steps
// 4 to 9, TS 24.301 clause 6.4.2).
func (w *worker) activate(u *ue, c *change) {
	c.bearer.ID = u.freeBearer()
	if c.bearer.ID == 0 {
		w.endChange(u, errIdentity)
		return
	}
	w.start(u, c, dedicated, activating)
	q := &c.bearer.QoS
	var qos [16]byte
	request := nas.DedicatedBearerRequest{
		Header: nas.Bearer(c.bearer.ID, c.pti), Linked: u.session.Bearer, TFT: c.tft,
		QoS: nas.QoS{
			QCI: q.QCI, MaxUp: kilo(q.MaxUp), MaxDown: kilo(q.MaxDown), GuaranteedUp: kilo(q.GuaranteedUp), GuaranteedDown: kilo(q.GuaranteedDown),
		}.Append(qos[:0]),
	}
	w.body = request.Append(w.body[:0])
	b := w.about(u, s1ap.Initiating, s1ap.ERABSetup, s1ap.Reject)
	at := len(b)
	b = s1ap.BeginList(b, s1ap.ToBeSetupBearer, s1ap.Reject, 1)
	b = s1ap.AppendERAB(b, s1ap.ToBeSetupItemBearer, s1ap.Reject, s1ap.ERAB{
		ID: c.bearer.ID, QoS: *q, Tunnel: c.bearer.Uplink, NAS: w.protect(u, nas.Ciphered, w.body),
	})
	w.finish(u.enb, s1ap.EndElement(b, at))
}

// kilo converts bit/s to kbit/s.
func kilo(rate uint64) uint32 { return uint32(min(rate/1000, 1<<32-1)) }

// deactivate asks UE and eNodeB to release a dedicated bearer (TS 23.401 clause 5.4.4.1,
// TS 24.301 clause 6.4.4).
func (w *worker) deactivate(u *ue, c *change) {
	w.start(u, c, deactivation, deactivating)
	request := nas.Release{Header: nas.Bearer(c.remove, c.pti), Cause: nas.ESMCauseRegular}
	request.Type = nas.DeactivateRequestType
	w.body = request.Append(w.body[:0])
	w.releaseBearer(u, c.remove, w.protect(u, nas.Ciphered, w.body))
}

// releaseBearer sends an E-RAB Release Command (TS 36.413 clause 8.2.3), with a NAS
// message unless it is nil.
func (w *worker) releaseBearer(u *ue, id uint8, pdu []byte) {
	b := w.about(u, s1ap.Initiating, s1ap.ERABRelease, s1ap.Reject)
	at := len(b)
	b = s1ap.BeginList(b, s1ap.ToBeReleased, s1ap.Ignore, 1)
	b = s1ap.AppendERAB(b, s1ap.ERABItem, s1ap.Ignore, s1ap.ERAB{ID: id, Cause: s1ap.CauseNormalRelease})
	b = s1ap.EndElement(b, at)
	if pdu != nil {
		b = s1ap.AppendNAS(b, s1ap.NASPDU, s1ap.Ignore, pdu)
	}
	w.finish(u.enb, b)
}

// bearerSetUp handles an E-RAB Setup Response.
func (w *worker) bearerSetUp(u *ue) {
	if u.phase != activating || u.gotSetup {
		w.mme.counts.unexpected.Inc()
		return
	}
	c := u.change
	tunnel, ok := tunnelOf(w.in.list, s1ap.SetupItemBearer, c.bearer.ID)
	if !ok { // the NAS message was not delivered (TS 36.413 clause 8.2.1.2)
		w.abandon(u, errRadio, radioFailed)
		return
	}
	c.bearer.Downlink, u.gotSetup = tunnel, true
	w.activated(u)
}

// bearerAnswered handles the UE's answer to the request for a dedicated bearer.
func (w *worker) bearerAnswered(u *ue, h nas.Header) {
	if u.change == nil || h.EBI != u.change.bearer.ID || u.gotAccept {
		w.mme.counts.unexpected.Inc()
		return
	}
	if h.Type == nas.DedicatedBearerRejectType {
		w.abandon(u, errRefused, refused)
		return
	}
	u.gotAccept = true
	w.activated(u)
}

// activated completes the activation of a bearer when UE and eNodeB have answered.
func (w *worker) activated(u *ue) {
	if !u.gotSetup || !u.gotAccept {
		return
	}
	u.session.Dedicated = append(slices.Clone(u.session.Dedicated), u.change.bearer)
	w.completeChange(u)
}

// completeChange ends a successful change.
func (w *worker) completeChange(u *ue) {
	w.rest(u)
	w.end(u, succeeded)
	w.endChange(u, nil)
	if u.stored && !u.busy {
		w.save(u, callKeep, reserve)
	}
}

// abandon ends a failed activation, and releases the E-RAB if the eNodeB has set it up.
func (w *worker) abandon(u *ue, err error, o outcome) {
	if u.gotSetup {
		w.releaseBearer(u, u.change.bearer.ID, nil)
	}
	w.rest(u)
	w.end(u, o)
	w.endChange(u, err)
}

// bearerReleased handles an E-RAB Release Response or, with byUE, the UE's Deactivate
// Accept.
func (w *worker) bearerReleased(u *ue, byUE bool) {
	if u.phase != deactivating { // the response to abandon's release
		w.mme.counts.unexpected.Inc()
		return
	}
	u.gotSetup, u.gotAccept = u.gotSetup || !byUE, u.gotAccept || byUE
	if u.gotSetup && u.gotAccept {
		u.drop(1 << u.change.remove)
		w.completeChange(u)
	}
}

// changeExpired ends a change that the UE or the eNodeB did not answer in time. A bearer
// to remove is removed nevertheless (TS 24.301 clause 6.4.4.5).
func (w *worker) changeExpired(u *ue) {
	if u.phase == deactivating {
		u.drop(1 << u.change.remove)
		w.rest(u)
		w.end(u, timedOut)
		w.endChange(u, nil)
		return
	}
	w.abandon(u, errSilent, timedOut)
}

// stopChange ends the UE's change when the UE's connection ends, unless the change has not
// begun.
func (w *worker) stopChange(u *ue) {
	switch {
	case u.change == nil || !u.change.begun:
	case u.change.remove != 0:
		u.drop(1 << u.change.remove)
		w.endChange(u, nil)
	default:
		w.endChange(u, errRadio)
	}
}

// makeWay ends the exchange of a change with UE and eNodeB for a path switch. A bearer to remove
// is gone then. A bearer to create is asked for again at the new eNodeB (TS 23.401 clause 5.4.1).
func (w *worker) makeWay(u *ue) {
	if u.phase != activating && u.phase != deactivating {
		return
	}
	w.timers.stop(u)
	u.phase = registered
	if u.change.remove != 0 {
		w.stopChange(u)
		return
	}
	u.change.begun = false
}
