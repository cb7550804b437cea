package gtpc

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"vitrine/director/datagram"
	"vitrine/director/meter"
	"vitrine/director/table"
	"vitrine/wire/gtpc"
)

// A decision tells where a request goes, and why.
type decision struct {
	peer    netip.AddrPort // valid: the request goes to this peer, and of the other fields only given is set
	given   uint32         // the TEID that the peer gave
	owner   owner          // of the TEID; id 0: no owner
	lost    bool           // an instance sent it to a TEID without an owner here
	rule    *rule          // nil: no rule matches
	key     uint64
	session bool          // key is a session's
	target  *table.Target // nil: the type has no available instance
}

// decide returns where a request goes. An instance's request to a TEID that a peer gave
// it goes to the peer. Any other request goes to the type that the rules name, and there
// to the instance of the session.
func (w *worker) decide(t *turn) (x decision) {
	s := w.server
	teid := t.TEID
	if t.origin.id != 0 && teid != 0 {
		o, ok := s.peers.find(t.now, teid)
		at := o.address.addrPort()
		switch {
		case ok && s.own(at.Addr()): // the TEID of an instance, sent from another port
			teid = o.given
		case ok && (o.instance == t.origin || !w.isAnothers(t, t.origin, teid)):
			x.peer, x.given = at, o.given
			return x
		}
	}
	x.owner = s.ownerOf(t.policy, t.now, teid)
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

// destination returns the way of a request; target is nil if it goes to a peer. If ok is
// false, destination has answered or counted the request.
func (w *worker) destination(t *turn) (to way, target *table.Target, ok bool) {
	x := w.decide(t)
	to = way{listener: t.at, sender: t.origin, key: x.key, hasKey: x.session}
	switch {
	case x.peer.IsValid():
		to.to, to.given, to.key, to.hasKey = x.peer, x.given, t.key, t.hasKey
		return to, nil, true
	case x.lost:
		w.drop(t.in, meter.NoType, meter.Unroutable, &w.counts.unreachable)
		return way{}, nil, false
	case x.rule == nil:
		w.drop(t.in, meter.NoType, meter.Unruled, &w.counts.unruled)
		return way{}, nil, false
	case x.target == nil:
		w.reject(t, x.rule.ty, meter.NoInstance, gtpc.PeerNotResponding)
		return way{}, nil, false
	}
	to.to, to.receiver = x.target.Address, instanceOf(x.target)
	return to, x.target, true
}

// keyOf returns the session's key: the key that its TEID carries or was learned with, else
// the hash of its IMSI. Without either, keyOf hashes the TEID or the sender, which are the
// same in a retransmission.
func (w *worker) keyOf(t *turn, whose owner) (key uint64, isSession bool) {
	switch {
	case whose.hasKey:
		return whose.key, true
	case t.hasKey:
		return t.key, true
	case t.TEID != 0:
		w.counts.unknownTEID.Add(1)
		return table.Mix(uint64(t.TEID)), false
	}
	w.counts.keyless.Add(1)
	return hashSender(&t.from, t.at), false
}

// hashSender hashes a sender and the listener that received its message. Every director gets the same hash.
func hashSender(from *place, listener uint8) uint64 {
	a, b := binary.NativeEndian.Uint64(from.ip[:8]), binary.NativeEndian.Uint64(from.ip[8:])
	return table.Mix(table.Mix(a^(uint64(from.port)<<48|uint64(listener)<<24)) ^ b)
}

// reject answers a request in place of an instance. It drops a message that has no
// response type.
func (w *worker) reject(t *turn, ty table.Type, why meter.Cause, cause gtpc.CauseValue) {
	response, ok := t.Type.Response()
	if !ok {
		w.drop(t.in, ty, why, &w.counts.rejected)
		return
	}
	w.counts.rejected.Add(1)
	w.meter.Fail(ty, why)
	var teid uint32 // 0 if the sender's TEID is not known (clause 5.5.2)
	if t.hasSender {
		teid = t.sender.TEID
	}
	b := gtpc.AppendHeader(t.out.Room(), response, teid, t.Sequence)
	t.out.Send(t.in.Listener, t.in.From, gtpc.End(gtpc.AppendCause(b, cause), 0))
}

// refuse handles a datagram that is not a GTPv2-C message. To another version of GTP it
// answers Version Not Supported (clause 7.7.2), unless the message is such an answer or
// GTP'.
func (w *worker) refuse(in *datagram.Datagram, out *datagram.Sender, err error) {
	// Prime depends on the first octet alone, so it needs no error value, which errors.As
	// would allocate.
	if errors.Is(err, gtpc.ErrShort) || in.Data[0]>>5 == 2 || gtpc.VersionError(in.Data[0]).Prime() || gtpc.Type(in.Data[1]) == gtpc.VersionNotSupported {
		w.drop(in, meter.NoType, meter.Malformed, &w.counts.malformed)
		return
	}
	w.counts.versions.Add(1)
	w.meter.Fail(meter.NoType, meter.Malformed)
	sequence, _ := gtpc.ForeignSequence(in.Data)
	out.Send(in.Listener, in.From, gtpc.AppendVersionNotSupported(out.Room(), sequence))
}
