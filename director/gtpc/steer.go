package gtpc

import (
	"errors"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// destination finds where a request goes: to a peer, when an instance sends it
// to a TEID that the peer gave it; else to the type that the rules name, and in
// it to the instance of the session. target is nil for a peer. When ok is false
// the request has been answered or counted.
func (w *Worker) destination(t *turn) (to way, target *table.Target, ok bool) {
	d := w.director
	if t.origin.id != 0 && t.TEID != 0 {
		if o, ok := d.peers.find(t.now, spaceOf(t.in.From), t.TEID); ok {
			return way{to: o.address.addrPort(), listener: t.at, sender: t.origin, key: t.key, hasKey: t.hasKey}, nil, true
		}
	}
	whose := d.ownerOf(t.view, t.policy, t.now, t.TEID)
	r, ok := t.policy.classify(t.message, whose)
	if !ok {
		w.fail(meter.NoType, meter.Unruled, &w.counts.unruled)
		return way{}, nil, false
	}
	key, hasKey := w.keyOf(t, whose)
	var region table.Region
	if d.config.Region != nil {
		region = d.config.Region(t.in.From.Addr())
	}
	if whose.id != 0 && whose.ty == r.ty {
		target, ok = w.steering.Resume(t.now, r.ty, whose.id, key, region, t.policy.options[r.ty].Sessions)
	} else {
		target, ok = w.steering.Choose(t.now, r.ty, key, region)
	}
	if !ok {
		w.reject(t, r.ty, meter.NoInstance, gtpc.NoResourcesAvailable)
		return way{}, nil, false
	}
	return way{to: target.Address, listener: t.at, receiver: instanceOf(target), sender: t.origin, key: key, hasKey: hasKey}, target, true
}

// keyOf is the session's key: the one that its TEID carries or was learned
// with, else its IMSI; failing both, something that comes again.
func (w *Worker) keyOf(t *turn, whose owner) (key uint64, isSession bool) {
	switch {
	case whose.hasKey:
		return whose.key, true
	case t.hasKey:
		return t.key, true
	case t.TEID != 0:
		w.counts.unknownTEID.Add(1)
		return mix(uint64(t.TEID)), false
	}
	w.counts.keyless.Add(1)
	return hashSender(&t.from, t.at, 0), false
}

// reject answers a request in place of an instance; a message that has no
// response of its own is dropped.
func (w *Worker) reject(t *turn, ty table.Type, why meter.Cause, cause gtpc.CauseValue) {
	w.fail(ty, why, &w.counts.rejected)
	response, ok := t.Type.Response()
	if !ok {
		return
	}
	var teid uint32 // 0 where the sender's is not known (clause 5.5.2)
	if t.hasSender {
		teid = t.sender.TEID
	}
	b := gtpc.AppendHeader(t.out.Room(), response, teid, t.Sequence)
	t.out.Send(t.in.Listener, t.in.From, gtpc.End(gtpc.AppendCause(b, cause), 0))
}

// refuse deals with what is no GTPv2-C message. One of another version is told
// which one is spoken (clause 7.7.2), unless it says the same.
func (w *Worker) refuse(in *datagram.Datagram, out *datagram.Sender, err error) {
	// Prime is of the first octet whatever the error is: nothing is allocated to
	// find out.
	if errors.Is(err, gtpc.ErrShort) || in.Data[0]>>5 == 2 || gtpc.VersionError(in.Data[0]).Prime() || gtpc.Type(in.Data[1]) == gtpc.VersionNotSupported {
		w.fail(meter.NoType, meter.Malformed, &w.counts.malformed)
		return
	}
	w.fail(meter.NoType, meter.Malformed, &w.counts.versions)
	sequence, _ := gtpc.ForeignSequence(in.Data)
	out.Send(in.Listener, in.From, gtpc.AppendVersionNotSupported(out.Room(), sequence))
}
