package gtpc

import (
	"errors"
	"net/netip"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// A decision is where a request goes, and why.
type decision struct {
	peer    netip.AddrPort // valid: to a peer, and nothing below counts
	owner   owner          // whose the TEID is; none: id is 0
	lost    bool           // an instance sent it to a TEID that is no one's here
	rule    *rule          // nil: none fits
	key     uint64
	session bool          // key is a session's
	target  *table.Target // nil: the type has no instance to be had
}

// decide finds where a request goes: to a peer, when an instance sends it to a
// TEID that the peer gave it; else to the type that the rules name, and in it to
// the instance of the session.
func (w *worker) decide(t *turn) (x decision) {
	s := w.server
	if t.origin.id != 0 && t.TEID != 0 {
		if o, ok := s.peers.find(t.now, spaceOf(t.in.From), t.TEID); ok {
			x.peer = o.address.addrPort()
			return x
		}
	}
	x.owner = s.ownerOf(t.policy, t.now, t.TEID)
	if x.lost = t.origin.id != 0 && t.TEID != 0 && x.owner.id == 0; x.lost {
		return x
	}
	var ok bool
	if x.rule, ok = t.policy.classify(t.message, x.owner); !ok {
		return x
	}
	x.key, x.session = w.keyOf(t, x.owner)
	var region table.Region
	if s.config.Region != nil {
		region = s.config.Region(t.in.From.Addr())
	}
	ty := x.rule.ty
	if x.owner.id != 0 && x.owner.ty == ty {
		x.target, ok = w.steering.Resume(t.now, ty, x.owner.id, x.key, region, t.policy.options[ty].Sessions)
	} else {
		x.target, ok = w.steering.Choose(t.now, ty, x.key, region)
	}
	if !ok {
		x.target = nil
	}
	return x
}

// destination is the way of a request; target is nil when it goes to a peer.
// When ok is false the request has been answered or counted.
func (w *worker) destination(t *turn) (to way, target *table.Target, ok bool) {
	x := w.decide(t)
	to = way{listener: t.at, sender: t.origin, key: x.key, hasKey: x.session}
	switch {
	case x.peer.IsValid():
		to.to, to.key, to.hasKey = x.peer, t.key, t.hasKey
		return to, nil, true
	case x.lost:
		w.fail(meter.NoType, meter.Unroutable, &w.counts.unreachable)
		return way{}, nil, false
	case x.rule == nil:
		w.fail(meter.NoType, meter.Unruled, &w.counts.unruled)
		return way{}, nil, false
	case x.target == nil:
		w.reject(t, x.rule.ty, meter.NoInstance, gtpc.NoResourcesAvailable)
		return way{}, nil, false
	}
	to.to, to.receiver = x.target.Address, instanceOf(x.target)
	return to, x.target, true
}

// keyOf is the session's key: the one that its TEID carries or was learned
// with, else its IMSI; failing both, something that comes again.
func (w *worker) keyOf(t *turn, whose owner) (key uint64, isSession bool) {
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
func (w *worker) reject(t *turn, ty table.Type, why meter.Cause, cause gtpc.CauseValue) {
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
func (w *worker) refuse(in *datagram.Datagram, out *datagram.Sender, err error) {
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
