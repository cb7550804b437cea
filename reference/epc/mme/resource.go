package mme

import (
	"bytes"
	"context"
	"time"

	"vitrine/internal/truth"
	"vitrine/wire/identity"
	"vitrine/wire/nas"
	"vitrine/wire/s1ap"
)

// A ResourceRequest is a UE's request for the resources of a dedicated bearer, or for
// the release of one (TS 23.401 clause 5.4.5).
type ResourceRequest struct {
	PTI       uint8
	Bearer    uint8 // identity of the bearer to release; 0: allocate a new one
	QoS       nas.QoS
	Aggregate []byte // traffic flow aggregate (TS 24.008 clause 10.5.6.12)
}

// resourceRequested handles a Bearer Resource Allocation or Modification Request (TS
// 24.301 clauses 6.5.3 and 6.5.4). If the network grants it, the gateway requests a
// change to the UE's bearers.
func (w *worker) resourceRequested(u *ue, body []byte) {
	if !u.ready() {
		w.mme.counts.unexpected.Inc()
		return
	}
	var m nas.ResourceRequest
	if m.Parse(body) != nil || m.PTI == 0 {
		w.mme.counts.malformedNAS.Inc()
		return
	}
	u.asked = ResourceRequest{PTI: m.PTI, Aggregate: bytes.Clone(m.Aggregate)}
	kind, known := dedicated, m.Bearer == u.session.Bearer
	if m.Type == nas.ModificationRequestType {
		kind, known, u.asked.Bearer = deactivation, u.has(m.Bearer), m.Bearer
	}
	if m.QoS != nil {
		u.asked.QoS, _ = nas.ParseQoS(m.QoS) // the network refuses a QCI of 0
	}
	w.begin(u, kind)
	if !known {
		w.refuseResource(u, refused, nas.ESMCauseUnknownBearer)
		return
	}
	u.phase = requesting
	w.call(u, callResource)
}

// later parks the present message of a connected UE while a service request or a call of
// the UE is in progress, because messages of two eNodeBs can overtake each other. A UE
// has room for one parked message. later returns false if the message need not wait, or
// if there is no room.
func (w *worker) later(u *ue, e *enodeb) bool {
	calls := u.busy && (u.phase == modifying || u.phase == switching || u.phase == requesting || u.phase == registered)
	if u.gone || u.parked.enodeb != nil || !calls && u.phase != serving {
		return false
	}
	w.park(u, e)
	return true
}

// replay handles the message that later parked. If the UE's connection has ended, replay
// drops the message, but refuses a Path Switch Request: the eNodeB waits for an answer.
func (w *worker) replay(u *ue) {
	e := u.parked.enodeb
	u.parked.enodeb = nil
	lost := e.perWork[w.number].lost
	if lost || u.gone || u.phase != registered || u.enb == nil {
		w.mme.counts.unexpected.Inc()
		w.unpark(u)
		if !lost && w.s1.Procedure == s1ap.PathSwitchRequest {
			w.event = u.parked.event
			w.mme.counts.procedures[pathSwitch][refused].Inc()
			w.failSwitch(e, w.in.source, w.in.enb, s1ap.CauseUnknownMMEUEID)
		}
		return
	}
	u.verified = u.parked.verified
	w.waited = append(w.waited[:0], u.parked.octets...)
	w.arrived, w.kept = u.parked.began, u.parked.event
	w.process(e, w.waited)
	w.kept = 0
}

// resourced continues after the gateway's answer to a UE's resource request. If the
// gateway grants it, the change to the bearers has already arrived or follows.
func (w *worker) resourced(u *ue, err error) {
	if u.enb == nil { // the association was lost meanwhile; resume runs next
		w.end(u, radioFailed)
		return
	}
	if err == nil {
		w.rest(u)
		return
	}
	w.mme.config.Log.Debug("the gateway refused bearer resources", "error", err)
	cause := esmCause(err)
	w.refuseResource(u, esmOutcome(cause), cause)
}

// refuseResource refuses a UE's request for bearer resources.
func (w *worker) refuseResource(u *ue, o outcome, cause nas.ESMCause) {
	m := nas.Release{Header: nas.Bearer(0, u.asked.PTI), Cause: cause}
	if m.Type = nas.AllocationRejectType; u.kind == deactivation {
		m.Type = nas.ModificationRejectType
	}
	w.body = m.Append(w.body[:0])
	w.download(u, nas.Ciphered, w.body)
	w.rest(u)
	w.end(u, o)
}

// CreateBearer creates a dedicated bearer for a subscriber, and returns it. pti is the
// procedure transaction identity of the UE's request, or 0. Any goroutine may call
// CreateBearer. It waits for the UE.
func (m *MME) CreateBearer(ctx context.Context, imsi identity.Digits, pti uint8, b DedicatedBearer, tft []byte) (DedicatedBearer, error) {
	return m.change(ctx, imsi, &change{bearer: b, tft: tft, pti: pti})
}

// DeleteBearer removes a dedicated bearer of a subscriber. It is called like
// CreateBearer.
func (m *MME) DeleteBearer(ctx context.Context, imsi identity.Digits, pti, id uint8) error {
	_, err := m.change(ctx, imsi, &change{remove: id, pti: pti})
	return err
}

// change hands a change to the subscriber's worker, and waits for the result. With a
// store, the worker first reads the context of an idle UE.
func (m *MME) change(ctx context.Context, imsi identity.Digits, c *change) (DedicatedBearer, error) {
	c.until, c.done, c.event = time.Now().Add(changeTime), make(chan changed, 1), truth.From(ctx)
	if !m.give(ctx, imsi, order{change: c, event: c.event}) {
		return DedicatedBearer{}, errNoContext
	}
	select {
	case r := <-c.done:
		return r.bearer, r.err
	case <-ctx.Done():
		return DedicatedBearer{}, ctx.Err()
	}
}

// appendBearers appends a list of the UE's E-RABs. pdu is the NAS message of the default
// bearer; nil: none.
func (u *ue) appendBearers(b []byte, list, item s1ap.ID, pdu []byte) []byte {
	start := len(b)
	b = s1ap.BeginList(b, list, s1ap.Reject, 1+len(u.session.Dedicated))
	b = s1ap.AppendERAB(b, item, s1ap.Reject, s1ap.ERAB{ID: u.session.Bearer, QoS: u.qos(), Tunnel: u.session.Uplink, NAS: pdu})
	for i := range u.session.Dedicated {
		d := &u.session.Dedicated[i]
		b = s1ap.AppendERAB(b, item, s1ap.Reject, s1ap.ERAB{ID: d.ID, QoS: d.QoS, Tunnel: d.Uplink})
	}
	return s1ap.EndElement(b, start)
}

// admitted returns the dedicated bearers with the tunnels that an eNodeB's list has.
// Bearers that the eNodeB did not admit have no tunnel.
func (u *ue) admitted(list []byte, item s1ap.ID) []DedicatedBearer {
	if len(u.session.Dedicated) == 0 {
		return nil
	}
	all := make([]DedicatedBearer, len(u.session.Dedicated))
	for i, b := range u.session.Dedicated {
		b.Downlink, _ = tunnelOf(list, item, b.ID)
		all[i] = b
	}
	return all
}

// prune removes the dedicated bearers without a tunnel, once the gateway knows that they
// are gone.
func (u *ue) prune() {
	kept := u.session.Dedicated[:0:0]
	for _, b := range u.session.Dedicated {
		if b.Downlink.V4.IsValid() || b.Downlink.V6.IsValid() {
			kept = append(kept, b)
		}
	}
	u.session.Dedicated = kept
}
