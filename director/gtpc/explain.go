package gtpc

import (
	"net/netip"
	"slices"
	"time"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// An Explanation is what would be done with a request, and why.
type Explanation struct {
	Kind     gtpc.Type
	Initial  bool       // it begins an exchange: what follows is for those alone
	Rule     int        // of the policy's, that fits it; -1: none
	Type     table.Type // that the rule names
	Key      uint64     // of the session
	Session  bool       // the key is the session's own: from the TEID, the memory of TEIDs or the IMSI
	OwnerOf  table.Type // whose TEID it is sent to
	Owner    uint16     // the ID of the instance whose TEID it is sent to; 0: not known
	Instance *table.Target
	Peer     netip.AddrPort // an instance sends it to the TEID of this peer; not valid: it goes to Instance
}

// Explain finds where a request would go, without the memory of what was seen:
// as for a key that is new. counts are thrown away.
func (d *Director) Explain(now time.Duration, counts *meter.Worker, from netip.AddrPort, data []byte) (e Explanation, err error) {
	e.Rule = -1
	w := &Worker{director: d, steering: table.NewSteering(d.config.Epochs, 1), meter: counts, places: map[netip.AddrPort]instance{}}
	in := datagram.Datagram{Data: slices.Clone(data), From: from, At: now}
	m := &w.message
	if _, err := m.read(in.Data); err != nil {
		return e, err
	}
	t := turn{message: m, in: &in, now: now, from: placeOf(from), view: d.config.Epochs.View(), policy: d.policy.Load()}
	t.origin = w.instanceAt(t.view, from)
	e.Kind = m.Type
	if e.Initial = m.Type >= gtpc.CreateSessionRequest && !m.Type.IsTriggered() && (!m.IsCommand() || m.Type.IsCommand()); !e.Initial {
		return e, nil
	}
	whose := d.ownerOf(t.view, t.policy, now, m.TEID)
	e.OwnerOf, e.Owner = whose.ty, whose.id
	r, ok := t.policy.classify(m, whose)
	if !ok {
		return e, nil
	}
	e.Rule, e.Type = r.at, r.ty
	e.Key, e.Session = w.keyOf(&t, whose)
	if _, ok := t.view.Table.Pick(r.ty, e.Key, 0, t.view.Health); !ok {
		return e, nil // what destination would answer
	}
	to, target, ok := w.destination(&t)
	if ok && target == nil {
		e.Peer = to.to
	}
	e.Instance = target
	return e, nil
}
